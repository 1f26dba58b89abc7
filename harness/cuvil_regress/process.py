"""Runs external commands, each in a session of its own; nothing that one started outlives its step."""

from __future__ import annotations

import contextlib
import itertools
import os
import resource
import select
import shlex
import signal
import subprocess
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from cuvil_regress import descendants

GRACE_S = 1.0
"""Time between asking a process group to end and killing it, and time for the killed to be gone."""


class StoppedError(Exception):
    """The run is being ended from outside: the command was killed or not started at all."""


class NotStartedError(Exception):
    """The program can't be started; the message is the system's reason."""


@dataclass(frozen=True)
class Finished:
    """How a command ended. `code` is its exit code, or minus the signal that ended it."""

    argv: tuple[str, ...]
    code: int
    timed_out: bool
    elapsed_ns: int
    stdout: str
    stderr: str


def new_mark() -> str:
    """The beginning of environment variables that no other run has."""
    return f"{descendants.PREFIX}{uuid.uuid4().hex}"


class Processes:
    """The commands of one run: starts them, and can end all those that are alive.

    Output goes to files, not pipes, so that a grandchild that holds a pipe open can't block a step. Call
    `run` on threads other than the main one: an interrupt, which Python raises there, then never meets a
    half-started command.
    """

    def __init__(self, mark: str | None = None) -> None:
        self.mark = mark or new_mark()
        """What the environment variables of all commands of this run begin with."""
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._alive: dict[int, str] = {}
        self._known: dict[int, frozenset[descendants.Process]] = {}
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
            NotStartedError: the program can't be started.
            StoppedError: `stop` was called.
            OSError: the log can't be written.
        """
        log.parent.mkdir(parents=True, exist_ok=True)
        stdout = log.with_name(log.name + ".out")
        start = time.monotonic_ns()
        head = f"$ {shlex.join(argv)}\n".encode()
        with stdout.open("wb") as out, log.open("wb") as err:
            err.write(head)
            err.flush()
            mark = f"{self.mark}_{next(self._numbers)}="
            variables = {**(os.environ if environment is None else environment), mark[:-1]: "1"}
            child = self._start(argv, out.fileno(), err.fileno(), variables, mark)
            try:
                timed_out = not _wait(child.pid, timeout_s)
            except BaseException:
                self._end(child, mark, ask_first=False)
                raise
            self._end(child, mark, ask_first=timed_out)
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
            self._known = {pid: descendants.of_command(pid, mark) for pid, mark in self._alive.items()}
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
        self, argv: Sequence[str], out: int, err: int, environment: Mapping[str, str], mark: str
    ) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._stopped:
                raise StoppedError
            try:
                child = subprocess.Popen(
                    list(argv),
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                    env=environment,
                    start_new_session=True,
                )
            except OSError as error:
                raise NotStartedError((error.strerror or "unknown reason").lower()) from error
            self._alive[child.pid] = mark
        # A crash is a result here, and no reason to fill the disk; QEMU writes cores of its own, too.
        with contextlib.suppress(ProcessLookupError):
            hard = resource.prlimit(child.pid, resource.RLIMIT_CORE)[1]
            resource.prlimit(child.pid, resource.RLIMIT_CORE, (0, hard))
        return child

    def _end(self, child: subprocess.Popen[bytes], mark: str, *, ask_first: bool) -> None:
        """Kill what is left of a command. Its leader is reaped last, so its number can't be reused before."""
        known = descendants.of_command(child.pid, mark)  # while parents live, their children can be told
        if ask_first:
            _signal_group(child.pid, signal.SIGTERM)
            _wait(child.pid, GRACE_S)
        with self._lock:
            _signal_group(child.pid, signal.SIGKILL)
            del self._alive[child.pid]
            known |= self._known.pop(child.pid, frozenset())
        descendants.end_command(child.pid, mark, known, patience_s=GRACE_S)
        child.wait()


def _wait(pid: int, timeout_s: float) -> bool:
    """Whether the process ended within the time; it stays unreaped."""
    descriptor = os.pidfd_open(pid)
    try:
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        return bool(poller.poll(timeout_s * 1000))
    finally:
        os.close(descriptor)


def _signal_group(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):  # every member ended by itself
        os.killpg(group, number)


def run_on_the_side(
    processes: Processes,
    argv: Sequence[str],
    *,
    log: Path,
    timeout_s: float,
    environment: Mapping[str, str] | None = None,
) -> Finished:
    """`Processes.run` for the main thread: an interrupt ends the command before it goes on."""
    with ThreadPoolExecutor(1) as pool:
        try:
            return pool.submit(
                processes.run, argv, log=log, timeout_s=timeout_s, environment=environment
            ).result()
        except KeyboardInterrupt:
            processes.stop()
            raise
