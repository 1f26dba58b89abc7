"""Compiling and running models from Python."""

from __future__ import annotations

import operator
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cuvil import container, toolchain
from cuvil.artifact import RUN_SYMBOL, SHAPES_SYMBOL, Artifact
from cuvil.codegen.machine import LoadedObject
from cuvil.driver import Options, Source, compile_model
from cuvil.errors import UsageError
from cuvil.ir.types import Array
from cuvil.runtime_binding import (
    ModelHandle,
    SessionHandle,
    TensorInfo,
    attach_model,
    load_model,
    verify_file,
)
from cuvil.targets.target import NATIVE

if TYPE_CHECKING:
    import onnx
    import torch


MOST_THREADS = 1024


class CompiledModel:
    """A model that runs on NumPy arrays.

    Call it with its inputs in the model's order, or by their names; one output comes back as an array,
    several as a tuple in the model's order.
    """

    def __init__(self, handle: ModelHandle, num_threads: int, artifact: Artifact | None = None) -> None:
        self._handle = handle
        self._artifact = artifact
        self._session = SessionHandle(handle, _checked_threads(num_threads))
        self._input_names = tuple(info.name for info in handle.inputs)

    @property
    def inputs(self) -> tuple[TensorInfo, ...]:
        """Names, element types and shapes of the inputs."""
        return self._handle.inputs

    @property
    def outputs(self) -> tuple[TensorInfo, ...]:
        """Names, element types and shapes of the outputs."""
        return self._handle.outputs

    @property
    def target(self) -> str:
        """The name of the target that the code was compiled for."""
        return self._handle.target

    @property
    def worker_runs(self) -> int:
        """How many pieces of work threads other than the caller's have run."""
        return self._session.worker_runs

    def __call__(self, *args: Array, **kwargs: Array) -> Array | tuple[Array, ...]:
        """Runs the model.

        Raises:
            UsageError: an input is missing, unknown, given twice, or of another type or shape than the
                model's.
        """
        inputs = self._by_name(args, kwargs) if kwargs else args
        outputs = self._session.run([_dense(array) for array in inputs])
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Runs the model on inputs by name and returns its outputs by name, whatever the names are."""
        if not isinstance(inputs, Mapping):
            raise UsageError(f"inputs: expected arrays by name, got {type(inputs).__name__}")
        outputs = self._session.run([_dense(array) for array in self._by_name((), inputs)])
        return {info.name: array for info, array in zip(self.outputs, outputs, strict=True)}

    def _by_name(self, args: tuple[Array, ...], named: Mapping[str, Array]) -> list[Array]:
        unknown = [name for name in named if name not in self._input_names]
        if unknown:
            expected = ", ".join(map(repr, self._input_names))
            raise UsageError(f"inputs: no such input; expected {expected}, got {unknown[0]!r}")
        given: dict[str, Array] = dict(zip(self._input_names, args, strict=False))
        twice = [name for name in named if name in given]
        if twice or len(args) > len(self._input_names):
            raise UsageError(f"inputs: given twice; got {(twice or ['too many positional inputs'])[0]!r}")
        given |= dict(named)
        missing = [name for name in self._input_names if name not in given]
        if missing:
            raise UsageError(f"inputs: missing; expected {missing[0]!r} as well")
        return [given[name] for name in self._input_names]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes `NAME.cuv`, or a model library `NAME.so` and `NAME.cuvil-meta.json` beside it.

        Raises:
            UsageError: the model was loaded from a file, or the name is neither in an existing folder.
            ToolchainError: there is no linker.
        """
        if self._artifact is None:
            raise UsageError("save: this model was loaded from a library, which can be copied as it is")
        container.save([self._artifact], path)


def compile(  # `cuvil.compile` is the public name
    model: Source | onnx.ModelProto | torch.nn.Module,
    example_inputs: tuple[Any, ...] | None = None,
    *,
    shapes: Mapping[str, tuple[int | str, ...]] | None = None,
    dims: Mapping[str, tuple[int, int]] | None = None,
    target: str | None = None,
    num_threads: int = 1,
) -> CompiledModel:
    """Compiles a model for this machine and loads it.

    Args:
        model: path or bytes of an ONNX model, an `onnx.ModelProto`, or a PyTorch module.
        example_inputs: for a PyTorch module, the tensors to trace it with; their shapes are the model's but
            for the dimensions that `shapes` names. Branches and loops of `forward` are compiled as these
            inputs take them, and arguments that `forward` does not use are no inputs of the model.
        shapes: fixes inputs whose shapes the ONNX model leaves open, and names dimensions that are to stay
            open, as in `{"tokens": ("batch", 128)}`. A PyTorch module's inputs are known by the names of the
            parameters of `forward`.
        dims: the least and the greatest value of each named dimension, as in `{"batch": (1, 16)}`. One
            library then runs every size between, with the same bits as one that was compiled for it alone.
        target: the record to compile for, one that this machine runs; by default `native`, its best one.
            Name a record where the saved library shall run on other machines, too. No result depends on it.
        num_threads: threads that compute; 0 for one a processor. No result depends on it.

    Raises:
        ModelError: the model is missing, damaged, or uses what is not supported.
        UsageError: an argument does not fit the model.
        ToolchainError: this machine lacks what the target requires.
    """
    checked = _checked_shapes(shapes)
    source = _onnx_of(model, example_inputs, checked)
    artifact = compile_model(source, Options(target or NATIVE, checked, _checked_dims(dims)))
    return load_artifact(artifact, num_threads)


def export(
    model: Source | onnx.ModelProto | torch.nn.Module,
    path: str | os.PathLike[str],
    example_inputs: tuple[Any, ...] | None = None,
    *,
    targets: Sequence[str],
    shapes: Mapping[str, tuple[int | str, ...]] | None = None,
    dims: Mapping[str, tuple[int, int]] | None = None,
) -> None:
    """Compiles a model for any targets and writes them to one `.cuv` file, or one of them to a library.

    Args:
        model: path or bytes of an ONNX model, an `onnx.ModelProto`, or a PyTorch module.
        path: `NAME.cuv`; or `NAME.so`, for one target.
        example_inputs: for a PyTorch module, the tensors to trace it with, as `compile` takes them.
        targets: names of the records to compile for. Where several fit a machine, the one that asks for most
            is used. No result depends on it.
        shapes: fixes inputs whose shapes the model leaves open, or names dimensions, as for `compile`.
        dims: the bounds of the named dimensions, as for `compile`.

    Raises:
        ModelError: the model is missing, damaged, or uses what is not supported.
        UsageError: an argument does not fit the model, or there is no such target.
        ToolchainError: there is no linker.
    """
    if isinstance(targets, str) or not targets:
        raise UsageError(f"targets: expected a list of names, got {targets!r}")
    container.verify_output(Path(path), len(targets))
    checked, bounds = _checked_shapes(shapes), _checked_dims(dims)
    source = _onnx_of(model, example_inputs, checked)
    container.save([compile_model(source, Options(target, checked, bounds)) for target in targets], path)


def load_artifact(artifact: Artifact, num_threads: int = 1) -> CompiledModel:
    """Links a compiled model into this process."""
    host = toolchain.host_target()
    if artifact.target.platform != host:
        raise UsageError(
            f"target: code for {artifact.target.name!r} can't run on this machine ({host!r})",
            hint="`cuvil compile --target` writes a library for another machine",
        )
    code = LoadedObject(artifact.object_code, artifact.target, (RUN_SYMBOL, SHAPES_SYMBOL))
    info = np.array(artifact.description.words, np.int64)
    handle = attach_model(
        info,
        artifact.description.strings,
        artifact.weights_image().data,
        code.addresses[RUN_SYMBOL],
        code,
        shapes_address=code.addresses[SHAPES_SYMBOL],
    )
    return CompiledModel(handle, num_threads, artifact)


def load(path: str | os.PathLike[str], num_threads: int = 1, *, verify: bool = False) -> CompiledModel:
    """Loads a `.cuv` file or a model library that `save` or `cuvil compile` wrote.

    Args:
        path: the file; its content tells which of the two it is.
        num_threads: threads that compute; 0 for one a processor. No result depends on it.
        verify: for a `.cuv` file, whether the checksum of the weights is checked as well, which reads all of
            them. All others always are.

    Raises:
        ToolchainError: the file is missing, or has no code for this machine.
        ModelError: it is no model, or damaged.
    """
    if verify:
        verify_file(Path(path))
    return CompiledModel(load_model(Path(path)), num_threads)


def _checked_threads(num_threads: object) -> int:
    if (
        isinstance(num_threads, bool)
        or not isinstance(num_threads, int)
        or not 0 <= num_threads <= MOST_THREADS
    ):
        raise UsageError(f"num_threads: expected a number from 0 to {MOST_THREADS}, got {num_threads!r}")
    return num_threads


def _checked_shapes(shapes: object) -> dict[str, tuple[int | str, ...]]:
    try:
        pairs = dict(shapes or {}).items()  # type: ignore[call-overload]  # what a caller may have passed
        if any(isinstance(shape, str) for _, shape in pairs):
            raise TypeError("a text is no shape")
        return {str(name): tuple(map(_checked_extent, shape)) for name, shape in pairs}
    except (TypeError, ValueError):
        raise UsageError(
            f"shapes: expected input names and tuples of extents, got {shapes!r}",
            hint='shapes={"x": (1, 3, 224, 224)}',
        ) from None


def _checked_extent(extent: object) -> int | str:
    return extent if isinstance(extent, str) else operator.index(extent)  # type: ignore[arg-type]  # as above


def _checked_dims(dims: object) -> dict[str, tuple[int, int]]:
    try:
        pairs = dict(dims or {}).items()  # type: ignore[call-overload]  # what a caller may have passed
        bounds = {str(name): tuple(map(operator.index, ends)) for name, ends in pairs}
        return {name: (least, most) for name, (least, most) in bounds.items()}
    except (TypeError, ValueError):
        raise UsageError(
            f"dims: expected names and pairs of bounds, got {dims!r}", hint='dims={"batch": (1, 16)}'
        ) from None


def _dense(array: Array) -> Array:
    """The array with its elements side by side, as native code reads them; copied only if it must be."""
    array = np.asarray(array)
    dense = array.flags.c_contiguous and array.flags.aligned
    return array if dense else np.array(array, order="C")


def _onnx_of(
    model: Source | onnx.ModelProto | torch.nn.Module,
    example_inputs: tuple[Any, ...] | None,
    shapes: Mapping[str, tuple[int | str, ...]],
) -> Source | onnx.ModelProto:
    if hasattr(model, "state_dict") and hasattr(model, "forward"):
        from cuvil.frontends.torch import export_module

        return export_module(model, example_inputs, shapes)
    if example_inputs is not None:
        raise UsageError("example_inputs: only a PyTorch module takes them")
    if not isinstance(model, str | bytes | os.PathLike) and not hasattr(model, "graph"):
        raise UsageError(
            "model: expected a path or bytes of an ONNX model, an onnx.ModelProto, or a PyTorch module, "
            f"got {type(model).__name__}"
        )
    return model
