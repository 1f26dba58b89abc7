"""Numbers as text, exactly: what is written is read back with the same bits.

Floats are the shortest decimals that read back as the same value, and always carry a point, an exponent or
a word, so that they differ from integers: `1.0`, `1e-05`, `-0.0`, `inf`, `nan`. A NaN other than the usual
quiet one names its bits, as in `nan:ffc00001`. C's hexadecimal floats (`0x1.8p+1`) are read, too.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from cuvil.ir.types import DType

_HEXADECIMAL = r"0[xX][0-9a-fA-F]+(?:\.[0-9a-fA-F]*)?[pP][-+]?\d+"
_DECIMAL = r"\d+(?:\.\d*)?(?:[eE][-+]?\d+)?"
NUMBER = rf"[-+]?(?:{_HEXADECIMAL}|{_DECIMAL}|inf|nan(?::[0-9a-f]+)?)"
"""The pattern of every number; `true` and `false` are words."""

_INTEGER = re.compile(r"[-+]?\d+")
_NAN = re.compile(r"nan(?::([0-9a-f]+))?")
_WORDS = {"true": True, "false": False}


def is_integer(text: str) -> bool:
    """Whether a number is written as an integer."""
    return _INTEGER.fullmatch(text) is not None


def format_element(value: Any, dtype: DType) -> str:
    """One element of type `dtype`, given as a Python or NumPy scalar."""
    if dtype.kind == "bool":
        return "true" if value else "false"
    if dtype.kind == "int":
        return str(int(value))
    return _format_float(dtype.numpy.type(value), dtype)


def _format_float(value: np.floating[Any], dtype: DType) -> str:
    if np.isnan(value):
        bits = int(value.view(f"u{dtype.size_bytes}"))
        return "nan" if bits == _quiet_nan_bits(dtype) else f"nan:{bits:0{dtype.size_bytes * 2}x}"
    text = str(value)
    # A reader that goes through float64 rounds twice; where that shows, only the exact form will do.
    return text if dtype.numpy.type(float(text)) == value else float(value).hex()


def parse_element(text: str, dtype: DType) -> np.generic:
    """The element that `text` writes.

    Raises:
        ValueError: `text` is no element of `dtype`; the message says why.
    """
    if dtype.kind == "bool":
        return np.bool_(_parse_word(text))
    return _parse_integer(text, dtype) if dtype.kind == "int" else _parse_float(text, dtype)


def _parse_word(text: str) -> bool:
    if text not in _WORDS:
        raise ValueError(f"expected true or false, got {text!r}")
    return _WORDS[text]


def _parse_integer(text: str, dtype: DType) -> np.generic:
    if not is_integer(text):
        raise ValueError(f"expected an integer, got {text!r}")
    limits = np.iinfo(dtype.numpy)
    if not limits.min <= int(text) <= limits.max:
        raise ValueError(f"expected {limits.min} to {limits.max}, got {text}")
    return _scalar(int(text), dtype)


def _parse_float(text: str, dtype: DType) -> np.generic:
    nan = _NAN.fullmatch(text)
    if nan:
        return _nan(int(nan[1], 16) if nan[1] else _quiet_nan_bits(dtype), text, dtype)
    if is_integer(text) or not re.fullmatch(NUMBER, text):
        raise ValueError(f"expected a float, got {text!r}")
    exact = float.fromhex(text) if "x" in text.lower() else float(text)
    with np.errstate(over="ignore", under="ignore"):
        value = _scalar(np.float64(exact).astype(dtype.numpy), dtype)
    if np.isinf(value) and "inf" not in text:
        raise ValueError(f"expected a finite {dtype.name}, got {text!r}")
    return value


def _nan(bits: int, text: str, dtype: DType) -> np.generic:
    quiet = _quiet_nan_bits(dtype)
    unsigned = f"u{dtype.size_bytes}"
    value: np.generic = np.array([bits & (1 << dtype.bits) - 1], unsigned).view(dtype.numpy)[0]
    if bits >> dtype.bits or not np.isnan(value):
        raise ValueError(f"expected the bits of a NaN, such as nan:{quiet:x}, got {text!r}")
    return value


def _quiet_nan_bits(dtype: DType) -> int:
    return int(np.array(np.nan, dtype.numpy).view(f"u{dtype.size_bytes}")) & (1 << dtype.bits - 1) - 1


def _scalar(value: Any, dtype: DType) -> np.generic:
    scalar: np.generic = dtype.numpy.type(value)
    return scalar
