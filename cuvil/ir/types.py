"""Element types, shapes and tensor types."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from cuvil.ir.dims import Extent, is_fixed, value_of

Shape = tuple[Extent, ...]
Array = npt.NDArray[Any]


@dataclass(frozen=True)
class DType:
    """An element type. `onnx_code` is its number in ONNX's `TensorProto.DataType`."""

    name: str
    kind: Literal["float", "int", "bool"]
    bits: int
    onnx_code: int

    @property
    def size_bytes(self) -> int:
        return max(1, self.bits // 8)

    @property
    def numpy(self) -> np.dtype[Any]:
        return np.dtype(self.name)

    def __str__(self) -> str:
        return SHORT_NAMES[self]


FLOAT32 = DType("float32", "float", 32, 1)
FLOAT64 = DType("float64", "float", 64, 11)
INT32 = DType("int32", "int", 32, 6)
INT64 = DType("int64", "int", 64, 7)
BOOL = DType("bool", "bool", 1, 9)

DTYPES = (FLOAT32, FLOAT64, INT32, INT64, BOOL)
SHORT_NAMES = {FLOAT32: "f32", FLOAT64: "f64", INT32: "i32", INT64: "i64", BOOL: "bool"}
BY_SHORT_NAME = {short: dtype for dtype, short in SHORT_NAMES.items()}
BY_ONNX_CODE = {dtype.onnx_code: dtype for dtype in DTYPES}
BY_NUMPY_NAME = {dtype.name: dtype for dtype in DTYPES}


@dataclass(frozen=True)
class TensorType:
    """The element type and the shape of a tensor."""

    dtype: DType
    shape: Shape

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def count(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def size_bytes(self) -> int:
        return self.count * self.dtype.size_bytes

    @property
    def is_fixed(self) -> bool:
        """Whether no extent depends on named dimensions."""
        return all(map(is_fixed, self.shape))

    def at(self, symbols: Mapping[str, int]) -> TensorType:
        """The type in a run with these values of the named dimensions."""
        return TensorType(self.dtype, shape_at(self.shape, symbols))

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


def shape_at(shape: Shape, symbols: Mapping[str, int]) -> tuple[int, ...]:
    """A shape in a run with these values of the named dimensions."""
    return tuple(value_of(extent, symbols) for extent in shape)


def type_of(array: Array) -> TensorType:
    """The tensor type of a NumPy array; KeyError where the element type has none."""
    return TensorType(BY_NUMPY_NAME[array.dtype.name], tuple(array.shape))
