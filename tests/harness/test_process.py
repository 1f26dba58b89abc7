"""Commands: nothing of one is left, however it ends, and nothing else is touched."""

from __future__ import annotations

import shlex
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from cuvil_regress import descendants
from cuvil_regress.process import NotStartedError, Processes, StoppedError

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


ESCAPEE = """
import os, signal, sys, time

if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.setsid()
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        print("still here", flush=True)
        with open(sys.argv[1], "w") as file:
            file.write(f"{os.getpid()}\\n")
        time.sleep(60)
    os._exit(0)
os.wait()
while not os.path.exists(sys.argv[1]) or not open(sys.argv[1]).read().endswith("\\n"):
    time.sleep(0.01)
if sys.argv[2] == "stay":
    time.sleep(60)
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


@pytest.mark.parametrize("way", ["stay", "leave"])
def test_one_that_left_its_session_twice_ignores_signals_and_holds_stdout(tmp_path: Path, way: str) -> None:
    pid_file = tmp_path / "pid"
    start = time.monotonic()
    finished = Processes().run(
        [sys.executable, "-c", ESCAPEE, str(pid_file), way], log=tmp_path / "a.log", timeout_s=1.5
    )
    assert time.monotonic() - start < 6
    assert (finished.timed_out, finished.stdout) == (way == "stay", "still here\n")
    assert not is_alive(int(pid_file.read_text()))


def test_a_pipeline_whose_writer_lives_on_is_not_waited_for(tmp_path: Path) -> None:
    """The wrapper dies at the timeout; what it started keeps the pipe open that its reader waits for."""
    pid_file, processes = tmp_path / "pid", Processes()
    writer = shlex.join([sys.executable, "-c", ESCAPEE, str(pid_file), "stay"])
    start = time.monotonic()
    finished = processes.run(["sh", "-c", f"{writer} | cat"], log=tmp_path / "a.log", timeout_s=1.5)
    assert time.monotonic() - start < 6
    assert (finished.timed_out, finished.stdout) == (True, "still here\n")
    assert not is_alive(int(pid_file.read_text()))
    assert processes.run(["echo", "next"], log=tmp_path / "b.log", timeout_s=60).stdout == "next\n"


def test_one_that_wiped_its_environment_but_kept_its_session_or_its_parent(tmp_path: Path) -> None:
    script = "env -i sleep 61 & env -i setsid sleep 62 & echo $! > pid; sleep 60"
    command = ["sh", "-c", f"cd {shlex.quote(str(tmp_path))}; {script}"]
    finished = Processes().run(command, log=tmp_path / "a.log", timeout_s=0.7)
    assert finished.timed_out
    assert not is_alive(int((tmp_path / "pid").read_text()))


def test_a_neighbour_is_left_alone(tmp_path: Path) -> None:
    """One whose environment merely mentions a mark, and one that belongs to another command."""
    processes = Processes()
    mention = {"OTHER": f"{processes.mark}_1=", "PATH": "/usr/bin:/bin"}
    with subprocess.Popen(["sleep", "60"], env=mention) as bystander:
        beside = threading.Thread(
            target=processes.run, args=(["sleep", "1"],), kwargs={"log": tmp_path / "b.log", "timeout_s": 60}
        )
        beside.start()
        processes.run(["true"], log=tmp_path / "a.log", timeout_s=60)
        assert beside.is_alive()
        beside.join()
        assert bystander.poll() is None
        bystander.kill()


def test_what_a_killed_run_left_is_found_by_its_mark(tmp_path: Path) -> None:
    mark = Processes().mark
    with subprocess.Popen(["sleep", "60"], env={f"{mark}_7": "1", "PATH": "/usr/bin:/bin"}) as left:
        assert descendants.end_marked(f"{mark}_", patience_s=5)
        assert left.wait(5) == -9


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
    with pytest.raises(NotStartedError, match="no such file or directory"):
        Processes().run(["no-such-program"], log=tmp_path / "a.log", timeout_s=1)
