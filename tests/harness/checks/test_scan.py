"""The scan as a whole: its report, its rendering, its reference page, and the installed torch."""

from __future__ import annotations

import importlib.util
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from cuvil_regress.checks import all_checks, describe_checks
from cuvil_regress.demangle import demangle
from cuvil_regress.elf import read
from cuvil_regress.elf.image import GLOBAL
from cuvil_regress.errors import HarnessError, ToolMissingError, UsageError
from cuvil_regress.reports.abi import render_scan, summary_line, to_json
from cuvil_regress.scan import ScanReport, scan
from cuvil_regress.torch_libs import find_torch_lib_dirs
from tests.needs import need, need_program

Build = Callable[..., Path]


@pytest.fixture
def report(build: Build, target: str, sysroot: Path, torch: Path) -> ScanReport:
    """One conflict, one missing symbol, and one executable stack."""
    source = "int nowhere(void); int torch_strong(void) { return nowhere(); }"
    library = build("libmine.so", source, "-Wl,-z,execstack")
    return scan([library], target=target, torch_lib_dirs=[torch], sysroot=sysroot)


def test_counts(report: ScanReport) -> None:
    library = report.libraries[0]
    assert (library.soname, library.exports, library.undefined) == ("libmine.so", 1, 1)
    assert (library.conflicts, library.missing) == (1, 1)
    assert [Path(entry.file).name for entry in report.torch] == ["libtorch_small.so"]
    assert report.torch[0].symbols >= 2
    assert not report.clean


def test_findings_carry_the_file_and_the_fix(report: ScanReport) -> None:
    checks = {check.id: check for check in all_checks()}
    found = {finding.check for finding in report.findings}
    assert found == {"symbol-clash", "undefined-symbol", "executable-stack"}
    for finding in report.findings:
        assert finding.file == report.libraries[0].file
        assert finding.hint == checks[finding.check].fix


def test_json(report: ScanReport) -> None:
    data = json.loads(json.dumps(to_json(report)))
    assert data["schema_version"] == 1
    assert data["libraries"][0]["conflicts"] == 1
    assert len(data["findings"]) == 3
    assert data["checks"] == [check.id for check in all_checks()]


def test_rendering(report: ScanReport) -> None:
    stream = io.StringIO()
    Console(width=100, file=stream).print(render_scan(report))
    text = stream.getvalue()
    assert "libmine.so" in text
    assert "executable-stack" in text
    checks = {check.id: check for check in all_checks()}
    for finding in report.findings:
        assert text.count(f"{finding.check}, fix: {checks[finding.check].fix[:30]}") == 1
    assert "3 error(s), 0 warning(s), 0 note(s)" in summary_line(report)


def test_every_check_describes_itself() -> None:
    text = describe_checks()
    for check in all_checks():
        assert f"{check.id} ({check.severity})" in text
        assert all((check.summary, check.why, check.example, check.fix))


def test_files_that_are_no_shared_library(target: str, tmp_path: Path) -> None:
    source = tmp_path / "a.c"
    source.write_text("int f(void) { return 1; }")
    subprocess.run([need_program("cc"), "-c", str(source), "-o", str(tmp_path / "a.o")], check=True)
    with pytest.raises(HarnessError, match=r"a\.o: not a shared library; expected ELF type 3"):
        scan([tmp_path / "a.o"], target=target, torch_lib_dirs=[])


def test_unknown_target_and_folder(build: Build, target: str, tmp_path: Path) -> None:
    library = build("liba.so", "int f;")
    with pytest.raises(UsageError, match="target 'vax': unknown; expected one of"):
        scan([library], target="vax", torch_lib_dirs=[])
    with pytest.raises(UsageError, match="no such folder"):
        scan([library], target=target, torch_lib_dirs=[tmp_path / "absent"])


def test_a_changed_file_is_read_again(build: Build, target: str) -> None:
    counts = []
    for source in ("int f;", "int f; int g;"):
        library = build("liba.so", source)
        counts.append(scan([library], target=target, torch_lib_dirs=[]).libraries[0].exports)
    assert counts == [1, 2]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (b"_ZN3c104WarnC1Ev", {"c10::Warn::Warn()", "_ZN3c104WarnC1Ev"}),
        (b"_Znonsense", {"_Znonsense"}),
        (b"plain", {"plain"}),
        (b"two\nlines", {"two\\nlines"}),
    ],
)
def test_demangled_names_are_one_line(name: bytes, expected: set[str]) -> None:
    assert demangle(name) in expected


def test_torch_is_found_without_being_imported(tmp_path: Path) -> None:
    package = tmp_path / "torch"
    (package / "lib").mkdir(parents=True)
    (package / "__init__.py").write_text("raise SystemExit('imported')")
    code = "from cuvil_regress.torch_libs import find_torch_lib_dirs; print(*find_torch_lib_dirs())"
    path = os.pathsep.join([str(tmp_path), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == [str(package / "lib"), str(package)]


def test_no_torch_is_an_environment_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [])
    importlib.invalidate_caches()
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    with pytest.raises(ToolMissingError, match="torch: not installed"):
        find_torch_lib_dirs()


@pytest.fixture
def installed() -> list[Path]:
    """The folders of the installed torch."""
    need("torch", importlib.util.find_spec("torch") is not None)
    return find_torch_lib_dirs()


def test_the_installed_torch_is_consistent_with_itself(installed: list[Path], target: str) -> None:
    libraries = [
        next(folder.glob(name)) for folder, name in zip(installed, ("libtorch_cpu.so", "_C*.so"), strict=True)
    ]
    report = scan(
        libraries, target=target, torch_lib_dirs=installed, providers=[Path(sys.executable).resolve()]
    )
    assert [library.missing for library in report.libraries] == [0, 0]
    assert sum(library.symbols for library in report.torch) > 50_000


def test_a_name_of_the_installed_torch_clashes(installed: list[Path], build: Build, target: str) -> None:
    c10 = read(installed[0] / "libc10.so")
    strong = [name for name, (first, *_) in c10.exports.items() if c10.symbol(first)["binding"] == GLOBAL]
    name = min(strong).decode()
    library = build("libmine.so", f"int {name}(void) {{ return 1; }}")
    report = scan([library], target=target, torch_lib_dirs=installed)
    found = [finding for finding in report.findings if "libc10.so" in finding.message]
    assert [(finding.check, finding.severity, finding.subject) for finding in found] == [
        ("symbol-clash", "error", name)
    ]
