"""Runs every `.cvir` file of this folder, and checks that the runner itself can fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.filetests.filetest import EXPECT, FileTest, Outcome, read

FOLDER = Path(__file__).parent
FILES = sorted(FOLDER.rglob("*.cvir"))
GRAPH = 'graph "g" (%x: f32[2]) {\n  %y: f32[2] = abs(%x) at "a"\n  return %y\n}\n'


@pytest.mark.parametrize("path", FILES, ids=[str(path.relative_to(FOLDER)) for path in FILES])
def test_file(path: Path, pytestconfig: pytest.Config) -> None:
    test = read(path)
    found = test.run()
    if pytestconfig.getoption("--update") and found != test.expected:
        path.write_text(test.rewritten(found), encoding="utf-8")
    else:
        assert found == test.expected


def _file(folder: Path, text: str) -> FileTest:
    path = folder / "case.cvir"
    path.write_text(text, encoding="utf-8")
    return read(path)


def test_a_file_without_expectation_fails(tmp_path: Path) -> None:
    test = _file(tmp_path, f"// test: parse\n{GRAPH}")
    assert test.expected == Outcome()
    assert test.run() == Outcome(output=GRAPH)


def test_a_file_without_command_fails(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"^case\.cvir:1: expected '// test: parse', 'verify' or 'pass NAME'$"
    ):
        _file(tmp_path, GRAPH + EXPECT + GRAPH).run()


def test_a_second_error_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^case\.cvir:3: a second '// error:'"):
        _file(tmp_path, "// test: parse\n// error: one\n// error: two\n")


@pytest.mark.parametrize("graph", [GRAPH, GRAPH.replace("abs", "no_such_operator")])
def test_a_rewritten_file_passes(graph: str, tmp_path: Path) -> None:
    stale = _file(tmp_path, f"// test: parse\n{graph}{EXPECT}stale\n")
    found = stale.run()
    assert found != stale.expected
    fresh = _file(tmp_path, stale.rewritten(found))
    assert fresh.run() == fresh.expected
