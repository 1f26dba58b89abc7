"""Finds the stage of the compiler that changes what a model computes.

    import, each pass     the graph, by its operators' NumPy definitions
    lower                 the kernels, by the loop interpreter
    native                the machine code

All run on the same inputs. Up to `lower`, a stage is compared with the reference and may be off by the
tolerance, for NumPy rounds elementary functions in its own way; machine code must give the bits of the
interpreter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from cuvil.artifact import Artifact, Signature
from cuvil.codegen.machine import compile_object
from cuvil.codegen.module import describe, emit_module
from cuvil.differences import Difference, difference
from cuvil.driver import PASSES, Pass, run_passes
from cuvil.errors import ToolchainError, UsageError
from cuvil.interp import evaluate_graph, evaluate_program, view_of
from cuvil.ir.graph import Graph, Value
from cuvil.ir.types import Array
from cuvil.loops.verify import verify_kernel
from cuvil.lower import lower_graph
from cuvil.native import find_obstacle
from cuvil.plan import Program, plan_memory
from cuvil.session import load_artifact
from cuvil.targets.target import Target

IMPORT, LOWER, NATIVE = "0.import", "lower", "native"
_GONE_SHOWN = 3
KEPT_APART = (
    "it goes away when every intermediate result keeps memory of its own: look at the plan of the arena"
)


@dataclass(frozen=True)
class Step:
    """A stage that ran, and how far each of its outputs is from the reference's."""

    stage: str
    differences: Mapping[str, Difference]


@dataclass(frozen=True)
class Culprit:
    """The first stage that changes the result. `node` is the first one whose result is another, where the
    stages before and after have it under one name."""

    stage: str
    what: str
    node: str = ""


@dataclass(frozen=True)
class Bisection:
    """What was found; without a culprit no stage changes the result."""

    steps: tuple[Step, ...]
    culprit: Culprit | None


@dataclass(frozen=True, eq=False)
class _Run:
    """What a stage computed: its outputs, every tensor by its name in the graph, and who makes each."""

    outputs: Sequence[Array]
    values: Mapping[str, Array]
    makers: Mapping[str, str]


class _StageError(Exception):
    """A stage that fails where the one before it did not."""

    def __init__(self, stage: str, error: Exception) -> None:
        super().__init__(f"it fails: {type(error).__name__}: {' '.join(str(error).split())}")
        self.stage = stage


def bisect(
    graph: Graph,
    target: Target,
    inputs: Sequence[Array],
    *,
    reference: Sequence[Array] | None = None,
    rtol: float = 0.0,
    passes: Sequence[Pass] = PASSES,
) -> Bisection:
    """Runs a graph in the form that every stage gives it, up to the first that changes its outputs.

    Args:
        graph: The graph as imported.
        target: What it is compiled for; machine code runs only where it is this machine.
        inputs: Arrays in the order of the graph's inputs.
        reference: The outputs as they should be; by default those of the graph as imported.
        rtol: The difference that is allowed, as a share of an output's largest element. 0 asks for the
            same bits.
        passes: The passes to run, in order.

    Raises:
        UsageError: the graph can't be run on these inputs.
        ToolchainError: this machine lacks what the target requires.
    """
    search = _Search(graph.output_names, rtol, reference)
    try:
        _run_stages(search, graph, target, inputs, passes)
    except _StageError as error:
        if error.stage == IMPORT:
            hint = "give others by --input NAME=FILE.npy"
            raise UsageError(f"inputs: the model can't run on them: {error}", hint=hint) from error
        search.culprit = Culprit(error.stage, str(error))
    return Bisection(tuple(search.steps), search.culprit)


def _run_stages(
    search: _Search, graph: Graph, target: Target, inputs: Sequence[Array], passes: Sequence[Pass]
) -> None:
    form = graph
    for stage, form in _forms(graph, passes):
        with _failures_of(stage):
            run = _evaluate(form, inputs)
        if search.finds(stage, run):
            return
    with _failures_of(LOWER):
        program = _lowered(form, target)
        memory = evaluate_program(program, inputs)
        run = _run_of(program, form, memory)
    if search.finds(LOWER, run) or find_obstacle(target) is not None:
        return
    with _failures_of(NATIVE):
        outputs = _run_native(program, target, inputs)
    if search.finds_native(outputs):
        search.blame(_first_wrong_kernel(program, memory, target, inputs))


def _forms(graph: Graph, passes: Sequence[Pass]) -> Iterator[tuple[str, Graph]]:
    """The graph as imported and after each pass, under the names that a dump has, too."""
    names = [IMPORT, *(f"{number}.{run.__name__}" for number, run in enumerate(passes, 1))]
    forms = run_passes(graph, passes)
    for name in names:
        with _failures_of(name):
            _, graph = next(forms)
        yield name, graph


@contextmanager
def _failures_of(stage: str) -> Iterator[None]:
    """A stage under suspicion may fail in any way, which is what was searched for."""
    try:
        yield
    except ToolchainError:  # the machine lacks something, which is no stage's fault
        raise
    except Exception as error:  # see above: any failure is a find
        raise _StageError(stage, error) from error


class _Search:
    """Compares stage by stage, and remembers the first that differs."""

    def __init__(self, names: Sequence[str], rtol: float, reference: Sequence[Array] | None) -> None:
        self.steps: list[Step] = []
        self.culprit: Culprit | None = None
        self._names = names
        self._rtol = rtol
        self._reference = reference
        self._latest: _Run | None = None

    def finds(self, stage: str, run: _Run) -> bool:
        """Compare a stage with the reference; says whether it changes the result."""
        reference = run.outputs if self._reference is None else self._reference
        self._reference = reference
        before, self._latest = self._latest, run
        found = self._compare(stage, run.outputs, reference, self._rtol)
        if found and before is not None:
            self.blame(_first_other_value(before, run, self._rtol))
        return found

    def finds_native(self, outputs: Sequence[Array]) -> bool:
        """Compare machine code with the interpreter, bit for bit."""
        assert self._latest is not None
        return self._compare(NATIVE, outputs, self._latest.outputs, 0.0)

    def blame(self, node: str) -> None:
        assert self.culprit is not None
        self.culprit = replace(self.culprit, node=node)

    def _compare(self, stage: str, outputs: Sequence[Array], reference: Sequence[Array], rtol: float) -> bool:
        pairs = zip(self._names, outputs, reference, strict=True)
        found = {name: difference(actual, wanted) for name, actual, wanted in pairs}
        self.steps.append(Step(stage, found))
        wrong = [name for name in found if not found[name].within(rtol)]
        if wrong:
            self.culprit = Culprit(stage, f"output {wrong[0]!r} {found[wrong[0]].worst}")
        return bool(wrong)


def _evaluate(graph: Graph, inputs: Sequence[Array]) -> _Run:
    values = evaluate_graph(graph, inputs)
    made = [result for node in graph.nodes for result in node.results]
    return _Run(
        [values[output] for output in graph.outputs],
        {value.name: values[value] for value in made},
        _makers(graph),
    )


def _run_of(program: Program, graph: Graph, memory: Mapping[Value, Array]) -> _Run:
    """What a program computed, by the names of the graph that it was lowered from."""
    values = {
        result.name: view_of(program, memory, result)
        for node in graph.nodes
        for result in node.results
        if program.root(result) in memory
    }
    return _Run([view_of(program, memory, output) for output in program.outputs], values, _makers(graph))


def _makers(graph: Graph) -> dict[str, str]:
    return {result.name: f"{node.op.name} at {node.loc}" for node in graph.nodes for result in node.results}


def _first_other_value(before: _Run, after: _Run, rtol: float) -> str:
    """The first tensor that both stages have under one name and shape, with other contents; where there is
    none, those that only the stage before has."""
    for name, array in after.values.items():
        former = before.values.get(name)
        if former is None or (former.dtype, former.shape) != (array.dtype, array.shape):
            continue
        found = difference(array, former)
        if not found.within(rtol):
            return f"%{name} = {after.makers[name]}: {found.worst}"
    gone = [f"%{name} = {before.makers[name]}" for name in before.values if name not in after.values]
    return f"what it removes: {'; '.join(gone[-_GONE_SHOWN:])}" if gone else ""


def _lowered(graph: Graph, target: Target) -> Program:
    program = lower_graph(graph, target)
    for call in program.calls:
        verify_kernel(call.kernel)
    return program


def _run_native(program: Program, target: Target, inputs: Sequence[Array]) -> list[Array]:
    plan = plan_memory(program)
    named_inputs = tuple((value.name, value.type) for value in program.inputs)
    outputs = tuple((f"{number}", value.type) for number, value in enumerate(program.outputs))
    signature = Signature(named_inputs, outputs)
    description = describe(program.name, signature, plan, target)
    code = compile_object(emit_module(program, plan, signature, description, target), target)
    artifact = Artifact(target, signature, description, code, plan.weights, plan.weights_bytes, {})
    computed = load_artifact(artifact)(*inputs)
    return list(computed) if isinstance(computed, tuple) else [computed]


def _first_wrong_kernel(
    program: Program, memory: Mapping[Value, Array], target: Target, inputs: Sequence[Array]
) -> str:
    """The first kernel whose machine code gives other bits than its loops.

    To see inside, the program is compiled once more with everything that a kernel stores as an output.
    """
    stored = {
        program.root(operand): call
        for call in program.calls
        for param, operand in zip(call.kernel.params, call.operands, strict=True)
        if param.role == "output"
    }
    try:
        computed = _run_native(replace(program, outputs=tuple(stored)), target, inputs)
    except Exception:  # the fault that is being searched for may break this program as well
        return ""
    for (value, call), array in zip(stored.items(), computed, strict=True):
        found = difference(array, memory[value].reshape(array.shape))
        if found.differing:
            return f"kernel {call.kernel.name!r} at {call.loc}: {found.worst}"
    return KEPT_APART


def render(found: Bisection, rtol: float) -> str:
    """The stages as a table, and the culprit."""
    lines = [f"{'stage':<18} {'differ':>16}  largest difference"]
    lines += [_render_step(step) for step in found.steps]
    if found.culprit is None and found.steps[-1].stage == LOWER:
        lines.append(f"{NATIVE:<18} {'not run':>16}  the target is another machine")
    if found.culprit is None:
        allowed = f"by more than {rtol:g} of an output's largest element" if rtol else "by a bit"
        return "\n".join([*lines, "", f"no stage changes the result {allowed}"])
    lines += ["", f"{found.culprit.stage} changes the result: {found.culprit.what}"]
    if found.culprit.node:
        lines.append(f"  first at {found.culprit.node}")
    return "\n".join(lines)


def _render_step(step: Step) -> str:
    elements = sum(found.elements for found in step.differences.values())
    differing = sum(found.differing for found in step.differences.values())
    worst = max((found.share for found in step.differences.values()), default=0.0)
    return f"{step.stage:<18} {f'{differing} of {elements}':>16}  {worst:.2g}"
