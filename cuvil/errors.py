"""The compiler's errors: each carries one clear line, an optional hint, and its exit code."""

from __future__ import annotations

EXIT_USAGE = 2
EXIT_MODEL = 3
EXIT_LIMIT = 4
EXIT_TOOLCHAIN = 5
EXIT_INTERNAL = 70


class CuvilError(Exception):
    """A fault with one line for the user; `hint` says what to do about it."""

    exit_code = EXIT_INTERNAL

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint

    def render(self) -> str:
        """The message, followed by a `hint:` line where there is one."""
        return f"{self}\nhint: {self.hint}" if self.hint else str(self)


class UsageError(CuvilError):
    """The caller asked for something that does not exist: a target, an option, an input name."""

    exit_code = EXIT_USAGE


class ModelError(CuvilError):
    """The model is missing, damaged, or breaks a rule of its own format."""

    exit_code = EXIT_MODEL


class UnsupportedError(ModelError):
    """The model is valid, but uses an operator, opset, dtype or shape that is not compiled yet."""


class LimitError(CuvilError):
    """The model exceeds a size that the compiler or the target can handle."""

    exit_code = EXIT_LIMIT


class ToolchainError(CuvilError):
    """A linker or compiler is missing or failed, or a library can't be loaded on this machine."""

    exit_code = EXIT_TOOLCHAIN


class InternalError(CuvilError):
    """The compiler broke one of its own rules: a fault of Cuvil, not of the model."""

    exit_code = EXIT_INTERNAL
