"""Finds the operators and importers that the modules of this package offer."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable, Iterator
from functools import cache
from types import ModuleType
from typing import TypeVar

import cuvil.ops
from cuvil.errors import InternalError
from cuvil.ir.op import OpDef
from cuvil.ops.foreign import Importer

T = TypeVar("T")


def _modules() -> Iterator[ModuleType]:
    for info in pkgutil.iter_modules(cuvil.ops.__path__):
        if info.name != "registry":
            yield importlib.import_module(f"cuvil.ops.{info.name}")


@cache
def operators() -> dict[str, OpDef]:
    """Every operator of the graph IR, by name."""
    return _collect((op.name, op) for module in _modules() for op in getattr(module, "OPERATORS", ()))


@cache
def onnx_importers() -> dict[str, Importer]:
    """How each supported ONNX operator type of the standard domain is imported."""
    return _collect(item for module in _modules() for item in getattr(module, "ONNX", {}).items())


def _collect(items: Iterable[tuple[str, T]]) -> dict[str, T]:
    """The items by name; two of one name are a fault of whoever added the second."""
    found: dict[str, T] = {}
    for name, item in items:
        if name in found:
            raise InternalError(f"ops: {name!r} is offered by two modules")
        found[name] = item
    return found
