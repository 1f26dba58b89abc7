"""Finds and ends what a command started, also what left its process group and its session.

Each command gets an environment variable of its own, which everything that it starts inherits. What still
has it at the end is killed. So is what is in the command's session, and every child of either. A process
escapes only if it leaves the session, loses its parent and wipes its environment.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

PREFIX = "CUVIL_REGRESS_MARK_"
_PAUSE_S = 0.004
_QUIET_SCANS = 2
"""Scans in a row that must find nothing: a process shows no environment while it becomes another program."""


@dataclass(frozen=True)
class Process:
    """A line of /proc; the start time tells it from a later process of the same number."""

    pid: int
    parent: int
    session: int
    start_time: int


def end_marked(mark: str, *, patience_s: float) -> bool:
    """Kill every process whose environment has a variable that starts with `mark`; False if one is left."""
    return _end(lambda process: _is_marked(process.pid, mark), patience_s)


def of_command(leader: int, mark: str) -> frozenset[Process]:
    """The living processes of a command, whose leader may be dead but must not have been reaped."""
    return frozenset(_members(_living(), lambda process: _is_of(process, leader, mark)))


def end_command(leader: int, mark: str, known: Collection[Process], *, patience_s: float) -> bool:
    """Kill what is left of a command, and what is left of those `known` to be its own.

    Returns:
        False if something was still alive when the patience ended.
    """
    known_by_number = {(process.pid, process.start_time) for process in known}

    def belongs(process: Process) -> bool:
        return (process.pid, process.start_time) in known_by_number or _is_of(process, leader, mark)

    return _end(belongs, patience_s)


def _is_of(process: Process, leader: int, mark: str) -> bool:
    return process.session == leader or _is_marked(process.pid, mark)


def _end(belongs: Callable[[Process], bool], patience_s: float) -> bool:
    deadline = time.monotonic() + patience_s
    quiet = 0
    while quiet < _QUIET_SCANS:
        members = _members(_living(), belongs)
        for process in members:
            _kill(process)
        quiet = 0 if members else quiet + 1
        if members and time.monotonic() > deadline:
            return False
        time.sleep(_PAUSE_S)
    return True


def _members(living: Mapping[int, Process], belongs: Callable[[Process], bool]) -> list[Process]:
    """Those that belong, and all their descendants."""
    found = {pid for pid, process in living.items() if pid != os.getpid() and belongs(process)}
    while grown := _children(living, found):
        found |= grown
    return [living[pid] for pid in sorted(found)]


def _children(living: Mapping[int, Process], parents: Collection[int]) -> set[int]:
    return {pid for pid, process in living.items() if process.parent in parents and pid not in parents}


def _living() -> dict[int, Process]:
    pids = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal())
    return {pid: process for pid in pids if (process := _read(pid))}


def _read(pid: int) -> Process | None:
    """A process that lives; one that only waits to be reaped does not."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    if not fields or fields[0] in (b"Z", b"X"):
        return None
    return Process(pid, int(fields[1]), int(fields[3]), int(fields[19]))


def _is_marked(pid: int, mark: str) -> bool:
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:  # it ended, or it is another user's
        return False
    return variables.startswith(mark.encode()) or b"\0" + mark.encode() in variables


def _kill(process: Process) -> None:
    """Kill exactly this process: its number may have passed to another one meanwhile."""
    with contextlib.suppress(OSError):
        descriptor = os.pidfd_open(process.pid)
        try:
            now = _read(process.pid)
            if now is not None and now.start_time == process.start_time:
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        finally:
            os.close(descriptor)
