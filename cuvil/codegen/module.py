"""Programs to one LLVM module: kernels, the function that calls them, and the model's description.

The exported names and the layout of the description are ABI version 1 of model libraries, which the
runtime reads; `cuvil/runtime/include/cuvil/runtime.h` documents it.
"""

from __future__ import annotations

from cuvil.artifact import INFO_SYMBOL, RUN_SYMBOL, STRINGS_SYMBOL, Description, Signature
from cuvil.codegen.kernel import Function, emit_kernel
from cuvil.ir.graph import Value
from cuvil.plan import Call, Plan, Program, Slot
from cuvil.targets.target import Target

_MAGIC = 0x4C49565543
_ABI_VERSION = 1
_HEADER_WORDS = 12

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
    for tensor_name, tensor in (*signature.inputs, *signature.outputs):
        tensors += [place(tensor_name), tensor.dtype.onnx_code, tensor.size_bytes, tensor.rank, *tensor.shape]
    counts = (len(signature.inputs), len(signature.outputs))
    sizes = (plan.arena_bytes, plan.weights_bytes, len(strings))
    header = [_MAGIC, _ABI_VERSION, _HEADER_WORDS + len(tensors), *counts, *sizes, target_at, name_at]
    header += [target.isa_bits, target.min_vlen_bits]
    return Description((*header, *tensors), bytes(strings))


def emit_module(
    program: Program,
    plan: Plan,
    description: Description,
    target: Target,
    *,
    parallel_flops: int | None = None,
) -> str:
    """The LLVM IR of a model library, weights apart.

    `parallel_flops` overrides the least work that is worth splitting over threads; tests set it to 0.
    """
    least = _PARALLEL_FLOPS if parallel_flops is None else parallel_flops
    kernels = _KernelTable(target)
    body = _emit_run(program, plan, kernels, least)
    words = ", ".join(f"i64 {word}" for word in description.words)
    text = "".join(f"\\{byte:02X}" for byte in description.strings)
    parts = [
        f'target triple = "{target.triple}"',
        f"@{INFO_SYMBOL} = constant [{len(description.words)} x i64] [{words}], align 8",
        f'@{STRINGS_SYMBOL} = constant [{len(description.strings)} x i8] c"{text}", align 8',
        *sorted(kernels.declarations),
        *kernels.definitions,
        f"define i64 @{RUN_SYMBOL}(ptr %services, ptr %weights, ptr %inputs, ptr %outputs, ptr %arena) #0 {{",
        body,
        "}",
        f"attributes {_ATTRIBUTES}",
        "",
    ]
    return "\n".join(parts)


class _KernelTable:
    """Kernels by their text, so that equal ones are emitted once."""

    def __init__(self, target: Target) -> None:
        self.declarations: set[str] = set()
        self.definitions: list[str] = []
        self._target = target
        self._names: dict[tuple[str, str], str] = {}

    def name_of(self, call: Call) -> str:
        function = emit_kernel(call.kernel, self._target)
        key = (function.parameters, function.body)
        if key not in self._names:
            name = f"{call.kernel.name}.{len(self._names)}"
            self._names[key] = name
            self.declarations |= function.declarations
            self.definitions.append(_define(name, function, len(call.kernel.params)))
        return self._names[key]


def _define(name: str, function: Function, count: int) -> str:
    """The kernel, and the form of it that takes its addresses from an array, for use by other threads."""
    loads = "".join(
        f"  %a{i} = getelementptr ptr, ptr %arguments, i64 {i}\n  %p{i} = load ptr, ptr %a{i}\n"
        for i in range(count)
    )
    pointers = "".join(f"ptr %p{i}, " for i in range(count))
    return (
        f'define internal void @"{name}"({function.parameters}) noinline #0 {{\n{function.body}\n}}\n'
        f'define internal void @"{name}.range"(ptr %arguments, i64 %begin, i64 %end) #0 {{\n{loads}'
        f'  call void @"{name}"({pointers}i64 %begin, i64 %end)\n  ret void\n}}'
    )


def _emit_run(program: Program, plan: Plan, kernels: _KernelTable, least_flops: int) -> str:
    most = max((len(call.operands) for call in program.calls), default=1)
    lines = [
        f"  %arguments = alloca ptr, i64 {max(1, most)}, align 8",
        "  %context.at = getelementptr i8, ptr %services, i64 16",
        "  %context = load ptr, ptr %context.at",
        "  %parallel.at = getelementptr i8, ptr %services, i64 24",
        "  %parallel = load ptr, ptr %parallel.at",
    ]
    for kind, values in (("input", program.inputs), ("output", program.outputs)):
        for i in range(len(values)):
            lines.append(f"  %{kind}{i}.at = getelementptr ptr, ptr %{kind}s, i64 {i}")
            lines.append(f"  %{kind}{i} = load ptr, ptr %{kind}{i}.at")
    for number, call in enumerate(program.calls):
        lines += _emit_call(number, call, program, plan, kernels, least_flops)
    return "\n".join([*lines, "  ret i64 0"])


def _emit_call(
    number: int, call: Call, program: Program, plan: Plan, kernels: _KernelTable, least_flops: int
) -> list[str]:
    name = kernels.name_of(call)
    lines: list[str] = []
    pointers = []
    for i, operand in enumerate(call.operands):
        pointers.append(_emit_pointer(f"%c{number}.{i}", operand, program, plan, lines))
    count = call.kernel.parallel_extent
    if count == 1 or call.flops < least_flops:
        arguments = "".join(f"ptr {pointer}, " for pointer in pointers)
        return [*lines, f'  call void @"{name}"({arguments}i64 0, i64 {count})']
    for i, pointer in enumerate(pointers):
        lines.append(f"  %s{number}.{i} = getelementptr ptr, ptr %arguments, i64 {i}")
        lines.append(f"  store ptr {pointer}, ptr %s{number}.{i}")
    grain = max(1, least_flops * count // max(1, call.flops))
    lines.append(
        f'  call void %parallel(ptr %context, ptr @"{name}.range", ptr %arguments, i64 {count}, i64 {grain})'
    )
    return lines


def _emit_pointer(ref: str, operand: Value, program: Program, plan: Plan, lines: list[str]) -> str:
    slot: Slot = plan.slots[program.root(operand)]
    if slot.space in ("input", "output"):
        return f"%{slot.space}{slot.position}"
    if slot.position == 0:
        return f"%{slot.space}"
    lines.append(f"  {ref} = getelementptr i8, ptr %{slot.space}, i64 {slot.position}")
    return ref
