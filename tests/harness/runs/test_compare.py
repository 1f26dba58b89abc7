"""`cuvil-regress compare`: two run folders that are equal, that differ, and that are damaged."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.harness.runs.conftest import Laboratory


@pytest.fixture(scope="module")
def runs(shared_laboratory: Laboratory) -> Laboratory:
    """Finished runs, each named after the fault that was planted."""
    for fault in ("none", "extra-symbol", "one-bit", "mismatch", "crash"):
        shared_laboratory.plant(fault)
        shared_laboratory.run(name=fault)
    return shared_laboratory


def compared(runs: Laboratory, a: str, b: str) -> tuple[int, str, dict[str, Any]]:
    output = runs.folder / "compare.json"
    ran = runs.call("compare", str(runs.folder / a), str(runs.folder / b), "--output", str(output))
    return ran.code, ran.out, json.loads(output.read_text())


def test_equal_runs(runs: Laboratory) -> None:
    shutil.copytree(runs.folder / "none", runs.folder / "again")
    code, _, document = compared(runs, "none", "again")
    pair = document["pairs"][0]
    assert (code, pair["verdict"], pair["bit_identical"], pair["symbols"]) == (0, "identical", True, [])
    assert pair["share_b_to_a"] == 1
    assert pair["findings"] == []


def test_a_report_that_has_no_place(runs: Laboratory) -> None:
    ran = runs.call(
        "compare", *[str(runs.folder / "none")] * 2, "--output", str(runs.folder / "absent/c.json")
    )
    assert ran.code == 2
    assert ran.err.endswith("absent/c.json': can't be written: no such file or directory\n")


def test_changed_bits_and_a_removed_symbol_are_named(runs: Laboratory) -> None:
    code, out, document = compared(runs, "extra-symbol", "one-bit")
    pair = document["pairs"][0]
    assert (code, pair["verdict"], pair["bit_identical"]) == (1, "abi-changed", False)
    assert "ordinary/logits: 1 of 40 elements differ in bits" in out
    assert "model library: removed cuvil_extra" in out
    assert pair["symbols"] == [{"library": "model", "added": [], "removed": ["cuvil_extra"]}]


def test_an_added_symbol_is_told_and_is_no_fault(runs: Laboratory, tmp_path: Path) -> None:
    copy = copied(runs, tmp_path)
    runtime = copy / "runtimes/x86_64-linux/libcuvil_runtime.so.1"
    source = tmp_path / "runtime.c"
    source.write_text("int cuvil_abi_version(void) { return 1; } int cuvil_news(void) { return 1; }")
    subprocess.run(["cc", "-shared", "-fPIC", "-nostdlib", str(source), "-o", str(runtime)], check=True)
    code, out, document = compared(runs, "none", str(copy))
    assert (code, document["pairs"][0]["verdict"]) == (0, "identical")
    assert "runtime library: added cuvil_news" in out


def test_a_fault_of_the_candidates_own_run_is_a_finding(runs: Laboratory) -> None:
    code, out, document = compared(runs, "none", "extra-symbol")
    assert (code, document["pairs"][0]["verdict"]) == (1, "regressed")
    assert "its own run is not clean any more: abi-conflict: " in out
    assert "model library: added cuvil_extra" in out
    assert compared(runs, "extra-symbol", "extra-symbol")[0] == 0


def test_size_compile_time_and_metadata(runs: Laboratory, tmp_path: Path) -> None:
    copy = copied(runs, tmp_path)
    library = "libraries/torch-2.13.0/mlp/x86_64-linux/libmlp"
    for folder, llvm in ((runs.folder / "none", "20.1"), (copy, "21.1")):
        metadata = {"compiler": {"version": llvm, "llvm": llvm}, "numerics": "strict", "nodes": [1]}
        (folder / f"{library}.cuvil-meta.json").write_text(json.dumps(metadata))
    with (copy / f"{library}.so").open("ab") as file:
        file.write(bytes(1000))
    code, out, document = compared(runs, "none", str(copy))
    pair = document["pairs"][0]
    assert (code, pair["metadata"]) == (0, [{"key": "compiler.llvm", "a": '"20.1"', "b": '"21.1"'}])
    assert 'metadata: compiler.llvm: "20.1" -> "21.1"' in out
    sizes = [pair[side]["size_bytes"] for side in ("build_a", "build_b")]
    assert sizes[1] - sizes[0] == 1000
    assert f"{(sizes[1] / sizes[0] - 1) * 100:+.2g}%" in out
    assert pair["build_a"]["compile_ns"] == pair["build_b"]["compile_ns"] > 0
    (copy / f"{library}.cuvil-meta.json").write_text("{")
    ran = runs.call("compare", str(runs.folder / "none"), str(copy))
    assert (ran.code, "libmlp.cuvil-meta.json: is no metadata" in ran.err) == (2, True)


def test_models_and_targets_are_selected(runs: Laboratory) -> None:
    folders = [str(runs.folder / name) for name in ("none", "one-bit")]
    assert runs.call("compare", *folders, "--models", "ml?", "--targets", "x86_64-linux").code == 0
    ran = runs.call("compare", *folders, "--models", "lstm")
    assert ran.code == 2
    assert ran.err.startswith(f"{folders[0]}: has no cell for --models 'lstm'\nhint: its models are mlp; ")


def test_values_out_of_tolerance(runs: Laboratory) -> None:
    code, _, document = compared(runs, "none", "mismatch")
    pair = document["pairs"][0]
    assert (code, pair["verdict"]) == (1, "mismatch")
    first = pair["outputs"][0]
    assert (first["differing_elements"], first["share_b_to_a"]) == (1, 39 / 40)
    assert first["share_a_to_golden"] > first["share_b_to_golden"]


def test_a_run_without_outputs_is_not_called_equal(runs: Laboratory) -> None:
    code, out, document = compared(runs, "crash", "crash")
    assert (code, document["pairs"][0]["verdict"]) == (1, "incomparable")
    assert "died by signal 11" in out
    assert compared(runs, "none", "crash")[0] == 1


def copied(runs: Laboratory, folder: Path) -> Path:
    return Path(shutil.copytree(runs.folder / "none", folder / "copy"))


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("results.json", "results.json: is damaged"),
        ("outputs/torch-2.13.0/mlp/x86_64-linux/special/000.bin", "wrong size for tensor 'logits'"),
        ("goldens/torch-2.13.0/mlp/ordinary/manifest.txt", "lacks the tensor"),
        ("libraries/torch-2.13.0/mlp/x86_64-linux/libmlp.so", "libmlp.so"),
    ],
)
def test_a_truncated_file(runs: Laboratory, tmp_path: Path, file: str, words: str) -> None:
    copy = copied(runs, tmp_path)
    content = (copy / file).read_bytes()
    (copy / file).write_bytes(content[: content.index(b"\n") + 1] if file.endswith("txt") else content[:40])
    ran = runs.call("compare", str(runs.folder / "none"), str(copy))
    assert ran.code == 2
    assert "is damaged" in ran.err
    assert words in ran.err


def test_a_changed_output(runs: Laboratory, tmp_path: Path) -> None:
    copy = copied(runs, tmp_path)
    path = copy / "outputs/torch-2.13.0/mlp/x86_64-linux/ordinary/000.bin"
    content = bytearray(path.read_bytes())
    content[0] ^= 1
    path.write_bytes(content)
    ran = runs.call("compare", str(runs.folder / "none"), str(copy))
    assert ran.code == 2
    assert "output 'logits' is not the one that the run recorded" in ran.err


def test_an_unfinished_run(runs: Laboratory, tmp_path: Path) -> None:
    copy = copied(runs, tmp_path)
    results = json.loads((copy / "results.json").read_text())
    results |= {"cells": [], "complete": False, "exit_code": 130, "totals": {}}
    (copy / "results.json").write_text(json.dumps(results))
    ran = runs.call("compare", str(runs.folder / "none"), str(copy))
    assert (ran.code, ran.err) == (2, f"{copy}: the run was interrupted; expected 1 cells, got 0\n")


def test_folders_that_are_no_runs(runs: Laboratory, tmp_path: Path) -> None:
    ran = runs.call("compare", str(runs.folder / "none"), str(tmp_path / "absent"))
    assert (ran.code, "no such folder" in ran.err) == (2, True)
    ran = runs.call("compare", str(tmp_path), str(runs.folder / "none"))
    assert (ran.code, "holds no results.json" in ran.err) == (2, True)
