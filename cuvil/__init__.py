"""Cuvil: ONNX and PyTorch models to native code with the same bits on every target."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from cuvil.session import CompiledModel, compile, export, load

__all__ = ["CompiledModel", "__version__", "compile", "export", "load"]


def __getattr__(name: str) -> Any:
    """Loads the session module on first use: `import cuvil` alone needs nothing but Python."""
    if name in ("CompiledModel", "compile", "export", "load"):
        from cuvil import session

        return getattr(session, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
