"""The records of a comparison of two runs, A and B."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from cuvil_regress.errors import EXIT_CLEAN, EXIT_ENVIRONMENT, EXIT_FINDINGS
from cuvil_regress.model import Cell

PairVerdict = Literal[
    "incomparable", "mismatch", "abi-changed", "regressed", "environment", "within-tolerance", "identical"
]
"""What two cells are to each other, most telling first."""

PAIR_VERDICTS: tuple[PairVerdict, ...] = get_args(PairVerdict)
CLEAN_PAIR_VERDICTS: frozenset[PairVerdict] = frozenset({"within-tolerance", "identical"})

LibraryKind = Literal["model", "runtime"]
SideKind = Literal["run", "wheel", "commit"]


@dataclass(frozen=True)
class SideId:
    """One side of a comparison: what the user called it, and what exactly it is.

    `identity` is the hash of a commit, the SHA-256 of a wheel, and empty for a run's folder; `compiler` is
    the version that the compiler told.
    """

    name: str
    kind: SideKind
    identity: str
    compiler: str

    def __str__(self) -> str:
        exactly = f"{self.kind} {self.identity[:12]}, " if self.identity else ""
        return f"{self.name} ({exactly}compiler {self.compiler or 'unknown'})"


@dataclass(frozen=True)
class OutputPair:
    """One output of one case in both runs. Shares are of the elements within the policy, 0 to 1: the
    comparison's own for B to A, each run's golden policy for the golden.

    The shares against the golden are None where a run judged that output by none.
    """

    case: str
    output: str
    verdict: PairVerdict
    elements: int
    differing_elements: int
    share_b_to_a: float
    share_a_to_golden: float | None
    share_b_to_golden: float | None
    max_ulp: int | None
    message: str = ""

    @property
    def id(self) -> str:
        return f"{self.case}/{self.output}"


@dataclass(frozen=True)
class SymbolChange:
    """The names that a library exports in one run only."""

    library: LibraryKind
    added: tuple[str, ...]
    removed: tuple[str, ...]


@dataclass(frozen=True)
class MetadataChange:
    """An entry of the library's metadata that differs; None where a side has no such entry."""

    key: str
    a: str | None
    b: str | None


@dataclass(frozen=True)
class Build:
    """What building one library came to; None where it was not built."""

    size_bytes: int | None = None
    compile_ns: int | None = None


@dataclass(frozen=True)
class CellPair:
    """One model on one target in both runs; a cell is None where a run lacks it."""

    model: str
    target: str
    cell_a: Cell | None
    cell_b: Cell | None
    verdict: PairVerdict
    findings: tuple[str, ...] = ()
    outputs: tuple[OutputPair, ...] = ()
    symbols: tuple[SymbolChange, ...] = ()
    metadata: tuple[MetadataChange, ...] = ()
    build_a: Build = Build()
    build_b: Build = Build()

    @property
    def bit_identical(self) -> bool | None:
        """Whether all outputs have the same bits; None when there is none to compare."""
        return not any(output.differing_elements for output in self.outputs) if self.outputs else None

    @property
    def share_b_to_a(self) -> float | None:
        return _share(self.outputs, [output.share_b_to_a for output in self.outputs])

    @property
    def share_a_to_golden(self) -> float | None:
        return _share(self.outputs, [output.share_a_to_golden for output in self.outputs])

    @property
    def share_b_to_golden(self) -> float | None:
        return _share(self.outputs, [output.share_b_to_golden for output in self.outputs])


@dataclass(frozen=True)
class RunComparison:
    """Two runs against each other."""

    side_a: SideId
    side_b: SideId
    policy: str
    pairs: tuple[CellPair, ...]

    @property
    def verdict(self) -> PairVerdict:
        """The one verdict: that of all pairs which stands first in the order of `PairVerdict`."""
        return min((pair.verdict for pair in self.pairs), key=PAIR_VERDICTS.index, default="incomparable")

    @property
    def exit_code(self) -> int:
        """1 when anything is out of tolerance, lost a symbol, or could not be compared; 3 when only this
        machine is at fault."""
        if self.verdict in CLEAN_PAIR_VERDICTS:
            return EXIT_CLEAN
        return EXIT_ENVIRONMENT if self.verdict == "environment" else EXIT_FINDINGS


def _share(outputs: tuple[OutputPair, ...], shares: list[float | None] | list[float]) -> float | None:
    """The share over all elements of all outputs."""
    known = [
        (share, output.elements) for share, output in zip(shares, outputs, strict=True) if share is not None
    ]
    total = sum(elements for _, elements in known)
    return sum(share * elements for share, elements in known) / total if total else None
