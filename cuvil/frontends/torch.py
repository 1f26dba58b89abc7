"""PyTorch modules to ONNX, by PyTorch's own exporter."""

from __future__ import annotations

import inspect
import io
import warnings
from typing import Any

from cuvil.errors import ModelError, UsageError

OPSET = 17
"""The newest opset that every exporter since PyTorch 1.13 writes."""


def export_module(module: Any, example_inputs: tuple[Any, ...] | None) -> bytes:
    """The module, traced with `example_inputs` in evaluation mode, as ONNX bytes.

    Raises:
        UsageError: there are no example inputs.
        ModelError: PyTorch can't export the module.
    """
    import torch

    if example_inputs is None:
        raise UsageError(
            "example_inputs: a PyTorch module needs them; expected a tuple of tensors, got None",
            hint="cuvil.compile(module, (torch.zeros(1, 3, 224, 224),))",
        )
    options: dict[str, Any] = {"opset_version": OPSET}
    if "dynamo" in inspect.signature(torch.onnx.export).parameters:
        options["dynamo"] = False
    was_training = module.training
    buffer = io.BytesIO()
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(module.eval(), tuple(example_inputs), buffer, **options)
    except Exception as error:  # the exporter raises whatever its many layers raise
        first_line = next(iter(str(error).splitlines()), "")
        raise ModelError(f"{type(module).__name__}: PyTorch can't export it: {first_line}") from error
    finally:
        module.train(was_training)
    return buffer.getvalue()
