"""Process groups: nothing of a command is left, however it ends."""

from __future__ import annotations

import shlex
import sys
import threading
import time
from pathlib import Path

import pytest

from cuvil_regress.process import Processes, StoppedError

GRANDCHILD = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    open(sys.argv[1], "w").write(str(os.getpid()))
    time.sleep(60)
if sys.argv[2] == "stay":
    time.sleep(60)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
"""


def is_alive(pid: int) -> bool:
    """Whether the process runs; one that only waits to be reaped does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def assert_dies(pid: int) -> None:
    deadline = time.monotonic() + 5
    while is_alive(pid):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_what_a_command_says_and_how_it_ends(tmp_path: Path) -> None:
    script = "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"
    finished = Processes().run([sys.executable, "-c", script], log=tmp_path / "logs" / "a.log", timeout_s=60)
    assert (finished.code, finished.stdout, finished.stderr) == (3, "out\n", "err\n")
    assert not finished.timed_out
    command, said = (tmp_path / "logs" / "a.log").read_text().split("\n", 1)
    assert shlex.split(command) == ["$", sys.executable, "-c", script]
    assert said == "err\n"


def test_a_signal_is_a_negative_code(tmp_path: Path) -> None:
    script = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    finished = Processes().run([sys.executable, "-c", script], log=tmp_path / "a.log", timeout_s=60)
    assert finished.code == -9


@pytest.mark.parametrize("way", ["stay", "leave"])
def test_no_grandchild_is_left(tmp_path: Path, way: str) -> None:
    pid_file = tmp_path / "pid"
    finished = Processes().run(
        [sys.executable, "-c", GRANDCHILD, str(pid_file), way], log=tmp_path / "a.log", timeout_s=1.5
    )
    assert finished.timed_out == (way == "stay")
    assert_dies(int(pid_file.read_text()))


def test_stopping_ends_what_runs_and_refuses_what_comes(tmp_path: Path) -> None:
    processes, raised = Processes(), list[StoppedError]()

    def run() -> None:
        try:
            processes.run([sys.executable, "-c", "import time; time.sleep(60)"], log=log, timeout_s=60)
        except StoppedError as error:
            raised.append(error)

    log = tmp_path / "a.log"
    thread = threading.Thread(target=run)
    thread.start()
    while not log.exists():
        time.sleep(0.01)
    processes.stop()
    thread.join(10)
    assert len(raised) == 1
    with pytest.raises(StoppedError):
        processes.run(["true"], log=tmp_path / "b.log", timeout_s=1)


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Processes().run(["no-such-program"], log=tmp_path / "a.log", timeout_s=1)
