"""Programs to one LLVM module: kernels, the function that calls them, and the model's description.

The exported names and the layout of the description are ABI version 2 of model libraries, which the
runtime reads; `cuvil/runtime/include/cuvil/runtime.h` documents it.
"""

from __future__ import annotations

from collections.abc import Iterable

from cuvil.artifact import (
    INFO_SYMBOL,
    RUN_SYMBOL,
    SHAPES_SYMBOL,
    STRINGS_SYMBOL,
    Description,
    NamedDimension,
    Signature,
)
from cuvil.codegen.extents import ExtentEmitter
from cuvil.codegen.kernel import Function, emit_kernel
from cuvil.ir.dims import Extent, highest, is_fixed, lowest
from cuvil.ir.graph import Value
from cuvil.plan import Call, Plan, Program, Slot
from cuvil.targets.target import Target

_MAGIC = 0x4C49565543
_ABI_VERSION = 2
_HEADER_WORDS = 13

_PARALLEL_FLOPS = 1 << 16
"""Work below which waking another thread costs more than it saves."""

_ATTRIBUTES = '#0 = { nounwind "no-builtins" "frame-pointer"="none" "prefer-vector-width"="512" }'


def describe(name: str, signature: Signature, plan: Plan, target: Target) -> Description:
    """Encodes the description of a model library."""
    strings = bytearray()

    def place(text: str) -> int:
        offset = len(strings)
        strings.extend(text.encode() + b"\0")
        return offset

    target_at, name_at = place(target.name), place(name)
    tensors: list[int] = []
    for dimension in signature.dimensions:
        symbol, source = dimension.symbol, (dimension.input, dimension.axis)
        tensors += [place(symbol.name), symbol.minimum, symbol.maximum, *source]
    for tensor_name, tensor in (*signature.inputs, *signature.outputs):
        sizes = [extent if is_fixed(extent) else -1 - place(str(extent)) for extent in tensor.shape]
        most_bytes = highest(tensor.size_bytes)
        tensors += [place(tensor_name), tensor.dtype.onnx_code, most_bytes, tensor.rank, *sizes]
    counts = (len(signature.inputs), len(signature.outputs))
    memory = (plan.arena_bytes, plan.weights_bytes, len(strings))
    header = [_MAGIC, _ABI_VERSION, _HEADER_WORDS + len(tensors), *counts, *memory, target_at, name_at]
    header += [target.isa_bits, target.min_vlen_bits, len(signature.dimensions)]
    return Description((*header, *tensors), bytes(strings))


def emit_module(
    program: Program,
    plan: Plan,
    signature: Signature,
    description: Description,
    target: Target,
    *,
    parallel_flops: int | None = None,
) -> str:
    """The LLVM IR of a model library, weights apart.

    `parallel_flops` overrides the least work that is worth splitting over threads; tests set it to 0.
    """
    least = _PARALLEL_FLOPS if parallel_flops is None else parallel_flops
    kernels = _KernelTable(target, signature.dimensions)
    body = _emit_run(program, plan, kernels, least)
    words = ", ".join(f"i64 {word}" for word in description.words)
    text = "".join(f"\\{byte:02X}" for byte in description.strings)
    parts = [
        f'target triple = "{target.triple}"',
        f"@{INFO_SYMBOL} = constant [{len(description.words)} x i64] [{words}], align 8",
        f'@{STRINGS_SYMBOL} = constant [{len(description.strings)} x i8] c"{text}", align 8',
        *sorted(kernels.declarations),
        *kernels.definitions,
        f"define i64 @{RUN_SYMBOL}(ptr %services, ptr %weights, ptr %inputs, ptr %outputs, ptr %arena, "
        "ptr %symbols) #0 {",
        body,
        "}",
        f"define void @{SHAPES_SYMBOL}(ptr %symbols, ptr %extents) #0 {{",
        _emit_shapes(signature),
        "}",
        f"attributes {_ATTRIBUTES}",
        "",
    ]
    return "\n".join(parts)


class _KernelTable:
    """Kernels by their text, so that equal ones are emitted once."""

    def __init__(self, target: Target, dimensions: Iterable[NamedDimension]) -> None:
        self.declarations: set[str] = set()
        self.definitions: list[str] = []
        self._target = target
        self.positions = _positions(dimensions)
        self._names: dict[tuple[tuple[str, ...], str], str] = {}

    def name_of(self, call: Call) -> tuple[str, bool]:
        """A kernel's name, and whether it takes the values of the named dimensions behind its buffers."""
        function = emit_kernel(call.kernel, self._target, self.positions)
        key = (function.addresses, function.body)
        if key not in self._names:
            name = f"{call.kernel.name}.{len(self._names)}"
            self._names[key] = name
            self.declarations |= function.declarations
            self.definitions.append(_define(name, function))
        return self._names[key], len(function.addresses) > len(call.kernel.params)


def _positions(dimensions: Iterable[NamedDimension]) -> dict[str, int]:
    return {dimension.symbol.name: position for position, dimension in enumerate(dimensions)}


def _define(name: str, function: Function) -> str:
    """The kernel, and the form of it that takes its addresses from an array, for use by other threads."""
    loads = "".join(
        f"  %a{i} = getelementptr ptr, ptr %arguments, i64 {i}\n  {address} = load ptr, ptr %a{i}\n"
        for i, address in enumerate(function.addresses)
    )
    pointers = "".join(f"ptr {address}, " for address in function.addresses)
    return (
        f'define internal void @"{name}"({function.parameters}) noinline #0 {{\n'
        f"{function.body}\n}}\n"
        f'define internal void @"{name}.range"(ptr %arguments, i64 %begin, i64 %end) #0 {{\n{loads}'
        f'  call void @"{name}"({pointers}i64 %begin, i64 %end)\n  ret void\n}}'
    )


def _emit_run(program: Program, plan: Plan, kernels: _KernelTable, least_flops: int) -> str:
    most = max((len(call.operands) for call in program.calls), default=1)
    lines = [
        f"  %arguments = alloca ptr, i64 {most + 1}, align 8",
        "  %context.at = getelementptr i8, ptr %services, i64 16",
        "  %context = load ptr, ptr %context.at",
        "  %parallel.at = getelementptr i8, ptr %services, i64 24",
        "  %parallel = load ptr, ptr %parallel.at",
    ]
    for kind, values in (("input", program.inputs), ("output", program.outputs)):
        for i in range(len(values)):
            lines.append(f"  %{kind}{i}.at = getelementptr ptr, ptr %{kind}s, i64 {i}")
            lines.append(f"  %{kind}{i} = load ptr, ptr %{kind}{i}.at")
    extents = ExtentEmitter(kernels.positions, _Assigner(lines))
    for number, call in enumerate(program.calls):
        _emit_call(lines, extents, number, call, program, plan, kernels, least_flops)
    return "\n".join([*lines, "  ret i64 0"])


class _Assigner:
    """Appends instructions to a function of one block."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self._count = 0

    def __call__(self, text: str) -> str:
        self._count += 1
        self._lines.append(f"  %n{self._count} = {text}")
        return f"%n{self._count}"


def _emit_call(
    lines: list[str],
    extents: ExtentEmitter,
    number: int,
    call: Call,
    program: Program,
    plan: Plan,
    kernels: _KernelTable,
    least_flops: int,
) -> None:
    name, takes_symbols = kernels.name_of(call)
    pointers = []
    for i, operand in enumerate(call.operands):
        pointers.append(_emit_pointer(f"%c{number}.{i}", operand, program, plan, lines))
    pointers += ["%symbols"] * takes_symbols
    extent = call.kernel.parallel_extent
    count = extents.ref(extent)
    if extent == 1 or highest(call.flops) < least_flops:
        arguments = "".join(f"ptr {pointer}, " for pointer in pointers)
        lines.append(f'  call void @"{name}"({arguments}i64 0, i64 {count})')
        return
    for i, pointer in enumerate(pointers):
        lines.append(f"  %s{number}.{i} = getelementptr ptr, ptr %arguments, i64 {i}")
        lines.append(f"  store ptr {pointer}, ptr %s{number}.{i}")
    grain = extents.ref(_grain(least_flops, extent, call.flops))
    lines.append(
        f'  call void %parallel(ptr %context, ptr @"{name}.range", ptr %arguments, i64 {count}, i64 {grain})'
    )


def _grain(least_flops: int, extent: Extent, flops: Extent) -> Extent:
    """Iterations that are worth a thread: at least 1, and as many as `least_flops` take."""
    if lowest(flops) <= 0:
        return 1
    grain = least_flops * extent // flops
    if is_fixed(grain):
        return max(1, grain)
    return grain if lowest(grain) >= 1 else grain + 1


def _emit_shapes(signature: Signature) -> str:
    """The extents of all inputs and outputs, from the values of the named dimensions."""
    lines: list[str] = []
    extents = ExtentEmitter(_positions(signature.dimensions), _Assigner(lines))
    shapes = [extent for _, tensor in (*signature.inputs, *signature.outputs) for extent in tensor.shape]
    for position, extent in enumerate(shapes):
        ref = extents.ref(extent)
        lines.append(f"  %e{position} = getelementptr i64, ptr %extents, i64 {position}")
        lines.append(f"  store i64 {ref}, ptr %e{position}, align 8")
    return "\n".join([*lines, "  ret void"])


def _emit_pointer(ref: str, operand: Value, program: Program, plan: Plan, lines: list[str]) -> str:
    slot: Slot = plan.slots[program.root(operand)]
    if slot.space in ("input", "output"):
        return f"%{slot.space}{slot.position}"
    if slot.position == 0:
        return f"%{slot.space}"
    lines.append(f"  {ref} = getelementptr i8, ptr %{slot.space}, i64 {slot.position}")
    return ref
