"""Watching a compilation: what the variables print and leave behind."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import cuvil
from cuvil import debug, toolchain
from cuvil.driver import PASSES, Options, compile_model
from cuvil.errors import ModelError, UsageError
from tests.e2e.models import product

PACKAGE = Path(cuvil.__file__).parent
HOST = toolchain.host_target()
MODEL = product(2, 3, 4)


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CUVIL_DEBUG", "CUVIL_DUMP"):
        monkeypatch.delenv(name, raising=False)


def compiled() -> None:
    compile_model(MODEL, Options(HOST))


def test_every_variable_that_is_read_is_in_the_table_and_in_the_documentation() -> None:
    sources = "".join(path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py"))
    read = set(re.findall(r"""(?:environ\.get\(|environ\[|getenv\()["'](\w+)["']""", sources))
    assert read == set(debug.VARIABLES)
    assert len(debug.VARIABLES) <= 8
    section = (PACKAGE / "README.md").read_text(encoding="utf-8").partition("\n## Debug\n")[2]
    told = re.findall(r"^\| `(CUVIL_\w+)` \|", section.partition("\n## ")[0], re.MULTILINE)
    assert told == list(debug.VARIABLES)


def test_nothing_is_printed_unasked(capsys: pytest.CaptureFixture[str]) -> None:
    compiled()
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("level", "words"),
    [
        (1, "object code: "),
        (2, "fuse: 3 -> 1 nodes"),
        (3, "6.fuse.cvir: \ngraph "),
        (4, "loops.txt: \nkernel "),
        (5, "code.ll: \ntarget triple"),
        (6, "code.s: \n"),
    ],
)
def test_each_level_adds_to_the_one_below(
    level: int, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CUVIL_DEBUG", str(level - 1))
    compiled()
    assert words not in capsys.readouterr().err
    monkeypatch.setenv("CUVIL_DEBUG", str(level))
    compiled()
    assert words in capsys.readouterr().err


def test_a_graph_that_a_pass_leaves_alone_is_not_printed_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CUVIL_DEBUG", "3")
    compiled()
    assert "1.fold_constants.cvir: as before\n" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["7", "-1", "x", "1.5", "²"])
def test_a_level_that_is_none(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUVIL_DEBUG", text)
    with pytest.raises(UsageError, match="CUVIL_DEBUG: expected a number from 0 to 6, got"):
        compiled()


def test_a_dump_has_every_stage_and_replaces_the_former(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUVIL_DUMP", str(tmp_path / "dumps"))
    compiled()
    (folder,) = (tmp_path / "dumps").iterdir()
    assert re.fullmatch(rf"small-[0-9a-f]{{8}}-{HOST}", folder.name)
    (folder / "old").touch()
    compiled()
    assert list((tmp_path / "dumps").iterdir()) == [folder]
    passes = [f"{number}.{run.__name__}.cvir" for number, run in enumerate(PASSES, 1)]
    expected = {"0.import.cvir", *passes, "loops.txt", "code.ll", "code.s", "stages.txt"}
    assert {path.name for path in folder.iterdir()} == expected
    assert "fuse: 3 -> 1 nodes\n" in (folder / "stages.txt").read_text()


def test_a_compilation_that_fails_leaves_its_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUVIL_DUMP", str(tmp_path))
    with pytest.raises(ModelError) as caught:
        compile_model(b"no model", Options(HOST))
    (folder,) = tmp_path.iterdir()
    assert (folder / "error.txt").read_text() == f"ModelError: {caught.value}\n"


def test_a_dump_that_has_no_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("CUVIL_DUMP", str(tmp_path / "file"))
    with pytest.raises(UsageError, match=r"CUVIL_DUMP: '.*file' can't be written: "):
        compiled()
