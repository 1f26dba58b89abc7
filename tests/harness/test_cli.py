"""The command line as a user meets it: exit codes, errors in one line, and what an import costs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cuvil_regress import cli, environment, runner
from cuvil_regress.errors import UsageError

ROOT = Path(__file__).parents[2]
MATRIX = str(ROOT / "matrices" / "default.toml")
ALONE = '[axes]\ntorch = ["2.13.0"]\nmodel = ["mlp"]\ntarget = ["x86_64-linux"]\n'


def test_help_loads_neither_numpy_nor_rich() -> None:
    script = (
        "import sys\nfrom cuvil_regress import cli\n"
        "try:\n    cli.main(['--help'])\nexcept SystemExit:\n    pass\n"
        "print(sorted({'numpy', 'rich', 'elftools', 'jsonschema', 'torch'} & set(sys.modules)))"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ended.stdout.splitlines()[-1] == "[]"
    assert "exit codes: 0 clean, 1 findings, 2 usage, 3 environment" in " ".join(ended.stdout.split())


def test_the_list_of_cells(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["matrix", "list", MATRIX, "-k", "lstm"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "torch-2.13.0/lstm/x86_64-linux"
    assert lines[-1] == "torch-2.13.0/lstm/riscv64-linux-v@vlen=512"
    assert len(lines) == 9


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["matrix", "list", "absent.toml"], 2, "absent.toml: can't be read"),
        (["matrix", "list", MATRIX, "-k", "nothing"], 2, "-k 'nothing': matches no cell"),
        (["matrix", "run", MATRIX, "--output-dir", f"{MATRIX}/run"], 2, "can't be made: not a directory"),
        (["matrix", "run", "alone.toml"], 2, "'golden': no such folder; expected the goldens in '../golden'"),
        (["matrix", "run", "alone.toml", "-k", "lstm"], 2, "-k 'lstm': matches no cell"),
        (["matrix", "run", MATRIX, "--python", "/dev/null"], 2, "is not a Python interpreter"),
        (["matrix", "run", MATRIX, "--shard", "5/4"], 2, "--shard '5/4': expected I/N"),
        (["matrix", "plan", MATRIX, "--shards", "99"], 2, "can't be split into 99 shards; expected 1 to 10"),
        (["compare", "absent", "absent"], 2, "'absent': no such folder"),
        (["report", "absent"], 2, "absent/results.json: can't be read: no such file"),
        (["golden", "verify"], 2, "--golden 'golden': no such folder"),
        (["golden", "verify", "--golden", "."], 1, ""),
        (["golden", "verify", "--golden", ".", "--model", "mpl"], 2, "did you mean 'mlp'?"),
        (["golden", "refresh", "--reason", "x", "--model", "mpl"], 2, "did you mean 'mlp'?"),
        (
            ["abi", "scan", "absent.so", "--torch-dir", "."],
            2,
            "absent.so: expected a shared library",
        ),
        (["abi", "scan", ".", "--torch-dir", "."], 2, "expected a shared library, got a folder"),
        (["abi", "scan", "alone.toml", "--torch-dir", "."], 1, "alone.toml: not an ELF file"),
        (["abi", "scan", "absent.so", "--torch-dir", ".", "--target", "vax"], 2, "'vax'"),
    ],
)
def test_errors(
    arguments: list[str],
    code: int,
    words: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("alone.toml").write_text(ALONE)
    assert cli.main(arguments) == code
    err = capsys.readouterr().err
    assert words in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    "command",
    [
        "",
        "matrix",
        "matrix run",
        "matrix list",
        "matrix plan",
        "matrix gather",
        "compare",
        "report",
        "golden",
        "golden refresh",
        "golden verify",
        "abi",
        "abi scan",
        "abi checks",
    ],
)
def test_every_help_tells_the_exit_codes(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        cli.main([*command.split(), "--help"])
    assert "exit codes: 0 clean" in capsys.readouterr().out


def test_runs_of_the_same_second_get_folders_of_their_own(tmp_path: Path) -> None:
    parent = tmp_path / "runs"
    made = [runner.make_folder(parent, "default-20261130-101500").name for _ in range(3)]
    assert made == [f"default-20261130-101500{suffix}" for suffix in ("", "-2", "-3")]
    parent.rename(tmp_path / "other")
    parent.symlink_to("nowhere")
    with pytest.raises(UsageError, match="can't be made: file exists"):
        runner.make_folder(parent, "default")


def test_the_compiler_beside_the_python_comes_before_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a b").mkdir()
    monkeypatch.setattr("sys.executable", str(tmp_path / "a b" / "python"))
    assert environment.default_compiler() == "cuvil"
    (tmp_path / "a b" / "cuvil").touch()
    assert environment.split_command(environment.default_compiler()) == (str(tmp_path / "a b" / "cuvil"),)


def test_usage_ends_with_two(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([], ["matrix"], ["matrix", "run", MATRIX, "--workers", "0"], ["--unknown"]):
        assert cli.main(arguments) == 2
        assert len(capsys.readouterr().err.splitlines()) == 2
    assert cli.main(["matrix", "run", MATRIX, "--workers", "0"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "cuvil-regress matrix run: argument --workers: expected a number from 1 to 256, got '0'",
        "hint: cuvil-regress matrix run --help",
    ]


def test_the_stored_goldens_are_intact(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["golden", "verify", "--golden", str(ROOT / "golden")]) == 0
    assert capsys.readouterr().out.endswith("golden: no faults\n")


def test_a_refresh_is_not_accepted_by_silence(
    tmp_path: Path, torch: object, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", "")
    arguments = ["golden", "refresh", "--reason", "first", "--model", "mlp", "--golden", str(tmp_path / "g")]
    with (tmp_path / "nothing").open("w+") as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        assert cli.main(arguments) == 2
    captured = capsys.readouterr()
    assert "4 golden tensors, 4 of them would change" in captured.out
    assert "can't ask without a terminal" in captured.err
    assert not (tmp_path / "g").exists()
    assert cli.main([*arguments, "--yes"]) == 0
    assert cli.main(["golden", "verify", "--model", "mlp", "--golden", str(tmp_path / "g")]) == 0


def test_an_unforeseen_error_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("sys.executable", None)
    assert cli.main(["matrix", "run", MATRIX, "--output-dir", str(tmp_path / "run")]) == 70
    err = capsys.readouterr().err
    assert err.startswith("internal error: TypeError: ")
    assert err.count("\n") == 1
    log = Path(err.rpartition(" ")[2].strip())
    assert "Traceback" in log.read_text()
