"""The runtime's C API from Python: models, sessions, and the checks before native code sees an array.

cffi reads the declarations from the C header itself, so the two can't drift apart.
"""

from __future__ import annotations

import functools
import math
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import cffi
import numpy as np

from cuvil import toolchain
from cuvil.errors import CuvilError, LimitError, ModelError, ToolchainError, UsageError
from cuvil.objects import bytes_of

if TYPE_CHECKING:
    from cuvil.objects import BufferLike

Array = np.ndarray[Any, np.dtype[Any]]

HEADER_PATH = toolchain.RUNTIME_SOURCE_DIR / "include" / "cuvil" / "runtime.h"
ALIGNMENT_BYTES = 64

_BEGIN_MARKER, _END_MARKER = "/* --- cffi begin --- */", "/* --- cffi end --- */"
_MESSAGE_BYTES = 1024

_MOST_BINDINGS = 1024
"""Combinations of shapes that a session remembers."""

# By the numbers of the ONNX TensorProto.DataType.
_DTYPES: dict[int, np.dtype[Any]] = {
    1: np.dtype(np.float32),
    2: np.dtype(np.uint8),
    3: np.dtype(np.int8),
    4: np.dtype(np.uint16),
    5: np.dtype(np.int16),
    6: np.dtype(np.int32),
    7: np.dtype(np.int64),
    9: np.dtype(np.bool_),
    10: np.dtype(np.float16),
    11: np.dtype(np.float64),
    12: np.dtype(np.uint32),
    13: np.dtype(np.uint64),
}


@dataclass(frozen=True)
class TensorInfo:
    """Name, element type and shape of an input or output.

    An extent that depends on named dimensions is the text of its expression, such as `"2*seq + 1"`;
    `size_bytes` is then the most that the tensor can have.
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int | str, ...]
    size_bytes: int


@dataclass(frozen=True)
class DimensionInfo:
    """A named dimension: one number in all shapes of a run, from `minimum` to `maximum`."""

    name: str
    minimum: int
    maximum: int


@dataclass(frozen=True)
class _Api:
    ffi: Any
    native: Any
    errors: dict[int, type[CuvilError]]


_LOADING = threading.Lock()


def _api() -> _Api:
    """The runtime library of this machine, loaded at first use, by whichever thread comes first.

    There must be one: pointers of two cffi instances don't mix.
    """
    with _LOADING:
        return _load_api()


@functools.cache
def _load_api() -> _Api:
    ffi: Any = cffi.FFI()
    ffi.cdef(read_declarations())
    path = toolchain.prebuilt(toolchain.host_target()).runtime
    try:
        native = ffi.dlopen(str(path), ffi.RTLD_NOW | ffi.RTLD_LOCAL)
    except OSError as error:
        raise ToolchainError(f"{str(path)!r}: cannot be loaded: {error}") from error
    errors: dict[int, type[CuvilError]] = {
        native.CUVIL_INVALID_ARGUMENT: UsageError,
        native.CUVIL_CANNOT_LOAD: ToolchainError,
        native.CUVIL_WRONG_ISA: ToolchainError,
        native.CUVIL_INVALID_MODEL: ModelError,
        native.CUVIL_OUT_OF_MEMORY: LimitError,
        native.CUVIL_NO_THREADS: LimitError,
    }
    return _Api(ffi, native, errors)


def read_declarations() -> str:
    """The part of `runtime.h` between its markers: plain C declarations."""
    return HEADER_PATH.read_text().split(_BEGIN_MARKER)[1].split(_END_MARKER)[0]


class ModelHandle:
    """A loaded model. Sessions keep it alive."""

    def __init__(self, pointer: Any, keep_alive: object) -> None:
        api = _api()
        self.pointer = api.ffi.gc(pointer, api.native.cuvil_model_release)
        self._keep_alive = keep_alive
        self.name: str = _text(api.native.cuvil_model_name(pointer))
        self.target: str = _text(api.native.cuvil_model_target(pointer))
        self.inputs = _tensors(pointer, api.native.cuvil_model_input_count, api.native.cuvil_model_input)
        self.outputs = _tensors(pointer, api.native.cuvil_model_output_count, api.native.cuvil_model_output)
        self.dimensions = _dimensions(pointer)

    def bind(self, input_shapes: Sequence[tuple[int, ...]]) -> Binding:
        """The named dimensions and the outputs' shapes in a run on inputs of these shapes, whose ranks fit.

        Raises:
            UsageError: A shape is none that the model takes.
        """
        api = _api()
        rows = [api.ffi.new(f"int64_t[{len(shape) + 1}]", list(shape)) for shape in input_shapes]
        input_dims = api.ffi.new("int64_t *[]", rows)
        dimensions = api.ffi.new(f"int64_t[{len(self.dimensions) + 1}]")
        message = api.ffi.new("char[]", _MESSAGE_BYTES)
        status = api.native.cuvil_model_bind(self.pointer, input_dims, dimensions, message, _MESSAGE_BYTES)
        _expect_ok(status, message)
        return Binding(
            dimensions, tuple(map(partial(self._output_shape, dimensions), range(len(self.outputs))))
        )

    def _output_shape(self, dimensions: Any, index: int) -> tuple[int, ...]:
        api = _api()
        rank = len(self.outputs[index].shape)
        info, dims = api.ffi.new("cuvil_tensor_info *"), api.ffi.new(f"int64_t[{rank + 1}]")
        status = api.native.cuvil_model_output_at(self.pointer, index, dimensions, dims, info)
        if status != api.native.CUVIL_OK:
            _raise(status, f"model {self.name!r}: {_text(api.native.cuvil_status_text(status))}")
        return tuple(api.ffi.unpack(dims, rank))


@dataclass(frozen=True, eq=False)
class Binding:
    """The named dimensions of a run, as the C API takes them, and the shapes of its outputs."""

    dimensions: Any
    output_shapes: tuple[tuple[int, ...], ...]


def _dimensions(pointer: Any) -> tuple[DimensionInfo, ...]:
    api = _api()
    info = api.ffi.new("cuvil_dimension_info *")
    dimensions = []
    for index in range(api.native.cuvil_model_dimension_count(pointer)):
        api.native.cuvil_model_dimension(pointer, index, info)
        dimensions.append(DimensionInfo(_text(info.name), info.minimum, info.maximum))
    return tuple(dimensions)


def _tensors(pointer: Any, count: Any, query: Any) -> tuple[TensorInfo, ...]:
    api = _api()
    info = api.ffi.new("cuvil_tensor_info *")
    tensors = []
    for index in range(count(pointer)):
        query(pointer, index, info)
        name = _text(info.name)
        if info.dtype not in _DTYPES:
            raise ModelError(f"tensor {name!r}: no NumPy type for its elements; got ONNX type {info.dtype}")
        dims = api.ffi.unpack(info.dims, info.rank)
        shape = tuple(
            dim if dim >= 0 else _text(api.native.cuvil_model_dim_text(pointer, dim)) for dim in dims
        )
        tensors.append(TensorInfo(name, _DTYPES[info.dtype], shape, info.size_bytes))
    return tuple(tensors)


def _text(pointer: Any) -> str:
    raw: bytes = _api().ffi.string(pointer)
    return raw.decode(errors="replace")


def find_missing_features(isa_bits: int, min_vlen_bits: int) -> str | None:
    """What this machine lacks to run code that needs these processor features; None for nothing.

    Args:
        isa_bits: word 10 of a model's info.
        min_vlen_bits: word 11 of it.
    """
    api = _api()
    message = api.ffi.new("char[]", _MESSAGE_BYTES)
    status = api.native.cuvil_machine_check(isa_bits, min_vlen_bits, message, _MESSAGE_BYTES)
    return None if status == api.native.CUVIL_OK else _text(message)


def load_model(path: Path) -> ModelHandle:
    """Loads a model library or a `.cuv` file.

    Raises:
        ToolchainError: The file is missing, truncated, or has no code for this machine.
        ModelError: It is no Cuvil model of this ABI or format version, or damaged.
    """
    api = _api()
    model = api.ffi.new("cuvil_model **")
    message = api.ffi.new("char[]", _MESSAGE_BYTES)
    _expect_ok(api.native.cuvil_model_load(os.fsencode(path), message, _MESSAGE_BYTES, model), message)
    return ModelHandle(model[0], None)


def verify_file(path: Path) -> None:
    """Checks all checksums of a `.cuv` file.

    Raises:
        ToolchainError: The file is missing or truncated.
        ModelError: It is no `.cuv` file, or damaged.
    """
    api = _api()
    message = api.ffi.new("char[]", _MESSAGE_BYTES)
    _expect_ok(api.native.cuvil_file_verify(os.fsencode(path), message, _MESSAGE_BYTES), message)


def attach_model(
    info: Array,
    strings: bytes,
    weights: BufferLike,
    run_address: int,
    keep_alive: object,
    *,
    shapes_address: int = 0,
) -> ModelHandle:
    """Takes a model whose code is in this process.

    Args:
        info: `cuvil_model_info`, int64.
        strings: `cuvil_model_strings`.
        weights: `cuvil_model_weights`; its memory must be 64-byte aligned, and is used in place.
        run_address: Address of `cuvil_model_run`.
        keep_alive: The owner of the code; held as long as the model.
        shapes_address: Address of `cuvil_model_shapes`, which named dimensions need.

    Raises:
        ModelError: The tables are damaged, or the weights misaligned.
        ToolchainError: This machine lacks instructions that the code needs.
    """
    api = _api()
    if info.dtype != np.int64 or info.ndim != 1 or info.size < 13:
        raise ModelError(f"attached model: info; expected int64[13] or longer, got {info.dtype}{info.shape}")
    weights_bytes = bytes_of(weights).nbytes
    if info[2] != info.size or info[7] != len(strings) or info[6] > weights_bytes:
        raise ModelError("attached model: the sizes of info, strings and weights differ from what info says")
    empty = weights_bytes == 0
    used_weights = aligned_empty(np.dtype(np.uint8), (ALIGNMENT_BYTES,)) if empty else weights
    buffers = [api.ffi.from_buffer(buffer) for buffer in (np.ascontiguousarray(info), strings, used_weights)]
    kinds = ("int64_t *", "char *", "void *")
    pointers = [api.ffi.cast(kind, buffer) for kind, buffer in zip(kinds, buffers, strict=True)]
    model = api.ffi.new("cuvil_model **")
    message = api.ffi.new("char[]", _MESSAGE_BYTES)
    run = api.ffi.cast("cuvil_run_function", run_address)
    shapes = api.ffi.cast("cuvil_shapes_function", shapes_address)
    status = api.native.cuvil_model_attach(*pointers, run, shapes, message, _MESSAGE_BYTES, model)
    _expect_ok(status, message)
    return ModelHandle(model[0], (keep_alive, buffers))


def _expect_ok(status: int, message: Any) -> None:
    if status != _api().native.CUVIL_OK:
        _raise(status, _text(message))


def _raise(status: int, message: str) -> NoReturn:
    raise _api().errors.get(status, CuvilError)(message)


class SessionHandle:
    """A model ready to run, with an arena and threads of its own.

    It may be called from several threads; the runs follow one another.
    """

    def __init__(self, model: ModelHandle, num_threads: int) -> None:
        """Starts a session.

        Args:
            model: The model to run.
            num_threads: Threads that compute, the caller's among them; 0 is one for each processor.
        """
        api = _api()
        session = api.ffi.new("cuvil_session **")
        status = api.native.cuvil_session_create(model.pointer, num_threads, session)
        if status != api.native.CUVIL_OK:
            text = _text(api.native.cuvil_status_text(status))
            _raise(status, f"session of model {model.name!r} with {num_threads} threads: {text}")
        self._model = model
        self._session = api.ffi.gc(session[0], api.native.cuvil_session_release)
        self._run_native = api.native.cuvil_session_run_bound
        self._bindings: dict[tuple[tuple[int, ...], ...], Binding] = {}
        self._from_buffer = api.ffi.from_buffer
        self._new = api.ffi.new
        self._input_pointers = api.ffi.typeof(f"void *[{max(1, len(model.inputs))}]")
        self._output_pointers = api.ffi.typeof(f"void *[{max(1, len(model.outputs))}]")

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """Runs the model once; the results are new arrays, 64-byte aligned.

        Raises:
            UsageError: An input's number, element type, shape or memory layout is not the model's.
        """
        _check_inputs(inputs, self._model.inputs)
        binding = self._binding(tuple([array.shape for array in inputs]))
        outputs = [
            aligned_empty(info.dtype, shape)
            for info, shape in zip(self._model.outputs, binding.output_shapes, strict=True)
        ]
        from_buffer = self._from_buffer
        # Fresh pointer tables: other threads may be in this method, too.
        input_pointers = self._new(self._input_pointers, [from_buffer(array) for array in inputs])
        output_pointers = self._new(self._output_pointers, [from_buffer(array) for array in outputs])
        status = self._run_native(self._session, binding.dimensions, input_pointers, output_pointers)
        if status != 0:
            _raise(status, f"model {self._model.name!r}: {_text(_api().native.cuvil_status_text(status))}")
        return outputs

    def _binding(self, shapes: tuple[tuple[int, ...], ...]) -> Binding:
        """What these shapes of the inputs mean, remembered for the next run."""
        binding = self._bindings.get(shapes)
        if binding is None:
            if len(self._bindings) >= _MOST_BINDINGS:
                self._bindings.clear()
            binding = self._model.bind(shapes)
            self._bindings[shapes] = binding
        return binding

    @property
    def worker_runs(self) -> int:
        """How many ranges of parallel loops threads other than the caller have executed."""
        count: int = _api().native.cuvil_session_worker_runs(self._session)
        return count


def _check_inputs(inputs: Sequence[Array], infos: tuple[TensorInfo, ...]) -> None:
    if len(inputs) != len(infos):
        raise UsageError(f"inputs: wrong number; expected {len(infos)}, got {len(inputs)}")
    for array, info in zip(inputs, infos, strict=True):
        if not isinstance(array, np.ndarray):
            raise UsageError(f"input {info.name!r}: expected a numpy array, got {type(array).__name__}")
        if array.dtype != info.dtype:
            raise UsageError(f"input {info.name!r}: wrong dtype; expected {info.dtype}, got {array.dtype}")
        if array.shape != info.shape and not _may_fit(array.shape, info.shape):
            raise UsageError(f"input {info.name!r}: wrong shape; expected {info.shape}, got {array.shape}")
        flags = array.flags
        if not (flags.c_contiguous and flags.aligned):
            raise UsageError(
                f"input {info.name!r}: wrong memory layout; expected C-contiguous, aligned elements",
                hint="numpy.ascontiguousarray, or a copy",
            )


def _may_fit(shape: tuple[int, ...], expected: tuple[int | str, ...]) -> bool:
    """Whether all fixed extents are as expected; the others are checked together."""
    return len(shape) == len(expected) and all(
        isinstance(extent, str) or extent == size for size, extent in zip(shape, expected, strict=True)
    )


def aligned_empty(dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
    """An uninitialised C-contiguous array whose memory starts at a multiple of 64 bytes."""
    memory = np.empty(math.prod(shape) * dtype.itemsize + ALIGNMENT_BYTES, np.uint8)
    # A third of the time that numpy's own ways to an address take, and this is on the path of every run.
    ffi = _api().ffi
    address = int(ffi.cast("uintptr_t", ffi.from_buffer(memory)))
    return np.ndarray(shape, dtype, memory, -address % ALIGNMENT_BYTES)
