"""The tools that tests need are those that CI requires, so that nothing is skipped there unseen."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from cuvil import toolchain
from cuvil.targets.target import TARGET_NAMES, find_target
from tests.needs import need, need_module, need_program

TESTS = Path(__file__).parent
CI = TESTS.parent / ".ci" / "run"

OPTIONAL = {"strace", "chromium", "unshare", "repository"}
"""What no machine must have: a test of it would else demand more than a C toolchain of the system."""


def _named_tools() -> Iterator[str]:
    """The first argument of every call of a function of `tests.needs`."""
    for path in TESTS.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(
                    func=ast.Name("need" | "need_program" | "need_module"),
                    args=[ast.Constant(str(tool)), *_],
                ):
                    yield tool


def test_ci_requires_every_tool_that_a_test_names() -> None:
    line = re.search(r"^export CUVIL_REQUIRE=(\S+)$", CI.read_text(encoding="utf-8"), re.MULTILINE)
    assert line
    required = set(line[1].split(","))
    targets = map(find_target, TARGET_NAMES)
    foreign = {target.emulator for target in targets if target.platform != toolchain.host_target()}
    named = {*_named_tools(), *foreign}
    assert required == named - OPTIONAL


def test_a_missing_tool_is_a_skip_and_a_failure_where_it_is_required(monkeypatch: pytest.MonkeyPatch) -> None:
    absent = "no_such_tool"
    monkeypatch.setenv("CUVIL_REQUIRE", "cc")
    for ask in (need_program, need_module):
        with pytest.raises(pytest.skip.Exception, match="no_such_tool is missing"):
            ask(absent)
    monkeypatch.setenv("CUVIL_REQUIRE", f"cc,{absent}")
    for ask in (need_program, need_module):
        with pytest.raises(pytest.fail.Exception, match="CUVIL_REQUIRE lists it"):
            ask(absent)
    need(absent, present=True)
