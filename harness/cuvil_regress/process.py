"""Runs external commands, each as a process group of its own that never outlives its step."""

from __future__ import annotations

import contextlib
import os
import resource
import select
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

GRACE_S = 2.0
"""Time between asking a process group to end and killing it."""


class StoppedError(Exception):
    """The run is being ended from outside: the command was killed or not started at all."""


@dataclass(frozen=True)
class Finished:
    """How a command ended. `code` is its exit code, or minus the signal that ended it."""

    argv: tuple[str, ...]
    code: int
    timed_out: bool
    elapsed_ns: int
    stdout: str
    stderr: str


class Processes:
    """The commands of one run: starts them, and can end all those that are alive.

    Output goes to files, not pipes, so that a grandchild that holds a pipe open can't block a step.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._alive: set[int] = set()
        self._stopped = False

    def run(
        self,
        argv: Sequence[str],
        *,
        log: Path,
        timeout_s: float,
        environment: Mapping[str, str] | None = None,
    ) -> Finished:
        """Run one command to its end, or to its timeout.

        The log holds the command line and below it what it wrote to stderr; `<log>.out` holds stdout.

        Raises:
            FileNotFoundError, PermissionError: the program can't be started.
            StoppedError: `stop` was called.
        """
        log.parent.mkdir(parents=True, exist_ok=True)
        stdout = log.with_name(log.name + ".out")
        start = time.monotonic_ns()
        head = f"$ {shlex.join(argv)}\n".encode()
        with stdout.open("wb") as out, log.open("wb") as err:
            err.write(head)
            err.flush()
            child = self._start(argv, out.fileno(), err.fileno(), environment)
            try:
                timed_out = not _wait(child.pid, timeout_s)
            except BaseException:
                self._end(child, ask_first=False)
                raise
            self._end(child, ask_first=timed_out)
        if self._stopped:
            raise StoppedError
        return Finished(
            tuple(argv),
            child.returncode,
            timed_out,
            time.monotonic_ns() - start,
            stdout.read_text(encoding="utf-8", errors="replace"),
            log.read_bytes()[len(head) :].decode("utf-8", errors="replace"),
        )

    def stop(self) -> None:
        """End every command that is alive and start no further one; returns when none is left to end."""
        with self._lock:
            self._stopped = True
        self._signal_all(signal.SIGTERM)
        deadline = time.monotonic() + GRACE_S
        while self._alive and time.monotonic() < deadline:
            time.sleep(0.02)
        self._signal_all(signal.SIGKILL)

    def _signal_all(self, number: signal.Signals) -> None:
        with self._lock:
            for group in self._alive:
                _signal_group(group, number)

    def _start(
        self, argv: Sequence[str], out: int, err: int, environment: Mapping[str, str] | None
    ) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._stopped:
                raise StoppedError
            child = subprocess.Popen(
                list(argv),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=None if environment is None else dict(environment),
                start_new_session=True,
            )
            self._alive.add(child.pid)
        # A crash is a result here, and no reason to fill the disk; QEMU writes cores of its own, too.
        with contextlib.suppress(ProcessLookupError):
            hard = resource.prlimit(child.pid, resource.RLIMIT_CORE)[1]
            resource.prlimit(child.pid, resource.RLIMIT_CORE, (0, hard))
        return child

    def _end(self, child: subprocess.Popen[bytes], *, ask_first: bool) -> None:
        """Kill what is left of the group. Its leader is reaped last, so its number can't be reused before."""
        if ask_first:
            _signal_group(child.pid, signal.SIGTERM)
            _wait(child.pid, GRACE_S)
        with self._lock:
            _signal_group(child.pid, signal.SIGKILL)
            self._alive.discard(child.pid)
        child.wait()
        _await_end_of_group(child.pid)


def _wait(pid: int, timeout_s: float) -> bool:
    """Whether the process ended within the time; it stays unreaped."""
    descriptor = os.pidfd_open(pid)
    try:
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        return bool(poller.poll(timeout_s * 1000))
    finally:
        os.close(descriptor)


def _await_end_of_group(group: int) -> None:
    """Wait for killed members to be gone: the kernel takes a moment for each, and init for the orphans."""
    deadline = time.monotonic() + GRACE_S
    with contextlib.suppress(ProcessLookupError):
        while time.monotonic() < deadline:
            os.killpg(group, 0)
            time.sleep(0.002)


def _signal_group(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):  # every member ended by itself
        os.killpg(group, number)
