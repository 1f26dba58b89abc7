"""undefined-symbol and needed-library: scope, versions, causes; the real loader is the judge of the rules."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

from cuvil_regress.elf import read
from cuvil_regress.errors import ToolMissingError
from cuvil_regress.lookup import missing_versions, unresolved
from cuvil_regress.scan import scan

Build = Callable[..., Path]
Find = Callable[..., list[tuple[str, str, str]]]
CALL = "int {name}(void); int mine(void) {{ return {name}(); }}"


def test_a_symbol_of_a_needed_library_is_found(build: Build, find: Find, torch: Path) -> None:
    library = build("libmine.so", CALL.format(name="torch_strong"), str(torch / "libtorch_small.so"))
    assert find(library) == []


def test_a_symbol_of_no_library_is_an_error(build: Build, find: Find) -> None:
    library = build("libmine.so", CALL.format(name="nowhere"))
    assert find(library) == [("undefined-symbol", "error", "nowhere")]


def test_a_weak_reference_may_stay_undefined(build: Build, find: Find) -> None:
    source = "__attribute__((weak)) int nowhere(void); int mine(void) { return nowhere ? nowhere() : 0; }"
    assert find(build("libmine.so", source)) == []


def test_a_library_that_is_not_needed_does_not_count(
    build: Build, sysroot: Path, target: str, torch: Path
) -> None:
    library = build("libmine.so", CALL.format(name="torch_strong"))
    report = scan([library], target=target, torch_lib_dirs=[torch], sysroot=sysroot)
    assert [finding.message for finding in report.findings] == [
        "libmine.so: no provider defines 'torch_strong'; libtorch_small.so defines it,"
        " but is not needed by the library"
    ]
    assert report.libraries[0].missing == 1


def test_a_provider_counts_without_being_needed(build: Build, find: Find, torch: Path) -> None:
    library = build("libmine.so", CALL.format(name="torch_strong"))
    assert find(library, providers=[torch / "libtorch_small.so"]) == []


def test_the_c_library_and_the_loader_always_count(build: Build, find: Find) -> None:
    source = (
        "int old(void); void *__tls_get_addr(void *); int mine(void) { return old() + !__tls_get_addr(0); }"
    )
    assert find(build("libmine.so", source)) == []


def test_a_missing_library_is_named_once(build: Build, find: Find) -> None:
    other = build("libother.so", "int other(void) { return 1; }", "-Wl,-soname,libgone.so.3")
    library = build("libmine.so", "int mine(void) { return 1; }", "-Wl,--no-as-needed", str(other))
    assert find(library) == [("needed-library", "error", "libgone.so.3")]


def test_a_library_for_another_machine_does_not_count(
    build: Build, cross_build: Build, find: Find, target: str
) -> None:
    foreign = "s390x-linux-gnu"
    other = cross_build("libother.so", "int other;", foreign, "-Wl,-soname,libother.so")
    same = build("same/libother.so", "int other;")
    library = build("libmine.so", "int mine(void) { return 1; }", "-Wl,--no-as-needed", str(same))
    assert find(library, providers=[other]) == [("needed-library", "error", "libother.so")]
    assert find(library, providers=[same]) == []


def test_symbols_at_a_version_of_a_missing_library_belong_to_it(
    build: Build, find: Find, version_script: Callable[[str], str]
) -> None:
    node = version_script("GONE_1 { global: *; };")
    other = build("libother.so", "int gone(void) { return 1; }", node, "-Wl,-soname,libgone.so.3")
    library = build("libmine.so", CALL.format(name="gone"), str(other))
    assert find(library) == [("needed-library", "error", "libgone.so.3")]


def test_a_version_that_the_library_lacks_is_named_once(
    build: Build, find: Find, version_script: Callable[[str], str]
) -> None:
    source = "int f(void) { return 1; }"
    newer = build("newer/libf.so", source, version_script("V1 { local: *; }; V2 { global: f; } V1;"))
    older = build("older/libf.so", source, version_script("V1 { global: f; local: *; };"))
    library = build("libmine.so", CALL.format(name="f"), str(newer))
    assert find(library, providers=[newer]) == []
    assert find(library, providers=[older]) == [("version-node", "error", "V2")]


def test_a_missing_dependency_of_a_dependency_is_named(build: Build, find: Find) -> None:
    deep = build("libdeep.so", "int deep(void) { return 1; }", "-Wl,-soname,libdeep.so.9")
    middle = build("libmiddle.so", "int middle(void) { return 1; }", "-Wl,--no-as-needed", str(deep))
    library = build("libmine.so", "int mine(void) { return 1; }", "-Wl,--no-as-needed", str(middle))
    assert find(library, middle) == [
        ("needed-library", "error", "libdeep.so.9"),
        ("needed-library", "error", "libdeep.so.9"),
    ]


def test_a_sysroot_without_a_c_library_is_an_environment_error(
    build: Build, target: str, tmp_path: Path
) -> None:
    library = build("libmine.so", CALL.format(name="old"))
    with pytest.raises(ToolMissingError, match=r"no libc\.so\.6 for") as caught:
        scan([library], target=target, torch_lib_dirs=[], sysroot=tmp_path / "empty")
    assert caught.value.hint is not None


@pytest.mark.parametrize(
    ("wanted", "cause"),
    [
        ("warn(std::string)", "C++11 string ABI: built with _GLIBCXX_USE_CXX11_ABI=0, this torch uses 1"),
        ("warn(int)", "signature changed: this torch has c10::warn(std::"),
        ("other(int)", "this torch has no function of that name"),
    ],
)
def test_the_cause_is_named(build: Build, sysroot: Path, target: str, wanted: str, cause: str) -> None:
    source = "#include <string>\nnamespace c10 { void warn(std::string) {} }"
    torch = build("torch/lib/libc10.so", source, "-D_GLIBCXX_USE_CXX11_ABI=1", language="c++")
    old_string = "-D_GLIBCXX_USE_CXX11_ABI=0"
    name = wanted.partition("(")[0]
    call = f"#include <string>\nnamespace c10 {{ void {wanted}; }} void mine() {{ c10::{name}({{}}); }}"
    library = build("libmine.so", call, old_string, str(torch), language="c++")
    report = scan([library], target=target, torch_lib_dirs=[torch.parent], sysroot=sysroot)
    messages = [finding.message for finding in report.findings if "c10::" in finding.message]
    assert len(messages) == 1
    assert cause in messages[0]


IGNORE = "-Wl,--unresolved-symbols=ignore-all"
DEFINITIONS = {
    "plain": ("int f(void) { return 1; }", ""),
    "first": ("int f(void) { return 1; }", "V1 { global: f; local: *; };"),
    "second": ("int f(void) { return 1; }", "V1 { local: *; }; V2 { global: f; } V1;"),
    "third": ("int f(void) { return 1; }", "V1 { local: *; }; V2 { local: *; }; V3 { global: f; } V2;"),
    "moved": (
        'int f1(void) { return 1; } int f2(void) { return 2; }'
        '__asm__(".symver f1, f@V1"); __asm__(".symver f2, f@@V2");',
        "V1 { global: f; local: *; }; V2 { global: f; } V1;",
    ),
    "retired": ('int f1(void) { return 1; } __asm__(".symver f1, f@V1");', "V1 { global: f; local: *; };"),
    "base": ("int f(void) { return 1; } int g(void) { return 1; }", "V1 { global: g; };"),
    "absent": ("int g(void) { return 1; }", ""),
}  # fmt: skip


def _loads(library: Path, folder: Path) -> bool:
    code = f"import ctypes, os; ctypes.CDLL({str(library)!r}, os.RTLD_NOW)"
    environment = os.environ | {"LD_LIBRARY_PATH": str(folder)}
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], env=environment, capture_output=True, check=False
    )
    return done.returncode == 0


def test_the_rules_agree_with_the_loader(
    build: Build, version_script: Callable[[str], str], tmp_path: Path
) -> None:
    """A user linked against one definition of `f`, loaded with another: both must say the same."""
    for name, (source, script) in DEFINITIONS.items():
        flags = [version_script(script)] if script else []
        build(f"{name}/libf.so", source, *flags)
    users = {
        name: build(f"user/lib{name}.so", CALL.format(name="f"), "-Wl,--no-as-needed", IGNORE, str(linked))
        for name in ("plain", "first", "second", "moved", "absent")
        for linked in tmp_path.glob(f"{name}/libf.so")
    }
    verdicts = []
    for user, definition in product(users, DEFINITIONS):
        image = read(tmp_path / definition / "libf.so")
        library = read(users[user])
        predicted = not unresolved(library, [image]) and not missing_versions(library, [image])
        verdicts.append(predicted)
        assert predicted == _loads(users[user], image.path.parent), f"{user} loaded with {definition}"
    assert len(set(verdicts)) == 2
