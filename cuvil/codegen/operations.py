"""Emits the primitive operations of the loop IR."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cuvil.codegen.values import Register, intrinsic_suffix, llvm_type
from cuvil.codegen.writer import FunctionWriter, constant
from cuvil.ir.types import BOOL, FLOAT64, DType
from cuvil.loops.kernel import COMPARISONS

_FLOAT = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
_INTEGER = {"add": "add", "sub": "sub", "mul": "mul", "shl": "shl", "shr": "ashr"}
_BITWISE = {"and": "and", "or": "or", "xor": "xor"}
_ORDERED = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}
_SIGNED = {"eq": "eq", "ne": "ne", "lt": "slt", "le": "sle", "gt": "sgt", "ge": "sge"}


def emit_operation(w: FunctionWriter, opcode: str, args: Sequence[Register], result: DType) -> Register:
    """Emits one operation on operands that all have the same number of lanes."""
    if opcode in COMPARISONS:
        return _emit_comparison(w, opcode, args)
    special = _SPECIAL.get(opcode)
    if special is not None:
        return special(w, args, result)
    if opcode in ("div", "rem") and result.kind == "int":
        return _emit_integer_division(w, opcode, args)
    table = _FLOAT if result.kind == "float" else _INTEGER | _BITWISE
    return _two(w, table[opcode], args)


def _two(w: FunctionWriter, instruction: str, args: Sequence[Register]) -> Register:
    left, right = args
    return w.assign(left.dtype, left.lanes, f"{instruction} {left}, {right.ref}")


def _emit_comparison(w: FunctionWriter, opcode: str, args: Sequence[Register]) -> Register:
    left, right = args
    is_float = left.dtype.kind == "float"
    predicate = f"fcmp {_ORDERED[opcode]}" if is_float else f"icmp {_SIGNED[opcode]}"
    return w.assign(BOOL, left.lanes, f"{predicate} {left}, {right.ref}")


def _emit_select(w: FunctionWriter, args: Sequence[Register], result: DType) -> Register:
    condition, then, otherwise = args
    return w.assign(result, then.lanes, f"select {condition}, {then}, {otherwise}")


def _emit_negation(w: FunctionWriter, args: Sequence[Register], result: DType) -> Register:
    (value,) = args
    if result.kind == "float":
        return w.assign(result, value.lanes, f"fneg {value}")
    zero = w.splat(constant(0, result), value.lanes)
    return _two(w, "sub", (zero, value))


def _emit_absolute(w: FunctionWriter, args: Sequence[Register], result: DType) -> Register:
    (value,) = args
    if result.kind == "float":
        return w.intrinsic("fabs", args, result)
    zero = w.splat(constant(0, result), value.lanes)
    negative = _emit_comparison(w, "lt", (value, zero))
    return _emit_select(w, (negative, _emit_negation(w, args, result), value), result)


def _emit_complement(w: FunctionWriter, args: Sequence[Register], result: DType) -> Register:
    (value,) = args
    ones = constant(True, result) if result == BOOL else constant(-1, result)
    return _two(w, "xor", (value, w.splat(ones, value.lanes)))


def _emit_bitcast(w: FunctionWriter, args: Sequence[Register], result: DType) -> Register:
    (value,) = args
    return w.assign(result, value.lanes, f"bitcast {value} to {llvm_type(result, value.lanes)}")


def _emit_integer_division(w: FunctionWriter, opcode: str, args: Sequence[Register]) -> Register:
    """Division that never traps; see `Opcode` for what zero and MIN / -1 give."""
    dividend, divisor = args
    dtype, lanes = dividend.dtype, dividend.lanes
    instruction = "sdiv" if opcode == "div" else "srem"
    if divisor.constant not in (None, 0, -1):
        return _two(w, instruction, args)
    zero, one, minus = (w.splat(constant(value, dtype), lanes) for value in (0, 1, -1))
    by_zero = _emit_comparison(w, "eq", (divisor, zero))
    by_minus = _emit_comparison(w, "eq", (divisor, minus))
    unsafe = _two(w, "or", (by_zero, by_minus))
    safe = _emit_select(w, (unsafe, one, divisor), dtype)
    plain = _two(w, instruction, (dividend, safe))
    negated = _two(w, "sub", (zero, dividend)) if opcode == "div" else zero
    signed = _emit_select(w, (by_minus, negated, plain), dtype)
    return _emit_select(w, (by_zero, zero if opcode == "div" else dividend, signed), dtype)


def _emit_cast(w: FunctionWriter, args: Sequence[Register], result: DType) -> Register:
    (value,) = args
    source = value.dtype
    if result == BOOL:
        zero = w.splat(constant(0, source), value.lanes)
        return _emit_comparison(w, "ne", (value, zero))
    if source.kind == "float" and result.kind == "int":
        if result.bits > source.bits:
            # By way of float64, which is exact: QEMU 7.2 fails on RISC-V's widening conversion of vectors.
            return _emit_cast(w, [_emit_cast(w, args, FLOAT64)], result)
        suffix = f"{intrinsic_suffix(result, value.lanes)}.{intrinsic_suffix(source, value.lanes)}"
        return w.intrinsic("fptosi.sat", args, result, suffix)
    instruction = _cast_instruction(source, result)
    return w.assign(result, value.lanes, f"{instruction} {value} to {llvm_type(result, value.lanes)}")


def _cast_instruction(source: DType, result: DType) -> str:
    if source.kind == "float":
        return "fpext" if result.bits > source.bits else "fptrunc"
    if result.kind == "float":
        return "uitofp" if source == BOOL else "sitofp"
    if source == BOOL:
        return "zext"
    return "sext" if result.bits > source.bits else "trunc"


_Special = Callable[[FunctionWriter, Sequence[Register], DType], Register]

_SPECIAL: dict[str, _Special] = {
    "select": _emit_select,
    "neg": _emit_negation,
    "abs": _emit_absolute,
    "not": _emit_complement,
    "bitcast": _emit_bitcast,
    "cast": _emit_cast,
    "fma": lambda w, args, result: w.intrinsic("fma", args, result),
    "sqrt": lambda w, args, result: w.intrinsic("sqrt", args, result),
}
