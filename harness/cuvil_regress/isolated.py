"""Calls a function of this package as a command of its own, so that no file it reads can end a whole run.

Reading a library or comparing a tensor is this package's own work, but what is read comes from others: if it
makes the function hang, crash or raise what no one foresaw, that is one cell's fault, found within a timeout.
Arguments and result travel as pickles through a folder that only this call uses.
"""

from __future__ import annotations

import pickle
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

from cuvil_regress.errors import HarnessError
from cuvil_regress.process import Finished, Processes

T = TypeVar("T")


class CallFailedError(Exception):
    """The call gave no answer; `finished` says how its process ended."""

    def __init__(self, finished: Finished) -> None:
        super().__init__(f"ended with {finished.code}")
        self.finished = finished


def call(processes: Processes, function: Callable[[], T], *, log: Path, timeout_s: float) -> T:
    """The result of `function()`, a partial of a module's own function.

    Raises:
        HarnessError: the function raised it.
        CallFailedError: it took too long, crashed, or raised something else, which the log then holds.
        NotStartedError, StoppedError: as for `Processes.run`.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=log.parent, prefix=".call.") as folder:
        request, answer = Path(folder, "request"), Path(folder, "answer")
        request.write_bytes(pickle.dumps(function))
        argv = [sys.executable, "-m", "cuvil_regress.isolated", str(request), str(answer)]
        finished = processes.run(argv, log=log, timeout_s=timeout_s)
        if finished.code != 0 or finished.timed_out:
            raise CallFailedError(finished)
        result: T | HarnessError = pickle.loads(answer.read_bytes())
    if isinstance(result, HarnessError):
        raise result
    return result


def main(request: Path, answer: Path) -> None:
    """What the process of a call does."""
    function: partial[object] = pickle.loads(request.read_bytes())
    try:
        result = function()
    except HarnessError as error:
        result = error
    answer.write_bytes(pickle.dumps(result))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
