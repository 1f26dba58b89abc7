"""Watching a compilation, and all environment variables that Cuvil reads."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from cuvil.errors import UsageError

VARIABLES: Mapping[str, str] = {
    "CUVIL_DEBUG": "what a compilation prints to stderr: a number from 0 (nothing) to 6",
    "CUVIL_DUMP": "a folder in which every compilation leaves the text of its stages",
    "CUVIL_LINKER": "the linker's command; else one is searched for",
}
"""Every variable and what it does. Eight is the limit."""

LEVELS: Mapping[int, str] = {
    1: "the time of every stage",
    2: "what every pass does to the number of nodes",
    3: "the graph as imported, and after every pass",
    4: "the kernels' loops",
    5: "LLVM IR",
    6: "the target's assembly",
}
"""What `CUVIL_DEBUG` prints; each level has those below it, too."""

TIMES, EFFECTS, GRAPHS, LOOPS, LLVM, ASSEMBLY = LEVELS

_LONGEST_NAME = 80


class Trace:
    """Follows one compilation: prints what its level asks for, and collects the texts for a dump."""

    def __init__(self, level: int = 0, dump: Path | None = None) -> None:
        self._level = level
        self._dump = dump
        self._lines: list[str] = []
        self._texts: dict[str, str] = {}
        self._name = "model"
        self._last = ""

    def names(self, model: str, sha256: str, target: str) -> None:
        """Say whose compilation this is; the dump's folder is named after it."""
        readable = re.sub(r"[^\w.-]", "_", model)[:_LONGEST_NAME].lstrip(".") or "model"
        self._name = f"{readable}-{sha256[:8]}-{target}"

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time a stage."""
        start = time.perf_counter()
        yield
        self.note(TIMES, f"{name}: {(time.perf_counter() - start) * 1000:.1f} ms")

    def note(self, level: int, line: str) -> None:
        """Print a line from `level` on; a dump has it in any case."""
        self._lines.append(line)
        if self._level >= level:
            print(f"cuvil: {self._name}: {line}", file=sys.stderr)

    def text(self, level: int, file: str, make: Callable[[], str]) -> None:
        """Print a stage's text from `level` on, and dump it as `file`; it is made only where it is wanted."""
        if self._level < level and self._dump is None:
            return
        text = make().rstrip("\n") + "\n"
        self._texts[file] = text
        if self._level >= level:
            shown = "as before\n" if text == self._last else f"\n{text}"
            print(f"cuvil: {self._name}: {file}: {shown}", end="", file=sys.stderr)
        self._last = text

    def publish(self, error: Exception | None = None) -> None:
        """Put the dump in its place, whole; a former one of the same model and target goes.

        A compilation that failed leaves what it came to, and the error.

        Raises:
            UsageError: the folder can't be written.
        """
        if self._dump is None:
            return
        texts = {**self._texts, "stages.txt": "".join(f"{line}\n" for line in self._lines)}
        if error is not None:
            texts["error.txt"] = f"{type(error).__name__}: {error}\n"
        try:
            _write_folder(self._dump / self._name, texts)
        except OSError as failure:
            reason = (failure.strerror or "unknown reason").lower()
            raise UsageError(f"CUVIL_DUMP: {str(self._dump)!r} can't be written: {reason}") from failure


@contextmanager
def watch() -> Iterator[Trace]:
    """Follow one compilation as the environment asks for.

    Raises:
        UsageError: `CUVIL_DEBUG` is no level, or `CUVIL_DUMP` can't be written.
    """
    dump = os.environ.get("CUVIL_DUMP")
    trace = Trace(_level(os.environ.get("CUVIL_DEBUG") or "0"), Path(dump) if dump else None)
    try:
        yield trace
    except Exception as error:  # raised again below, once the dump is whole
        with contextlib.suppress(UsageError):  # the first error is the one to be told
            trace.publish(error)
        raise
    trace.publish()


def _level(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and int(text) <= ASSEMBLY):
        raise UsageError(f"CUVIL_DEBUG: expected a number from 0 to {ASSEMBLY}, got {text!r}")
    return int(text)


def _write_folder(place: Path, texts: Mapping[str, str]) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent, prefix=f".{place.name}.") as aside:
        fresh = Path(aside, "new")
        fresh.mkdir()
        for name, text in texts.items():
            (fresh / name).write_text(text, encoding="utf-8")
        while True:
            with contextlib.suppress(FileNotFoundError):
                place.rename(Path(aside, "old"))
            try:
                fresh.rename(place)
                return
            except OSError:
                if not place.exists():
                    raise
                shutil.rmtree(Path(aside, "old"), ignore_errors=True)  # another compilation came between
