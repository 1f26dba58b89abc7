"""symbol-clash: strength, visibility, versions, other libraries under test, and soname-clash."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

Build = Callable[..., Path]
Find = Callable[..., list[tuple[str, str, str]]]

HIDDEN = '__attribute__((visibility("hidden"))) '
PROTECTED = '__attribute__((visibility("protected"))) '
WEAK = "__attribute__((weak)) "


def test_a_library_with_names_of_its_own_is_clean(build: Build, find: Find) -> None:
    assert find(build("libmine.so", "int mine(void) { return 1; }")) == []


@pytest.mark.parametrize(
    ("attributes", "name", "expected"),
    [
        ("", "torch_strong", ("error", "torch_strong")),
        ("", "torch_weak", ("warning", "torch_weak")),
        (WEAK, "torch_strong", ("warning", "torch_strong")),
        (WEAK, "torch_weak", ("warning", "libtorch_small.so")),
        (PROTECTED, "torch_strong", ("warning", "torch_strong")),
    ],
)
def test_severity_follows_the_strength_of_both(
    build: Build, find: Find, attributes: str, name: str, expected: tuple[str, str]
) -> None:
    library = build("libmine.so", f"{attributes}int {name}(void) {{ return 2; }}")
    assert find(library) == [("symbol-clash", *expected)]


@pytest.mark.parametrize("source", [f"{HIDDEN}int torch_strong(void) {{ return 2; }}", "int torch_hidden;"])
def test_hidden_definitions_do_not_meet(build: Build, find: Find, source: str) -> None:
    assert find(build("libmine.so", source)) == []


def test_symbolic_binding_keeps_its_own(build: Build, find: Find) -> None:
    library = build("libmine.so", "int torch_strong(void) { return 2; }", "-Wl,-Bsymbolic")
    assert find(library) == [("symbol-clash", "warning", "torch_strong")]


def test_names_that_linkers_give_every_library_are_left_out(build: Build, find: Find, torch: Path) -> None:
    build("torch/lib/libold.so", "int _init(void) { return 1; }")
    assert find(build("libmine.so", "int _init(void) { return 1; }")) == []


def test_a_unique_symbol_is_an_error(build: Build, find: Find, torch: Path) -> None:
    source = "struct S { static inline int value = 3; }; int *{name}() { return &S::value; }"
    build("torch/lib/libunique.so", source.replace("{name}", "theirs"), language="c++")
    mine = build("libmine.so", source.replace("{name}", "mine"), language="c++")
    assert find(mine) == [("symbol-clash", "error", "_ZN1S5valueE")]


def test_inline_code_of_torch_headers_is_a_note(build: Build, find: Find, torch: Path) -> None:
    source = "struct S { static inline int value = 3; }; int *{name}() { return &S::value; }"
    theirs = build("torch/lib/libunique.so", source.replace("{name}", "theirs"), language="c++")
    mine = build(
        "libmine.so", source.replace("{name}", "mine"), "-Wl,--no-as-needed", str(theirs), language="c++"
    )
    assert find(mine) == [("symbol-clash", "note", "libunique.so")]


def test_different_version_nodes_do_not_meet(
    build: Build, find: Find, torch: Path, version_script: Callable[[str], str]
) -> None:
    source = "int shared(void) { return 1; }"
    build("torch/lib/libversioned.so", source, version_script("THEIRS_1 { global: shared; local: *; };"))
    mine = build("libmine.so", source, version_script("MINE_1 { global: shared; local: *; };"))
    assert find(mine) == []


def test_an_unversioned_definition_meets_every_node(
    build: Build, find: Find, torch: Path, version_script: Callable[[str], str]
) -> None:
    source = "int shared(void) { return 1; }"
    build("torch/lib/libversioned.so", source, version_script("THEIRS_1 { global: shared; local: *; };"))
    assert find(build("libmine.so", source)) == [("symbol-clash", "error", "shared")]


def test_two_libraries_under_test_are_compared_once(build: Build, find: Find) -> None:
    first = build("libfirst.so", "int same(void) { return 1; }")
    second = build("libsecond.so", "int same(void) { return 2; }")
    assert find(first, second) == [("symbol-clash", "error", "same")]
    assert find(first, first) == []


def test_many_clashes_are_listed_to_a_limit(build: Build, find: Find, torch: Path) -> None:
    source = "\n".join(f"int clash_{number:02}(void) {{ return 1; }}" for number in range(25))
    build("torch/lib/libmany.so", source)
    found = find(build("libmine.so", source))
    assert [subject for _, _, subject in found] == [f"clash_{number:02}" for number in range(20)] + [
        "libmany.so"
    ]


def test_a_foreign_library_is_compared_with_this_torch(
    cross_build: Build, build: Build, find: Find, target: str
) -> None:
    foreign = "aarch64-linux" if target != "aarch64-linux" else "riscv64-linux"
    library = cross_build("libmine.so", "int torch_strong(void) { return 2; }", f"{foreign}-gnu")
    assert find(library, on=foreign) == [("symbol-clash", "error", "torch_strong")]


def test_a_soname_of_torch_is_an_error_of_its_own(build: Build, find: Find) -> None:
    library = build("mine.so", "int torch_strong(void) { return 2; }", "-Wl,-soname,libtorch_small.so")
    assert find(library) == [("soname-clash", "error", "libtorch_small.so")]
