"""`cuvil-run` over folders of cases, on every target."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from cuvil import toolchain

from .conftest import Machine, ModelBuilder

Floats = npt.NDArray[np.float32]

ORDINARY = np.linspace(1, 2, 1024, dtype=np.float32)
MANIFEST = "cuvil-tensors 1\ntensor float32 1 1024 0.bin x\n"


def _write_case(folder: Path, values: Floats = ORDINARY, manifest: str = MANIFEST) -> None:
    folder.mkdir(parents=True)
    (folder / "manifest.txt").write_text(manifest)
    (folder / "0.bin").write_bytes(values.tobytes())


def _with_first(value: float) -> Floats:
    values = ORDINARY.copy()
    values[0] = value
    return values


def _run(
    machine: Machine, model: Path, tmp_path: Path, *options: str, expect: int = 0
) -> list[dict[str, object]]:
    runner = toolchain.prebuilt(machine.target).runner
    cases, outputs = tmp_path / "cases", tmp_path / "deep" / "out"
    finished = machine.run(runner, *options, model, cases, outputs, expect=expect)
    return [json.loads(line) for line in finished.stdout.splitlines()]


def _outputs(tmp_path: Path, case: str) -> Floats:
    folder = tmp_path / "deep" / "out" / case
    assert (folder / "manifest.txt").read_text() == "cuvil-tensors 1\ntensor float32 1 1024 0.bin y\n"
    return np.fromfile(folder / "0.bin", np.float32)


def test_cases_survive_a_crash_and_a_damaged_input(
    machine: Machine, build_model: ModelBuilder, tmp_path: Path
) -> None:
    cases = tmp_path / "cases"
    _write_case(cases / "a-ordinary")
    _write_case(cases / "b-crash", _with_first(-1))
    _write_case(cases / "c-short", ORDINARY[:7])
    _write_case(cases / "d-failure", _with_first(-2))
    _write_case(cases / "e-last", ORDINARY * 3)
    (cases / ".hidden").mkdir()
    (cases / "notes.txt").write_text("not a case")
    results = _run(machine, build_model(machine), tmp_path, "--threads", "2", expect=1)
    assert [result["case"] for result in results] == [
        "a-ordinary",
        "b-crash",
        "c-short",
        "d-failure",
        "e-last",
    ]
    assert [result["status"] for result in results] == ["ok", "crash", "error", "error", "ok"]
    assert results[1]["signal"] in (4, 5, 11)  # how a trap instruction ends differs between machines
    assert str(results[2]["message"]).endswith("wrong size of input 'x'; expected 4096 bytes, got 28")
    assert results[3]["message"] == "run: the model reported a failure"
    assert (_outputs(tmp_path, "a-ordinary") == ORDINARY * np.float32(1.1)).all()
    assert (_outputs(tmp_path, "e-last") == ORDINARY * 3 * np.float32(1.1)).all()
    assert sorted(path.name for path in (tmp_path / "deep" / "out").iterdir()) == ["a-ordinary", "e-last"]


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        ("", "no tensor folder; expected first line 'cuvil-tensors 1', got ''"),
        ("cuvil-tensors 2\n", "expected first line 'cuvil-tensors 1', got 'cuvil-tensors 2'"),
        ("cuvil-tensors 1\n", "wrong number of inputs; expected 1, got 0"),
        ("cuvil-tensors 1\ntensor float32 1\n", "line 2 is damaged"),
        ("cuvil-tensors 1\ntensor float32 1 -4 0.bin x\n", "line 2 is damaged"),
        ("cuvil-tensors 1\ntensor float32 99999999999999999999 0.bin x\n", "line 2 is damaged"),
        ("cuvil-tensors 1\ntensor float32 1 1024 ../0.bin x\n", "line 2 is damaged"),
        ("cuvil-tensors 1\ntensor float64 1 1024 0.bin x\n", "wrong dtype; expected float32, got float64"),
        ("cuvil-tensors 1\ntensor float32 2 2 512 0.bin x\n", "wrong shape; expected [1024], got [2, 512]"),
        ("cuvil-tensors 1\ntensor float32 1 1024 1.bin x\n", "1.bin': cannot be read: No such file"),
    ],
)
def test_damaged_manifest_is_named(
    host: Machine, build_model: ModelBuilder, tmp_path: Path, manifest: str, message: str
) -> None:
    _write_case(tmp_path / "cases" / "bad", manifest=manifest)
    (result,) = _run(host, build_model(host), tmp_path, expect=1)
    assert result["status"] == "error"
    assert message in str(result["message"])


def test_missing_manifest(host: Machine, build_model: ModelBuilder, tmp_path: Path) -> None:
    (tmp_path / "cases" / "empty").mkdir(parents=True)
    (result,) = _run(host, build_model(host), tmp_path, expect=1)
    assert str(result["message"]).endswith("manifest.txt': cannot be read: No such file or directory")


def test_inputs_of_another_name_are_taken_in_order(
    host: Machine, build_model: ModelBuilder, tmp_path: Path
) -> None:
    _write_case(tmp_path / "cases" / "renamed", manifest=MANIFEST.replace("bin x", "bin the first input"))
    assert _run(host, build_model(host), tmp_path) == [{"case": "renamed", "status": "ok"}]


def test_case_names_are_proper_json(host: Machine, build_model: ModelBuilder, tmp_path: Path) -> None:
    names = sorted(['quote"back\\slash', "line\nbreak", "größe", "tab\there", "\U0001f600"], key=str.encode)
    for name in names:
        _write_case(tmp_path / "cases" / name)
    assert [result["case"] for result in _run(host, build_model(host), tmp_path)] == names


def test_older_result_goes_when_a_case_fails_now(
    host: Machine, build_model: ModelBuilder, tmp_path: Path
) -> None:
    _write_case(tmp_path / "cases" / "one")
    _run(host, build_model(host), tmp_path)
    _run(host, build_model(host), tmp_path)
    (tmp_path / "cases" / "one" / "0.bin").unlink()
    _run(host, build_model(host), tmp_path, expect=1)
    assert list((tmp_path / "deep" / "out").iterdir()) == []


def test_foreign_files_in_the_output_are_kept(
    host: Machine, build_model: ModelBuilder, tmp_path: Path
) -> None:
    _write_case(tmp_path / "cases" / "one")
    precious = tmp_path / "deep" / "out" / "one" / "thesis.tex"
    precious.parent.mkdir(parents=True)
    precious.write_text("x")
    (result,) = _run(host, build_model(host), tmp_path, expect=1)
    assert "cannot be replaced: Directory not empty" in str(result["message"])
    assert precious.exists()


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        ((), 2, "too few operands"),
        (("m", "c", "o", "x"), 2, "too many operands; expected MODEL CASES_DIR OUT_DIR; got 'x'"),
        (("--threads", "two", "m", "c", "o"), 2, "--threads: expected a number from 0 to 1024; got 'two'"),
        (("--threads",), 2, "--threads: expected a number"),
        (("--fast", "m", "c", "o"), 2, "unknown option; expected --threads or --help; got '--fast'"),
        (("no.so", "cases", "out"), 3, "'no.so': cannot be opened: No such file or directory"),
        (("{model}", "no-cases", "out"), 2, "'no-cases': cannot be opened: No such file or directory"),
        (("{model}", "empty", "out"), 2, "no cases; expected at least one tensor folder"),
        (("{model}", "empty", "empty"), 2, "CASES_DIR and OUT_DIR must differ"),
    ],
)
def test_wrong_usage(
    host: Machine,
    build_model: ModelBuilder,
    tmp_path: Path,
    arguments: Sequence[str],
    status: int,
    message: str,
) -> None:
    (tmp_path / "empty").mkdir()
    words = [word.replace("{model}", str(build_model(host))) for word in arguments]
    runner = toolchain.prebuilt(host.target).runner
    finished = subprocess.run([runner, *words], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (finished.returncode, finished.stdout) == (status, "")
    assert finished.stderr.startswith("cuvil-run: ")
    assert message in finished.stderr


def test_model_for_another_machine(host: Machine, build_model: ModelBuilder, tmp_path: Path) -> None:
    other = next(target for target in toolchain.PLATFORMS if target != host.target)
    _write_case(tmp_path / "cases" / "one")
    foreign_library = toolchain.prebuilt(other).runtime
    assert _run(host, foreign_library, tmp_path, expect=3) == []
