"""The pipeline: a model to an artifact."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from cuvil import __version__, debug
from cuvil.artifact import Artifact, Signature
from cuvil.codegen.machine import compile_assembly, compile_object, llvm_version
from cuvil.codegen.module import describe, emit_module
from cuvil.debug import Trace
from cuvil.frontends.onnx import ImportedModel, load_onnx
from cuvil.frontends.onnx_inputs import Bounds, UserShape
from cuvil.ir.dims import is_fixed
from cuvil.ir.graph import Graph
from cuvil.ir.text import format_graph
from cuvil.ir.verify import verify_graph
from cuvil.loops.text import format_kernel
from cuvil.loops.verify import verify_kernel
from cuvil.lower import lower_graph
from cuvil.native import resolve_target
from cuvil.passes.canonicalize import canonicalize
from cuvil.passes.choose_layouts import choose_layouts
from cuvil.passes.fold_constants import fold_constants
from cuvil.passes.fuse import fuse
from cuvil.plan import Plan, Program, plan_memory
from cuvil.targets.target import Target

if TYPE_CHECKING:
    import onnx

Source = str | os.PathLike[str] | bytes
Pass = Callable[[Graph], Graph]

PASSES: tuple[Pass, ...] = (fold_constants, canonicalize, choose_layouts, fold_constants, canonicalize, fuse)


@dataclass(frozen=True)
class Options:
    """How to compile.

    `target` is the name of a record, or `native` for the best one of this machine. `shapes` fixes inputs
    whose shapes the model leaves open, or names their dimensions; `dims` bounds the named ones, which every
    run then chooses. `parallel_flops` is the least work that is split over threads; it changes no result, and
    tests set it to 0 to split everything.
    """

    target: str
    shapes: Mapping[str, UserShape] | None = None
    dims: Mapping[str, Bounds] | None = None
    parallel_flops: int | None = None


@dataclass(frozen=True, eq=False)
class Stages:
    """Every form that a model takes on its way to code, for dumps and tests."""

    model: ImportedModel
    graphs: tuple[tuple[str, Graph], ...]
    program: Program
    plan: Plan
    llvm: str
    target: Target
    signature: Signature


def compile_model(source: Source | onnx.ModelProto, options: Options) -> Artifact:
    """Compiles an ONNX model.

    Raises:
        ModelError: the model is missing, damaged, or uses what is not supported.
        UsageError: there is no such target, or a shape override fits no input.
        ToolchainError: the target is `native`, and there is no record for this machine.
    """
    with debug.watch() as trace:
        stages = run_stages(source, options, trace)
        with trace.stage("object code"):
            object_code = compile_object(stages.llvm, stages.target)
        trace.text(debug.ASSEMBLY, "code.s", lambda: assembly(stages))
    return Artifact(
        target=stages.target,
        signature=stages.signature,
        description=describe(stages.model.name, stages.signature, stages.plan, stages.target),
        object_code=object_code,
        weights=stages.plan.weights,
        weights_bytes=stages.plan.weights_bytes,
        metadata=_metadata(stages),
    )


def run_stages(source: Source | onnx.ModelProto, options: Options, trace: Trace | None = None) -> Stages:
    """Runs the pipeline up to LLVM IR and keeps every stage."""
    trace = trace or Trace()
    target = resolve_target(options.target)
    with trace.stage("import"):
        model = load_onnx(source, options.shapes, options.dims)
        trace.names(model.name, model.sha256, target.name)
    with trace.stage("passes"):
        graphs = tuple(run_passes(model.graph, PASSES, trace))
    graph = graphs[-1][1]
    with trace.stage("lower"):
        program = lower_graph(graph, target)
        for call in program.calls:
            verify_kernel(call.kernel)
    trace.text(debug.LOOPS, "loops.txt", lambda: format_program(program))
    plan = plan_memory(program)
    signature = _signature(program, graph)
    description = describe(model.name, signature, plan, target)
    with trace.stage("LLVM IR"):
        llvm = emit_module(
            program, plan, signature, description, target, parallel_flops=options.parallel_flops
        )
    trace.text(debug.LLVM, "code.ll", lambda: llvm)
    return Stages(model, graphs, program, plan, llvm, target, signature)


def run_passes(
    graph: Graph, passes: Sequence[Pass] = PASSES, trace: Trace | None = None
) -> Iterator[tuple[str, Graph]]:
    """The graph as imported, and after every pass as it is made; each is verified."""
    trace = trace or Trace()
    verify_graph(graph)
    trace.text(debug.GRAPHS, "0.import.cvir", partial(format_graph, graph))
    yield "import", graph
    for number, run in enumerate(passes, 1):
        before, graph = graph, run(graph)
        verify_graph(graph)
        trace.note(debug.EFFECTS, f"{run.__name__}: {len(before.nodes)} -> {len(graph.nodes)} nodes")
        trace.text(debug.GRAPHS, f"{number}.{run.__name__}.cvir", partial(format_graph, graph))
        yield run.__name__, graph


def format_program(program: Program) -> str:
    """The kernels in the order of their calls."""
    return "\n".join(format_kernel(call.kernel) for call in program.calls)


def assembly(stages: Stages) -> str:
    """The target's assembly."""
    return compile_assembly(stages.llvm, stages.target)


def _signature(program: Program, graph: Graph) -> Signature:
    inputs = tuple((value.name, value.type) for value in program.inputs)
    outputs = zip(graph.output_names, (value.type for value in program.outputs), strict=True)
    return Signature(inputs, tuple(outputs))


def _metadata(stages: Stages) -> dict[str, Any]:
    target, model = stages.target, stages.model
    return {
        "model": {"name": model.name, "sha256": model.sha256, "opset": model.opset},
        "target": {
            "name": target.name,
            "triple": target.triple,
            "cpu": target.cpu,
            "features": list(target.features),
            "vector_bits": target.vector_bits,
            "isa": list(target.isa),
            "min_vlen_bits": target.min_vlen_bits,
        },
        "compiler": {"version": __version__, "llvm": llvm_version()},
        "numerics": "strict",
        "inputs": _tensors(stages.signature.inputs),
        "outputs": _tensors(stages.signature.outputs),
        "dimensions": [
            {"name": named.symbol.name, "minimum": named.symbol.minimum, "maximum": named.symbol.maximum}
            for named in stages.signature.dimensions
        ],
        "arena_bytes": stages.plan.arena_bytes,
        "weights_bytes": stages.plan.weights_bytes,
        "nodes": [
            {"name": node.results[0].name, "op": node.op.name, "loc": node.loc}
            for node in stages.graphs[-1][1].nodes
        ],
    }


def _tensors(tensors: tuple[tuple[str, Any], ...]) -> list[dict[str, Any]]:
    return [
        {"name": name, "dtype": t.dtype.name, "shape": [n if is_fixed(n) else str(n) for n in t.shape]}
        for name, t in tensors
    ]
