"""The harness's records: what is run (a cell), what was found, and the verdict on it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from cuvil_regress.errors import EXIT_CLEAN, EXIT_ENVIRONMENT, EXIT_FINDINGS, EXIT_INTERRUPTED

SCHEMA_VERSION = 1
"""Version of every machine-readable file that the harness writes (see `schemas/`)."""

Severity = Literal["error", "warning", "note"]

Verdict = Literal[
    "environment",
    "capture-failure",
    "unsupported",
    "compile-failure",
    "abi-conflict",
    "timeout",
    "emulator-failure",
    "wrong-isa",
    "crash",
    "run-failure",
    "golden-damaged",
    "dtype",
    "shape",
    "nan-policy",
    "mismatch",
    "bits-differ",
    "missing",
    "skipped",
    "within-tolerance",
    "identical",
]
"""What a cell ended with, most telling first: of several faults the earliest in this list is the verdict."""

VERDICTS: tuple[Verdict, ...] = get_args(Verdict)

CLEAN_VERDICTS: frozenset[Verdict] = frozenset({"identical", "within-tolerance"})
"""Verdicts that leave the exit code at 0; `environment` alone gives 3, every other one gives 1."""


@dataclass(frozen=True)
class Machine:
    """What running for a family of targets takes, apart from the compiler."""

    target: str
    """The family's name, which is that of its portable target, too."""
    architecture: str
    """As `uname -m` prints it."""
    elf_machine: int
    emulator: str
    packages: str
    """Debian packages that bring the emulator and the target's C library."""


MACHINES: dict[str, Machine] = {
    machine.target: machine
    for machine in (
        Machine("x86_64-linux", "x86_64", 62, "qemu-x86_64", "qemu-user libc6-amd64-cross"),
        Machine("aarch64-linux", "aarch64", 183, "qemu-aarch64", "qemu-user libc6-arm64-cross"),
        Machine("riscv64-linux", "riscv64", 243, "qemu-riscv64", "qemu-user libc6-riscv64-cross"),
    )
}
"""The families of targets that the harness knows, by name."""


def family_of(target: str) -> str:
    """The family of a target: `riscv64-linux` for `riscv64-linux-v@vlen=256`, and for itself.

    A family's targets differ in their instruction sets alone, and those are the compiler's to know. A name
    of no family is given back as it is.
    """
    name = target.partition("@")[0]
    return next((family for family in MACHINES if f"{name}-".startswith(f"{family}-")), name)


@dataclass(frozen=True)
class Cell:
    """One point of the matrix."""

    torch: str
    model: str
    target: str
    """The target to compile for; behind an `@` the machine to run on, where the target has several."""

    @property
    def built_for(self) -> str:
        """The target alone: its cells share one library, whatever machines they run on."""
        return self.target.partition("@")[0]

    @property
    def machine(self) -> str:
        """The machine's name as the compiler tells it; empty for the target's own."""
        return self.target.partition("@")[2]

    @property
    def id(self) -> str:
        """`torch-<version>/<model>/<target>`, also the cell's path inside a run's folders."""
        return f"{self.group}/{self.target}"

    @property
    def group(self) -> str:
        """`torch-<version>/<model>`: the cells that share one capture and must agree bit for bit."""
        return f"torch-{self.torch}/{self.model}"


@dataclass(frozen=True)
class Finding:
    """One fault that a check or a comparison found.

    `check` is the kebab-case id of the check, `subject` what it is about (a symbol, an output),
    `file` the library or golden it was found in.
    """

    check: str
    severity: Severity
    message: str
    subject: str = ""
    file: str = ""
    hint: str = ""


@dataclass(frozen=True)
class StepResult:
    """One step of a cell: capture, compile, abi, run or compare."""

    name: str
    ok: bool
    elapsed_ns: int
    message: str = ""
    log: str = ""
    """Path of the step's log, relative to the run's folder."""


@dataclass(frozen=True)
class OutputResult:
    """One output of one case, against its golden and against the first target's bits."""

    case: str
    output: str
    verdict: Verdict
    sha256: str
    """Of the bits with every NaN masked to one pattern."""
    elements: int
    max_ulp: float | None
    """Largest distance to the golden; None where the dtype or the shape differs."""
    share_within: float
    """Share of the elements within the golden policy, 0 to 1."""
    share_of_allowed: float | None
    """The worst error as a share of what the golden policy allows; 1 is all of it.

    None where no number tells it: dtype or shape differ, a NaN or an Inf is misplaced, an integer is wrong.
    """
    reference: str = ""
    """The target whose bits these were compared with; empty when there was none."""
    differing_elements: int | None = None
    """Elements whose bits differ from the reference's; None without a reference."""
    ulp_histogram: tuple[int, ...] | None = None
    """Finite elements by ULP distance to the golden: 0, 1, 2 to 3, 4 to 7 and so on; None like `max_ulp`."""

    @property
    def id(self) -> str:
        return f"{self.case}/{self.output}"


@dataclass(frozen=True)
class Result:
    """A finished cell."""

    cell: Cell
    verdict: Verdict
    message: str = ""
    steps: tuple[StepResult, ...] = ()
    findings: tuple[Finding, ...] = ()
    outputs: tuple[OutputResult, ...] = ()
    abi_conflicts: int | None = None
    """Exported names that clash; None when the library was not scanned."""
    abi_missing: int | None = None
    """Symbols that nothing provides; None when the library was not scanned."""
    inputs: Mapping[str, str] = field(default_factory=dict)
    """Digests of all that the cell was made from, by part."""

    @property
    def clean(self) -> bool:
        return self.verdict in CLEAN_VERDICTS

    @property
    def elapsed_ns(self) -> int:
        """Time of all the cell's steps; the shared capture counts in each of its cells."""
        return sum(step.elapsed_ns for step in self.steps)

    @property
    def max_ulp(self) -> float | None:
        """The largest distance to a golden over all outputs."""
        return max((o.max_ulp for o in self.outputs if o.max_ulp is not None), default=None)

    @property
    def share_of_allowed(self) -> float | None:
        """The worst share over all outputs; None when it is unknown for any of them, or there is none."""
        shares = [output.share_of_allowed for output in self.outputs]
        known = [share for share in shares if share is not None]
        return max(known) if known and len(known) == len(shares) else None

    @property
    def bit_identical(self) -> bool | None:
        """Whether every output has the first target's bits; None when there was nothing to compare with."""
        counts = [output.differing_elements for output in self.outputs]
        if not counts or None in counts:
            return None
        return not any(counts)


@dataclass(frozen=True)
class Report:
    """A whole run."""

    matrix: str
    """The matrix file's name, without folders."""
    compiler: str
    policies: Mapping[str, str]
    planned: tuple[Cell, ...]
    results: tuple[Result, ...]
    elapsed_ns: int

    @property
    def complete(self) -> bool:
        """Whether every planned cell was finished; a run that was interrupted is not."""
        return len(self.results) == len(self.planned)

    @property
    def totals(self) -> dict[Verdict, int]:
        """Number of cells by verdict, most telling first."""
        found = [result.verdict for result in self.results]
        return {verdict: found.count(verdict) for verdict in VERDICTS if verdict in found}

    @property
    def exit_code(self) -> int:
        return exit_code(self.results) if self.complete else EXIT_INTERRUPTED


def worst_verdict(verdicts: Iterable[Verdict]) -> Verdict | None:
    """The verdict that stands first in the order of `Verdict`; None for none."""
    return min(verdicts, key=VERDICTS.index, default=None)


def exit_code(results: Iterable[Result]) -> int:
    """0 when all cells are clean, 3 when only the environment is at fault, else 1.

    No result at all is a finding, too: what compared nothing proves nothing.
    """
    verdicts = {result.verdict for result in results}
    if not verdicts:
        return EXIT_FINDINGS
    faults = verdicts - CLEAN_VERDICTS
    if not faults:
        return EXIT_CLEAN
    return EXIT_ENVIRONMENT if faults == {"environment"} else EXIT_FINDINGS
