"""The harness's own models: one file each, found by its name; a file that starts with `_` is none.

A model file has a docstring whose first line says what it is, `OUTPUTS` (output names in order),
`build()`, which returns the PyTorch module in evaluation mode, and `inputs(case)`. Only `build` may import
torch: listing models and making inputs work without it.
"""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from cuvil_regress.errors import ToolMissingError, UsageError
from cuvil_regress.models._parameters import digest

CASES = ("ordinary", "special")
"""The cases of every model; `special` holds NaN, Inf and subnormals, each in a batch row of its own."""

Array = NDArray[Any]


@dataclass(frozen=True)
class Evaluation:
    """What PyTorch's eager mode computed, and what with."""

    outputs: Mapping[str, Array]
    parameters_sha256: str
    torch_version: str


@dataclass(frozen=True)
class Model:
    """A registered model."""

    name: str
    module: ModuleType

    @property
    def summary(self) -> str:
        return (self.module.__doc__ or "").partition("\n")[0]

    @property
    def outputs(self) -> tuple[str, ...]:
        return tuple(self.module.OUTPUTS)

    def inputs(self, case: str) -> dict[str, Array]:
        """The inputs of a case by name, in the model's order.

        Raises:
            UsageError: there is no such case.
        """
        if case not in CASES:
            known = ", ".join(CASES)
            raise UsageError(f"model {self.name!r}: unknown case; expected one of {known}, got {case!r}")
        return dict(self.module.inputs(case))

    def build(self) -> Any:
        """The torch module in evaluation mode, with its fixed parameters.

        Raises:
            ToolMissingError: PyTorch is not installed.
        """
        require_torch()
        return self.module.build()

    def evaluate(self, case: str, dtype: Literal["float32", "float64"]) -> Evaluation:
        """Runs a case in PyTorch's eager mode on one thread.

        In float64 the same float32 parameters and inputs are widened first, so that the result is what
        the float32 model means, computed with 29 more bits. Integers stay as they are.
        """
        torch, module = require_torch(), self.build()
        parameters_sha256 = digest(module)
        arrays = [_widened(array, dtype) for array in self.inputs(case).values()]
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            with torch.no_grad():
                results = module.to(getattr(torch, dtype))(*(torch.from_numpy(array) for array in arrays))
        finally:
            torch.set_num_threads(threads)
        results = results if isinstance(results, tuple) else (results,)
        outputs = {name: np.array(result.numpy()) for name, result in zip(self.outputs, results, strict=True)}
        return Evaluation(outputs, parameters_sha256, str(torch.__version__))


def _widened(array: Array, dtype: str) -> Array:
    return array.astype(dtype) if array.dtype.kind == "f" else array


def names() -> tuple[str, ...]:
    """The names of all models, sorted; nothing is imported."""
    found = (entry.name for entry in pkgutil.iter_modules(__path__))
    return tuple(sorted(name for name in found if not name.startswith("_")))


def load(name: str) -> Model:
    """Finds a model by name.

    Raises:
        UsageError: there is no such model; the nearest name is given.
    """
    if name not in names():
        near = difflib.get_close_matches(name, names(), n=1)
        hint = f"did you mean {near[0]!r}?" if near else None
        known = ", ".join(names())
        raise UsageError(f"model: unknown name; expected one of {known}, got {name!r}", hint=hint)
    return Model(name, importlib.import_module(f"{__name__}.{name}"))


def require_torch() -> Any:
    """Imports torch.

    Raises:
        ToolMissingError: it can't be imported.
    """
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        raise ToolMissingError(
            f"torch: can't be imported; expected PyTorch 1.13 or newer, got {error}", hint="pip install torch"
        ) from error
