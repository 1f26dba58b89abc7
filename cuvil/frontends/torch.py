"""PyTorch modules to ONNX, by PyTorch's own exporter."""

from __future__ import annotations

import contextlib
import inspect
import io
import logging
import threading
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from cuvil.errors import ModelError, UsageError

OPSET = 17
"""The newest opset that every exporter since PyTorch 1.13 writes."""

_EXPORTING = threading.RLock()

_HINT = "cuvil.compile(module, (torch.zeros(1, 3, 224, 224),))"


def export_module(
    module: Any, example_inputs: Any, shapes: Mapping[str, tuple[int | str, ...]] | None = None
) -> bytes:
    """The module, traced with `example_inputs` in evaluation mode, as ONNX bytes.

    Every submodule is left in the mode in which it was found. Control flow is fixed: branches and loops
    are compiled as `example_inputs` take them, with PyTorch's TracerWarning where that happens. Dimensions
    that `shapes` names stay open.

    Raises:
        UsageError: `module` is a class, or there are no example inputs.
        ModelError: PyTorch can't export the module.
    """
    import torch

    if isinstance(module, type):
        raise UsageError(f"model: expected a module, got the class {module.__name__}", hint=_HINT)
    if not isinstance(example_inputs, tuple | list):
        raise UsageError(
            "example_inputs: a PyTorch module needs them; expected a tuple of tensors, "
            f"got {type(example_inputs).__name__}",
            hint=_HINT,
        )
    all_tensors = all(isinstance(example, torch.Tensor) for example in example_inputs)
    names = _input_names(module, len(example_inputs)) if all_tensors else None
    options: dict[str, Any] = {"opset_version": OPSET, "input_names": names}
    options["dynamic_axes"] = {
        name: {axis: extent for axis, extent in enumerate(shape) if isinstance(extent, str)}
        for name, shape in (shapes or {}).items()
        if name in (names or ())
    }
    if "dynamo" in inspect.signature(torch.onnx.export).parameters:
        options["dynamo"] = False
    buffer = io.BytesIO()
    try:
        # The exporter keeps its state in globals, and so do the switches around it.
        with _EXPORTING, torch.no_grad(), _evaluation_mode(module), _plain_attention(torch), _quiet(torch):
            torch.onnx.export(module, tuple(example_inputs), buffer, **options)
    except Exception as error:  # the exporter raises whatever its many layers raise
        what = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise ModelError(f"{type(module).__name__}: PyTorch can't export it: {what.strip()}") from error
    return buffer.getvalue()


def _input_names(module: Any, count: int) -> list[str] | None:
    """The first parameters of `forward`; None where they can't be told, and the exporter finds names."""
    try:
        parameters = inspect.signature(module.forward).parameters.values()
    except (TypeError, ValueError):  # code that is not Python's
        return None
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return names[:count] if len(names) >= count else None


@contextlib.contextmanager
def _evaluation_mode(module: Any) -> Iterator[None]:
    """`module.train` would set one mode for all; a frozen layer in a module in training has its own."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode


@contextlib.contextmanager
def _plain_attention(torch: Any) -> Iterator[None]:
    """In evaluation mode PyTorch runs a transformer layer as one operator of its own, unknown to ONNX."""
    switch = getattr(torch.backends, "mha", None)
    if switch is None:
        yield
        return
    enabled = switch.get_fastpath_enabled()
    switch.set_fastpath_enabled(False)
    try:
        yield
    finally:
        switch.set_fastpath_enabled(enabled)


@contextlib.contextmanager
def _quiet(torch: Any) -> Iterator[None]:
    """Silences the exporter's notices, whatever the release; errors still come as exceptions.

    From PyTorch 2.7 on it switches on a log of its own, which C++ prints, and leaves it on.
    """
    switch = getattr(torch._C, "_jit_set_onnx_log_enabled", None)
    previous = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            # What tracing freezes in the user's code is the user's to know; PyTorch's own checks shapes.
            warnings.simplefilter("always", torch.jit.TracerWarning)
            warnings.filterwarnings("ignore", category=torch.jit.TracerWarning, module=r"torch\.")
            if switch is not None:
                torch._C._jit_set_onnx_log_enabled = lambda _: None
            yield
    finally:
        if switch is not None:
            torch._C._jit_set_onnx_log_enabled = switch
        logging.disable(previous)
