"""Matrix files (`matrices/*.toml`): which cells there are, and how they are run and judged."""

from __future__ import annotations

import difflib
import itertools
import re
import tomllib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cuvil_regress import selection
from cuvil_regress.errors import UsageError
from cuvil_regress.model import MACHINES, SCHEMA_VERSION, Cell, family_of

AXES = ("torch", "model", "target")
DEFAULT_TIMEOUTS_S: Mapping[str, float] = dict.fromkeys(
    ("capture", "compile", "abi", "run", "compare"), 300.0
)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
_TARGET = re.compile(_NAME.pattern + r"(@[A-Za-z0-9][A-Za-z0-9._+=,-]*)?")


@dataclass(frozen=True)
class Policies:
    """The ids of the tolerance policies in force."""

    golden: str = "oracle-fp32"
    """Each output against its golden."""
    targets: str = "release"
    """Each output against the first target's."""


@dataclass(frozen=True)
class Matrix:
    """A matrix file that has been read and checked."""

    path: Path
    cells: tuple[Cell, ...]
    golden: Path
    policies: Policies
    timeouts_s: Mapping[str, float]

    def select(self, expression: str) -> Matrix:
        """Only the cells whose id an expression is true of, e.g. `lstm and not riscv64`.

        Raises:
            UsageError: the expression can't be read, or no cell is left.
        """
        chosen = selection.select(expression, [cell.id for cell in self.cells])
        if not chosen:
            example = self.cells[0].id
            raise UsageError(
                f"-k {expression!r}: matches no cell; expected words of ids such as {example!r}",
                hint=f"`cuvil-regress matrix list {self.path}` prints them all",
            )
        return replace(self, cells=tuple(cell for cell in self.cells if cell.id in chosen))

    def require_golden(self) -> None:
        """Check that the folder of the goldens is there; it is asked for by a run alone.

        Raises:
            UsageError: it is not.
        """
        if not self.golden.is_dir():
            raise UsageError(
                f"{self.path}: 'golden': no such folder; expected the goldens in {str(self.golden)!r}",
                hint="the key is relative to the matrix file; `golden refresh --golden DIR` makes goldens",
            )


def load(path: Path, *, models: Collection[str], policies: Collection[str]) -> Matrix:
    """Read a matrix file strictly: a key or a name that is not known is an error.

    Args:
        path: The TOML file.
        models: The names of the models that can be captured.
        policies: The ids of the tolerance policies.

    Raises:
        UsageError: the file is missing, is not TOML, or says something that is not understood.
    """
    document = _Document.read(path)
    root = document.table(document.root, "matrix", required=("axes",), optional=_ROOT_KEYS)
    if root.get("schema_version", SCHEMA_VERSION) != SCHEMA_VERSION:
        found = root["schema_version"]
        raise document.error("schema_version", f"expected {SCHEMA_VERSION}, got {found!r}")
    known = {"model": models, "target": MACHINES, "torch": None}
    return Matrix(
        path,
        _cells(document, root, known),
        path.parent / document.text(root, "golden", "../golden"),
        _policies(document, root, policies),
        _timeouts(document, root),
    )


_ROOT_KEYS = ("schema_version", "golden", "policies", "timeouts_s", "include", "exclude")
_Known = Mapping[str, Collection[str] | None]


@dataclass(frozen=True)
class _Document:
    """A TOML file with its text, so that an error can name the line."""

    path: Path
    source: str
    root: Mapping[str, Any]

    @classmethod
    def read(cls, path: Path) -> _Document:
        try:
            source = path.read_text(encoding="utf-8")
            return cls(path, source, tomllib.loads(source))
        except OSError as error:
            reason = error.strerror or "unreadable"
            raise UsageError(f"{path}: can't be read: {reason.lower()}; expected a matrix file") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise UsageError(f"{path}: is not valid TOML: {error}") from error

    def error(self, word: str, message: str, *, hint: str | None = None) -> UsageError:
        """An error about a key or a value; names the line when the word stands on one line only."""
        pattern = re.compile(rf"(?<![\w.-]){re.escape(word)}(?![\w.-])")
        lines = [
            number
            for number, line in enumerate(self.source.splitlines(), 1)
            if pattern.search(line.split(" #")[0]) and not line.lstrip().startswith("#")
        ]
        where = f"{self.path}:{lines[0]}" if len(lines) == 1 else str(self.path)
        return UsageError(f"{where}: {word!r}: {message}", hint=hint)

    def table(
        self, value: object, name: str, *, required: Iterable[str] = (), optional: Iterable[str] = ()
    ) -> Mapping[str, Any]:
        """A table with these keys and no other."""
        if not isinstance(value, dict):
            raise self.error(name, f"expected a table, got {_kind(value)}")
        known = tuple(dict.fromkeys((*required, *optional)))
        for key in value:
            if key not in known:
                message = f"unknown key in {name}; expected one of {_join(known)}"
                raise self.error(key, message, hint=_nearest(key, known))
        for key in required:
            if key not in value:
                raise UsageError(f"{self.path}: {name} lacks the key {key!r}")
        return value

    def text(self, table: Mapping[str, Any], key: str, default: str) -> str:
        value: object = table.get(key, default)
        if not isinstance(value, str) or not value:
            raise self.error(key, f"expected a text, got {_kind(value)}")
        return value

    def name(self, key: str, value: object, known: Collection[str] | None) -> str:
        """A name that is one of the known ones, or well-formed where any goes; a target of a known family."""
        pattern = _TARGET if key == "target" else _NAME
        if not isinstance(value, str) or not pattern.fullmatch(value):
            raise self.error(key, f"expected a name of letters, digits and '._+-', got {value!r}")
        if known is not None and (family_of(value) if key == "target" else value) not in known:
            raise self.error(
                value, f"unknown {key}; expected one of {_join(known)}", hint=_nearest(value, known)
            )
        return value


def _cells(document: _Document, root: Mapping[str, Any], known: _Known) -> tuple[Cell, ...]:
    axes = document.table(root["axes"], "axes", required=AXES)
    values = [_axis(document, axes, axis, known[axis]) for axis in AXES]
    cells = [Cell(*point) for point in itertools.product(*values)]
    for entry in _entries(document, root, "exclude", known, required=()):
        matching = [cell for cell in cells if all(getattr(cell, axis) == entry[axis] for axis in entry)]
        if not matching:
            raise document.error("exclude", f"the entry {entry} matches no cell of the axes")
        cells = [cell for cell in cells if cell not in matching]
    for entry in _entries(document, root, "include", known, required=AXES):
        cell = Cell(**entry)
        if cell in cells:
            raise document.error("include", f"the cell {cell.id!r} is there already")
        cells.append(cell)
    if not cells:
        raise document.error("exclude", "leaves no cell to run")
    return tuple(cells)


def _axis(
    document: _Document, axes: Mapping[str, Any], axis: str, known: Collection[str] | None
) -> list[str]:
    values = axes[axis]
    if not isinstance(values, list) or not values:
        raise document.error(axis, f"expected a list of at least one name, got {_kind(values)}")
    names = [document.name(axis, value, known) for value in values]
    for name in names:
        if names.count(name) > 1:
            raise document.error(axis, f"lists {name!r} more than once")
    return names


def _entries(
    document: _Document, root: Mapping[str, Any], key: str, known: _Known, *, required: Iterable[str]
) -> list[dict[str, str]]:
    """The `[[include]]` or `[[exclude]]` tables."""
    entries = root.get(key, [])
    if not isinstance(entries, list):
        raise document.error(key, f"expected a list of tables, got {_kind(entries)}")
    checked = []
    for entry in entries:
        table = document.table(entry, key, required=required, optional=AXES)
        if not table:
            raise document.error(key, f"expected at least one of {_join(AXES)}, got an empty table")
        checked.append({axis: document.name(axis, value, known[axis]) for axis, value in table.items()})
    return checked


def _policies(document: _Document, root: Mapping[str, Any], known: Collection[str]) -> Policies:
    table = document.table(root.get("policies", {}), "policies", optional=("golden", "targets"))
    names = {key: document.name("policy", value, known) for key, value in table.items()}
    return Policies(**names)


def _timeouts(document: _Document, root: Mapping[str, Any]) -> Mapping[str, float]:
    table = document.table(root.get("timeouts_s", {}), "timeouts_s", optional=DEFAULT_TIMEOUTS_S)
    for key, value in table.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 86_400:
            raise document.error(key, f"expected a number of seconds up to 86400, got {value!r}")
    return {**DEFAULT_TIMEOUTS_S, **{key: float(value) for key, value in table.items()}}


def _join(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))


def _nearest(name: str, known: Collection[str]) -> str | None:
    matches = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"did you mean {matches[0]!r}?" if matches else None


def _kind(value: Any) -> str:
    if isinstance(value, list):
        return "a list" if value else "an empty list"
    return "a table" if isinstance(value, dict) else repr(value)
