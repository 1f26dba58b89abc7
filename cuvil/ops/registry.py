"""Finds the operators and importers that the modules of this package offer."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from functools import cache
from types import ModuleType

import cuvil.ops
from cuvil.ir.op import OpDef
from cuvil.ops.foreign import Importer


def _modules() -> Iterator[ModuleType]:
    for info in pkgutil.iter_modules(cuvil.ops.__path__):
        if info.name != "registry":
            yield importlib.import_module(f"cuvil.ops.{info.name}")


@cache
def operators() -> dict[str, OpDef]:
    """Every operator of the graph IR, by name."""
    return {op.name: op for module in _modules() for op in getattr(module, "OPERATORS", ())}


@cache
def onnx_importers() -> dict[str, Importer]:
    """How each supported ONNX operator type of the standard domain is imported."""
    return {name: load for module in _modules() for name, load in getattr(module, "ONNX", {}).items()}
