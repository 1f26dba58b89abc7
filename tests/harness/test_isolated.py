"""Functions called in a process of their own."""

from __future__ import annotations

import os
import time
from functools import partial
from pathlib import Path

import pytest

from cuvil_regress import isolated
from cuvil_regress.errors import HarnessError, UsageError
from cuvil_regress.process import Processes

TIMEOUT_S = 60.0


def test_the_result_comes_back(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "step.log"
    assert isolated.call(Processes(), partial(divmod, 17, 5), log=log, timeout_s=TIMEOUT_S) == (3, 2)
    assert isolated.call(Processes(), partial(os.getpid), log=log, timeout_s=TIMEOUT_S) != os.getpid()
    assert sorted(path.name for path in log.parent.iterdir()) == ["step.log", "step.log.out"]


def test_a_harness_error_is_raised_here_with_its_hint(tmp_path: Path) -> None:
    from cuvil_regress.policy import load

    with pytest.raises(HarnessError, match="no-such-policy") as caught:
        isolated.call(Processes(), partial(load, "no-such-policy"), log=tmp_path / "log", timeout_s=TIMEOUT_S)
    assert type(caught.value) is UsageError


def test_any_other_exception_stays_in_the_log(tmp_path: Path) -> None:
    with pytest.raises(isolated.CallFailedError) as caught:
        isolated.call(Processes(), partial(divmod, 1, 0), log=tmp_path / "log", timeout_s=TIMEOUT_S)
    assert caught.value.finished.code == 1
    assert "ZeroDivisionError" in (tmp_path / "log").read_text()


def test_a_crash_ends_the_call_alone(tmp_path: Path) -> None:
    with pytest.raises(isolated.CallFailedError) as caught:
        isolated.call(Processes(), partial(os.abort), log=tmp_path / "log", timeout_s=TIMEOUT_S)
    assert caught.value.finished.code == -6


def test_a_hanging_call_is_ended(tmp_path: Path) -> None:
    with pytest.raises(isolated.CallFailedError) as caught:
        isolated.call(Processes(), partial(time.sleep, 600), log=tmp_path / "log", timeout_s=0.5)
    assert caught.value.finished.timed_out
