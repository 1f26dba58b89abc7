"""Compares two finished run folders: two releases of the compiler, or of PyTorch, on the same models."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from cuvil_regress import comparer, tensors
from cuvil_regress import policy as policies
from cuvil_regress.comparer import Array, TensorComparison
from cuvil_regress.errors import HarnessError, UsageError
from cuvil_regress.judge import share_within
from cuvil_regress.library_pairs import built, metadata_changes, symbol_changes
from cuvil_regress.model import Cell, OutputResult, Result
from cuvil_regress.pairs import (
    PAIR_VERDICTS,
    CellPair,
    MetadataChange,
    OutputPair,
    PairVerdict,
    RunComparison,
    SymbolChange,
)
from cuvil_regress.policy import Policy
from cuvil_regress.runs import Run

Key = tuple[str, str, str]


def compare_runs(a: Run, b: Run, policy: Policy) -> RunComparison:
    """Compare every model and target that either run has.

    Runs of one PyTorch release each are matched across releases, others release by release.

    Raises:
        UsageError: the runs have nothing in common, or a folder is damaged.
    """
    across = all(len({cell.torch for cell in run.report.planned}) == 1 for run in (a, b))
    left, right = _by_key(a, across), _by_key(b, across)
    if not left.keys() & right.keys():
        raise UsageError(f"{a.name}, {b.name}: have no model and target in common")
    keys = dict.fromkeys([*left, *right])
    pairs = tuple(_pair(a, b, left.get(key), right.get(key), policy) for key in keys)
    return RunComparison(a.side, b.side, policy.name, pairs)


def _by_key(run: Run, across: bool) -> dict[Key, Result]:
    return {
        ("" if across else result.cell.torch, result.cell.model, result.cell.target): result
        for result in run.report.results
    }


def _pair(a: Run, b: Run, left: Result | None, right: Result | None, policy: Policy) -> CellPair:
    present = left or right
    assert present is not None
    cell = present.cell
    if left is None or right is None:
        absent = a if left is None else b
        cell_a, cell_b = (result.cell if result else None for result in (left, right))
        message = f"is not in {absent.name}"
        return CellPair(cell.model, cell.target, cell_a, cell_b, "incomparable", (message,))
    outputs = tuple(_output_pairs(a, b, left, right, policy))
    symbols = tuple(symbol_changes(a, b, left, right))
    metadata = tuple(metadata_changes(a, b, left, right))
    findings = (*_findings(a, b, left, right, outputs), *_changes(symbols, metadata))
    return CellPair(
        cell.model,
        cell.target,
        left.cell,
        right.cell,
        _verdict(left, right, outputs, symbols),
        findings,
        outputs,
        symbols,
        metadata,
        built(a, left),
        built(b, right),
    )


def _verdict(
    left: Result, right: Result, outputs: tuple[OutputPair, ...], symbols: tuple[SymbolChange, ...]
) -> PairVerdict:
    if "environment" in (left.verdict, right.verdict):
        return "environment"
    verdicts: list[PairVerdict] = [output.verdict for output in outputs]
    if not outputs or _ids(left) != _ids(right):
        verdicts.append("incomparable")
    if any(change.removed for change in symbols):
        verdicts.append("abi-changed")
    if left.clean and not right.clean:
        verdicts.append("regressed")
    return min(verdicts, key=PAIR_VERDICTS.index)


def _ids(result: Result) -> set[str]:
    return {output.id for output in result.outputs}


def _findings(a: Run, b: Run, left: Result, right: Result, outputs: tuple[OutputPair, ...]) -> Iterator[str]:
    """What a reader must know, each in a line."""
    for run, result, other in ((a, left, right), (b, right, left)):
        for lacking in sorted(_ids(other) - _ids(result)):
            yield f"{lacking}: {run.name} has no such output ({result.verdict})"
        if not result.outputs and not other.outputs:
            yield f"{run.name} has no outputs ({result.verdict}: {result.message})"
    if left.clean and not right.clean and outputs:
        yield f"{b.name}: its own run is not clean any more: {right.verdict}: {right.message}"
    for output in outputs:
        if output.message:
            yield f"{output.id}: {output.message}"
    if left.cell.model == right.cell.model and _goldens_differ(a, b, left.cell, right.cell):
        yield "the two runs were judged by different goldens"


def _changes(symbols: tuple[SymbolChange, ...], metadata: tuple[MetadataChange, ...]) -> Iterator[str]:
    """What changed about the libraries, each in a line."""
    for change in symbols:
        for word, names in (("removed", change.removed), ("added", change.added)):
            if names:
                yield f"{change.library} library: {word} {', '.join(names)}"
    for entry in metadata:
        yield f"metadata: {entry.key}: {entry.a or 'absent'} -> {entry.b or 'absent'}"


def _output_pairs(a: Run, b: Run, left: Result, right: Result, policy: Policy) -> Iterator[OutputPair]:
    others = {output.id: output for output in right.outputs}
    for output in left.outputs:
        if output.id in others:
            yield _output_pair(a, b, (left.cell, output), (right.cell, others[output.id]), policy)


def _output_pair(
    a: Run, b: Run, left: tuple[Cell, OutputResult], right: tuple[Cell, OutputResult], policy: Policy
) -> OutputPair:
    ours, theirs = _read_output(a, *left), _read_output(b, *right)
    differing = comparer.bit_identical(ours, theirs)[1]
    comparison = comparer.compare_tensor(theirs, ours, policy)
    return OutputPair(
        left[1].case,
        left[1].output,
        _output_verdict(comparison),
        theirs.size,
        differing,
        share_within(comparison),
        _share_to_golden(a, *left, ours),
        _share_to_golden(b, *right, theirs),
        comparison.max_ulp,
        _describe(comparison, differing),
    )


def _output_verdict(comparison: TensorComparison) -> PairVerdict:
    if comparison.verdict == "identical" or comparison.verdict == "within-tolerance":
        return comparison.verdict
    return "mismatch"


def _describe(comparison: TensorComparison, differing: int) -> str:
    if not comparison.passed:
        return comparison.message
    return f"{differing} of {comparison.compared} elements differ in bits" if differing else ""


def _read_output(run: Run, cell: Cell, output: OutputResult) -> Array:
    """The stored output, whose bits must be those that the run recorded."""
    folder = run.workspace.outputs(cell) / output.case
    array = _read_tensor(run, folder, output.output)
    if comparer.masked_bits_sha256(array) != output.sha256:
        raise run.damage(folder, f"output {output.output!r} is not the one that the run recorded")
    return array


def _read_tensor(run: Run, folder: Path, name: str) -> Array:
    try:
        found = tensors.read(folder)
    except HarnessError as error:
        raise run.damage(folder, str(error)) from error
    if name not in found:
        raise run.damage(folder, f"lacks the tensor {name!r}")
    return found[name]


def _share_to_golden(run: Run, cell: Cell, output: OutputResult, actual: Array) -> float | None:
    """The share within the policy that the run itself was judged by."""
    golden = _read_tensor(run, run.workspace.golden(cell) / output.case, output.output)
    if golden.dtype.kind != actual.dtype.kind or golden.dtype.itemsize < actual.dtype.itemsize:
        return None
    judged_by = policies.load(run.report.policies["golden"])
    return share_within(comparer.compare_tensor(actual, golden, judged_by, model_dtype=actual.dtype.name))


def _goldens_differ(a: Run, b: Run, left: Cell, right: Cell) -> bool:
    ours, theirs = a.workspace.golden(left), b.workspace.golden(right)
    files = {path.relative_to(root) for root in (ours, theirs) for path in root.rglob("*") if path.is_file()}
    return any(_content(ours / file) != _content(theirs / file) for file in files)


def _content(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None
