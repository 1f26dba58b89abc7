"""The ABI checks: one file a check, found by its name.

A check's module docstring is its header (see `Check`), and `run(context)` returns its findings. Add a file
and a test, nothing else.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from typing import get_args

from cuvil_regress.demangle import demangle
from cuvil_regress.elf import ElfImage
from cuvil_regress.model import Finding, Severity
from cuvil_regress.scope import Pool, Scope
from cuvil_regress.target_abi import TargetAbi

REQUIRED_MODEL_EXPORTS = frozenset(
    (b"cuvil_model_info", b"cuvil_model_strings", b"cuvil_model_weights", b"cuvil_model_run")
)
MODEL_EXPORTS = REQUIRED_MODEL_EXPORTS | {b"cuvil_model_shapes"}
"""What a model library exports, and nothing else."""
RUNTIME_NAME = re.compile(r"libcuvil_runtime\.so(\.\d+)*")

Version = tuple[int, ...]
_SECTIONS = ("Severity", "Why", "Example", "Fix")
_MAX_NAME_CHARACTERS = 200


@dataclass(frozen=True, eq=False)
class Context:
    """One library under test and everything that a check may compare it with.

    `earlier` are the libraries under test that came before this one, so that a pair is seen once.
    """

    library: ElfImage
    target: TargetAbi
    pool: Pool
    earlier: tuple[ElfImage, ...] = ()
    glibc_floor: Version = (2, 31)

    @cached_property
    def scope(self) -> Scope:
        """The libraries that the loader searches for this one's symbols."""
        return self.pool.close(self.library)

    @property
    def is_model(self) -> bool:
        """Whether the library is a compiled model."""
        return is_model(self.library)

    @property
    def is_freestanding_kind(self) -> bool:
        """Whether the library is a compiled model or the runtime, which need the C library at most."""
        return self.is_model or RUNTIME_NAME.fullmatch(self.library.load_name) is not None

    def finding(
        self, module: str, message: str, *, subject: str = "", severity: Severity | None = None
    ) -> Finding:
        """A finding of the check in `module` (its `__name__`), with the severity and hint of its header."""
        header = _header(module)
        return Finding(
            check=_id(module),
            severity=severity or _severity(header["Severity"]),
            message=f"{self.library.path.name}: {message}",
            subject=subject,
            file=str(self.library.path),
            hint=header["Fix"],
        )


@dataclass(frozen=True)
class Check:
    """A check and its header: what it finds, why that matters, an example, and how to fix it."""

    id: str
    severity: Severity
    summary: str
    why: str
    example: str
    fix: str
    run: Callable[[Context], list[Finding]]


def is_model(image: ElfImage) -> bool:
    """Whether `image` is a compiled model."""
    return b"cuvil_model_info" in image.exports


def readable(name: bytes) -> str:
    """A symbol's name for a message: demangled, on one line, not too long."""
    text = demangle(name)
    return text if len(text) <= _MAX_NAME_CHARACTERS else f"{text[:_MAX_NAME_CHARACTERS]}..."


@cache
def all_checks() -> tuple[Check, ...]:
    """Every check, in order of id."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    return tuple(_load(f"{__name__}.{name}") for name in names)


def describe_checks() -> str:
    """The reference page of all checks, as plain text."""
    return "\n\n".join(_describe(check) for check in all_checks())


def _describe(check: Check) -> str:
    parts = [("why", check.why), ("example", check.example), ("fix", check.fix)]
    lines = [f"{check.id} ({check.severity})", f"  {check.summary}"]
    return "\n".join(lines + [f"  {title}: {text}" for title, text in parts])


def _load(module: str) -> Check:
    run: Callable[[Context], list[Finding]] = importlib.import_module(module).run
    header = _header(module)
    return Check(
        id=_id(module),
        severity=_severity(header["Severity"]),
        summary=header["Summary"],
        why=header["Why"],
        example=header["Example"],
        fix=header["Fix"],
        run=run,
    )


def _id(module: str) -> str:
    return module.rpartition(".")[2].replace("_", "-")


@cache
def _header(module: str) -> dict[str, str]:
    """The sections of a check's docstring, each on one line; the first paragraph is the summary."""
    text = inspect.cleandoc(sys.modules[module].__doc__ or "")
    summary, *parts = re.split(rf"^({'|'.join(_SECTIONS)}):", text, flags=re.MULTILINE)
    header = {"Summary": summary} | dict(zip(parts[::2], parts[1::2], strict=True))
    assert header.keys() == {"Summary", *_SECTIONS}, f"{module}: sections {sorted(header)}"
    return {title: " ".join(body.split()) for title, body in header.items()}


def _severity(text: str) -> Severity:
    found: dict[str, Severity] = {name: name for name in get_args(Severity)}
    return found[text]
