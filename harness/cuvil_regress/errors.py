"""The harness's errors: each carries one clear line, an optional hint, and its exit code."""

from __future__ import annotations

EXIT_CLEAN = 0
EXIT_FINDINGS = 1
EXIT_USAGE = 2
EXIT_ENVIRONMENT = 3
EXIT_INTERNAL = 70
EXIT_INTERRUPTED = 130


class HarnessError(Exception):
    """A fault with one line for the user; `hint` says what to do about it."""

    exit_code = EXIT_FINDINGS

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint

    def render(self) -> str:
        """The message, followed by a `hint:` line where there is one."""
        return f"{self}\nhint: {self.hint}" if self.hint else str(self)


class UsageError(HarnessError):
    """The command line, a matrix file or a policy file is wrong."""

    exit_code = EXIT_USAGE


class ToolMissingError(HarnessError):
    """The machine lacks something that a step needs (an emulator, a linker, PyTorch)."""

    exit_code = EXIT_ENVIRONMENT


class RunFolderError(HarnessError):
    """The folder of a run can't be written to any more."""

    exit_code = EXIT_ENVIRONMENT


class GoldenDamagedError(HarnessError):
    """A stored golden is missing, truncated, changed, or a git-lfs pointer."""
