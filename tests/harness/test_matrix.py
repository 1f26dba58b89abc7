"""Matrix files: the cells they give, and what is told about each mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from cuvil_regress import matrix, models, policy
from cuvil_regress.errors import UsageError
from cuvil_regress.model import family_of

DEFAULT = Path(__file__).parents[2] / "matrices" / "default.toml"
AXES = """[axes]
torch = ["2.13.0"]
model = ["mlp", "lstm"]
target = ["x86_64-linux", "riscv64-linux"]
"""


def load(path: Path) -> matrix.Matrix:
    return matrix.load(path, models=models.names(), policies=policy.names())


def parse(folder: Path, text: str) -> matrix.Matrix:
    path = folder / "m.toml"
    path.write_text(text)
    return load(path)


def ids(found: matrix.Matrix) -> list[str]:
    return [cell.id.removeprefix("torch-2.13.0/") for cell in found.cells]


def test_the_default_matrix_is_every_model_on_every_instruction_set() -> None:
    found = load(DEFAULT)
    assert len(found.cells) == len(set(found.cells)) == 9 * len(models.names())
    vlens = [f"riscv64-linux-v@vlen={bits}" for bits in (128, 256, 512)]
    assert list(dict.fromkeys(cell.target for cell in found.cells)) == [
        *("x86_64-linux", "x86_64-linux-v4", "aarch64-linux", "aarch64-linux-armv8a"),
        *("riscv64-linux", "riscv64-linux-u74", *vlens),
    ]
    assert {cell.model for cell in found.cells} == set(models.names())
    assert found.golden.resolve() == DEFAULT.parents[1] / "golden"
    assert (found.policies.golden, found.policies.targets) == ("oracle-fp32", "release")


def test_excluded_and_included_cells(tmp_path: Path) -> None:
    exclude = '[[exclude]]\nmodel = "lstm"\ntarget = "riscv64-linux"\n'
    include = '[[include]]\ntorch = "2.6.0"\nmodel = "lstm"\ntarget = "riscv64-linux"\n'
    assert ids(parse(tmp_path, AXES + exclude + include)) == [
        "mlp/x86_64-linux",
        "mlp/riscv64-linux",
        "lstm/x86_64-linux",
        "torch-2.6.0/lstm/riscv64-linux",
    ]


def test_a_target_may_name_a_machine(tmp_path: Path) -> None:
    cells = parse(tmp_path, AXES.replace("riscv64-linux", "riscv64-linux-v@vlen=256")).cells
    assert [(cell.built_for, cell.machine) for cell in cells[:2]] == [
        ("x86_64-linux", ""),
        ("riscv64-linux-v", "vlen=256"),
    ]
    assert [family_of(cell.target) for cell in cells[:2]] == ["x86_64-linux", "riscv64-linux"]


def test_selected_cells(tmp_path: Path) -> None:
    found = parse(tmp_path, AXES)
    assert ids(found.select("lstm")) == ["lstm/x86_64-linux", "lstm/riscv64-linux"]
    with pytest.raises(UsageError, match="-k 'gru': matches no cell"):
        found.select("gru")


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        (AXES.replace("target", "tagret"), "m.toml:4: 'tagret': unknown key in axes", "'target'"),
        (AXES.replace("mlp", "mpl"), "m.toml:3: 'mpl': unknown model; expected one of ", "'mlp'"),
        (AXES.replace("x86_64-", "x86-64-"), "m.toml:4: 'x86-64-linux': unknown target", "'x86_64-linux'"),
        (AXES.replace("x86_64-linux", "x86_64-linux@"), "m.toml:4: 'target': expected a name", None),
        (AXES.replace("x86_64-linux", "x86_64-linux@.."), "m.toml:4: 'target': expected a name", None),
        (
            AXES.replace("x86_64-linux", "x86_64-linuxv4"),
            "m.toml:4: 'x86_64-linuxv4': unknown target",
            "'x86_64-linux'",
        ),
        ("polices = {}\n" + AXES, "m.toml:1: 'polices': unknown key in matrix", "'policies'"),
        (AXES + "[policies]\ngolden = 'relase'\n", "m.toml:6: 'relase': unknown policy", "'release'"),
        (AXES + "[timeouts_s]\nruns = 3\n", "m.toml:6: 'runs': unknown key in timeouts_s", "'run'"),
        (AXES + "[timeouts_s]\nrun = 0\n", "m.toml:6: 'run': expected a number of seconds", None),
        (AXES + "[timeouts_s]\nrun = true\n", "m.toml:6: 'run': expected a number of seconds", None),
        (AXES.replace('"lstm"', '"mlp"'), "m.toml:3: 'model': lists 'mlp' more than once", None),
        (AXES.replace('["2.13.0"]', "[]"), "m.toml:2: 'torch': expected a list", None),
        (AXES.replace('["2.13.0"]', "[2.13]"), "m.toml:2: 'torch': expected a name", None),
        (AXES.replace('"2.13.0"', '"../x"'), "m.toml:2: 'torch': expected a name", None),
        ("golden = 'g'\n", "m.toml: matrix lacks the key 'axes'", None),
        ("axes = 3\n", "m.toml:1: 'axes': expected a table, got 3", None),
        (AXES + "[[exclude]]\nmodel = 'resnet'\n", "m.toml:5: 'exclude': the entry", None),
        (AXES + "[[exclude]]\n", "m.toml:5: 'exclude': expected at least one of", None),
        (AXES + "[[exclude]]\ntorch = '2.13.0'\n", "m.toml:5: 'exclude': leaves no cell", None),
        (AXES + "[[include]]\nmodel = 'mlp'\n", "m.toml: include lacks the key 'torch'", None),
        ("schema_version = 2\n" + AXES, "m.toml:1: 'schema_version': expected 1, got 2", None),
        ("golden = ''\n" + AXES, "m.toml:1: 'golden': expected a text", None),
        ("axes = [\n", "m.toml: is not valid TOML", None),
    ],
)
def test_mistakes(tmp_path: Path, text: str, message: str, hint: str | None) -> None:
    with pytest.raises(UsageError) as caught:
        parse(tmp_path, text)
    assert f"{tmp_path}/{message}" in str(caught.value)
    assert caught.value.exit_code == 2
    assert caught.value.hint == (f"did you mean {hint}?" if hint else None)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="can't be read: no such file or directory"):
        load(tmp_path / "absent.toml")
