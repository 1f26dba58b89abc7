"""Tolerance policies: TOML files that say when a value passes against its golden.

A finite element passes when `|actual - golden| <= rtol * |golden| + atol + atol_of_largest * largest`, where
`largest` is the greatest finite magnitude in the golden tensor. Infinities must be equal, and NaN must stand
in the same places; a policy may also forbid NaN. Integers and booleans are always compared exactly.
"""

from __future__ import annotations

import difflib
import math
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any, Literal, cast, get_args

from cuvil_regress.errors import UsageError

SCHEMA_VERSION = 1
FOLDER = Path(__file__).parent / "policies"

NanRule = Literal["same-places", "forbidden"]


@dataclass(frozen=True)
class Measurement:
    """How much of a policy's allowance PyTorch's own float32 eager mode used for one output, at worst."""

    model: str
    case: str
    output: str
    share_of_allowed: float


@dataclass(frozen=True)
class Calibration:
    """Where a policy's numbers come from; `headroom` times the worst measured share stays within 1."""

    torch: str
    headroom: float
    measured: tuple[Measurement, ...]


@dataclass(frozen=True)
class Policy:
    """A tolerance policy; its name is its file's name."""

    name: str
    summary: str
    rtol: float
    atol: float = 0.0
    atol_of_largest: float = 0.0
    nan: NanRule = "same-places"
    allow_empty: bool = False
    """Whether a tensor without elements may pass; else comparing nothing is a mismatch."""
    calibration: Calibration | None = None


def names() -> tuple[str, ...]:
    """The names of the policies that come with the harness."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.toml")))


def load(name: str) -> Policy:
    """Loads a policy by its name, or by the path of a file that ends in `.toml`.

    Raises:
        UsageError: there is no such policy, or its file is wrong.
    """
    if name.endswith(".toml"):
        return read(Path(name))
    if name not in names():
        raise _fault("policy", "unknown name", _one_of(names()), repr(name), _nearest(name, names()))
    return read(FOLDER / f"{name}.toml")


def read(path: Path) -> Policy:
    """Reads one policy file; nothing in it is ignored or guessed.

    Raises:
        UsageError: the file is missing, is no TOML, or has an unknown key or a bad value.
    """
    try:
        document = tomllib.loads(path.read_bytes().decode("utf-8"))
    except FileNotFoundError:
        raise _fault(str(path), "no such file", "a policy", "nothing") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise _fault(str(path), "can't be read", "a TOML policy", str(error)) from None
    version = document.pop("schema_version", None)
    if version != SCHEMA_VERSION or isinstance(version, bool):
        raise _fault(str(path), "unknown schema_version", SCHEMA_VERSION, repr(version))
    return parse(document, name=path.stem, where=str(path))


def parse(document: Mapping[str, object], *, name: str, where: str) -> Policy:
    """Makes a policy of a parsed document without its `schema_version`."""
    table = _Table(where, document, Policy, implied=("name",))
    calibration = table.optional_table("calibration")
    policy = Policy(
        name=name,
        summary=table.text("summary"),
        rtol=table.number("rtol"),
        atol=table.number("atol", 0.0),
        atol_of_largest=table.number("atol_of_largest", 0.0),
        nan=cast(NanRule, table.choice("nan", get_args(NanRule), "same-places")),
        allow_empty=table.flag("allow_empty", False),
        calibration=_parse_calibration(where, calibration),
    )
    if policy.rtol >= 1:
        raise _fault(where, "'rtol' is out of range", "a number below 1", repr(policy.rtol))
    return policy


def _parse_calibration(where: str, document: Mapping[str, object] | None) -> Calibration | None:
    if document is None:
        return None
    where = f"{where} [calibration]"
    table = _Table(where, document, Calibration)
    rows = table.get("measured")
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise _fault(where, "'measured' has a wrong type", "an array of tables", repr(rows))
    measured = tuple(_parse_measurement(f"{where} measured[{index}]", row) for index, row in enumerate(rows))
    return Calibration(table.text("torch"), table.number("headroom"), measured)


def _parse_measurement(where: str, document: Mapping[str, object]) -> Measurement:
    table = _Table(where, document, Measurement)
    return Measurement(
        table.text("model"), table.text("case"), table.text("output"), table.number("share_of_allowed")
    )


class _Table:
    """One table of a document, whose keys must be fields of the record it becomes."""

    def __init__(
        self, where: str, document: Mapping[str, object], record: Any, implied: tuple[str, ...] = ()
    ) -> None:
        self.where = where
        self.document = document
        keys = (field for field in fields(record) if field.name not in implied)
        known = {key.name: key.default is MISSING for key in keys}
        for key in document:
            if key not in known:
                near = _nearest(key, tuple(known))
                raise _fault(where, "unknown key", _one_of(tuple(known)), repr(key), near)
        for key, required in known.items():
            if required and key not in document:
                raise _fault(where, "missing key", repr(key), ", ".join(document) or "nothing")

    def get(self, key: str) -> object:
        return self.document[key]

    def number(self, key: str, default: float = 0.0) -> float:
        value = self.document.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise _fault(self.where, f"{key!r} has a wrong type", "a number", repr(value))
        if not math.isfinite(value) or value < 0:
            raise _fault(self.where, f"{key!r} is out of range", "a finite number >= 0", repr(value))
        return float(value)

    def text(self, key: str) -> str:
        value = self.document[key]
        if not isinstance(value, str) or not value.strip():
            raise _fault(self.where, f"{key!r} has a wrong type", "a text", repr(value))
        return value

    def flag(self, key: str, default: bool) -> bool:
        value = self.document.get(key, default)
        if not isinstance(value, bool):
            raise _fault(self.where, f"{key!r} has a wrong type", "true or false", repr(value))
        return value

    def choice(self, key: str, allowed: tuple[str, ...], default: str) -> str:
        value = self.document.get(key, default)
        if value not in allowed:
            raise _fault(self.where, f"{key!r} is unknown", _one_of(allowed), repr(value))
        return str(value)

    def optional_table(self, key: str) -> Mapping[str, object] | None:
        value = self.document.get(key)
        if value is not None and not isinstance(value, dict):
            raise _fault(self.where, f"{key!r} has a wrong type", "a table", repr(value))
        return value


def _fault(where: str, what: str, expected: object, got: str, hint: str | None = None) -> UsageError:
    return UsageError(f"{where}: {what}; expected {expected}, got {got}", hint=hint)


def _one_of(known: tuple[str, ...]) -> str:
    return f"one of {', '.join(known)}"


def _nearest(word: str, known: tuple[str, ...]) -> str | None:
    near = difflib.get_close_matches(word, known, n=1)
    return f"did you mean {near[0]!r}?" if near else None
