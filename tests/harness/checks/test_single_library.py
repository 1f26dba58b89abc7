"""Checks that look at one library alone: a clean library has no finding, a bad one exactly one."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from cuvil_regress.checks import all_checks

Build = Callable[..., Path]
Find = Callable[..., list[tuple[str, str, str]]]

PLAIN = "int mine(void) { return 1; }"
MODEL = """
    const long cuvil_model_info[12] = {1}; const char cuvil_model_strings[1] = {0};
    const char cuvil_model_weights[64] = {0}; long cuvil_model_run(void) { return 0; }
"""
_LOAD, _GNU_STACK, _NULL = 1, 0x6474E551, 0


def _patch_segments(path: Path, change: Callable[[int, int, int], tuple[int, int, int]]) -> None:
    """Rewrite (type, flags, alignment) of each 64-bit little-endian program header."""
    data = bytearray(path.read_bytes())
    (start,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    for offset in range(start, start + size * count, size):
        kind, flags = struct.unpack_from("<II", data, offset)
        kind, flags, align = change(kind, flags, struct.unpack_from("<Q", data, offset + 48)[0])
        struct.pack_into("<II", data, offset, kind, flags)
        struct.pack_into("<Q", data, offset + 48, align)
    path.write_bytes(data)


def test_a_plain_library_is_clean(build: Build, find: Find) -> None:
    assert find(build("libmine.so", PLAIN)) == []


def test_executable_stack(build: Build, find: Find) -> None:
    library = build("libmine.so", PLAIN, "-Wl,-z,execstack")
    assert find(library) == [("executable-stack", "error", "PT_GNU_STACK")]


def test_a_missing_stack_mark_is_a_warning(build: Build, find: Find) -> None:
    library = build("libmine.so", PLAIN)
    _patch_segments(library, lambda kind, flags, align: (_NULL if kind == _GNU_STACK else kind, flags, align))
    assert find(library) == [("executable-stack", "warning", "PT_GNU_STACK")]


def test_text_relocation(build: Build, find: Find) -> None:
    source = '__asm__(".text\\n.balign 8\\n.globl mine\\nmine: .quad mine\\n");'
    library = build("libmine.so", source, "-Wl,-z,notext")
    assert find(library) == [("text-relocation", "error", "DT_TEXTREL")]


def test_writable_code(build: Build, find: Find) -> None:
    library = build("libmine.so", PLAIN)
    _patch_segments(library, lambda kind, flags, align: (kind, flags | 2 if flags & 1 else flags, align))
    assert [finding[:2] for finding in find(library)] == [("writable-code", "error")]


def test_segment_alignment(build: Build, find: Find) -> None:
    library = build("libmine.so", PLAIN)
    _patch_segments(library, lambda kind, flags, align: (kind, flags, 16 if kind == _LOAD else align))
    assert {finding[:2] for finding in find(library)} == {("segment-alignment", "warning")}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("$ORIGIN", []),
        ("$ORIGIN/../lib", []),
        ("/build/lib", [("run-path", "warning", "/build/lib")]),
        ("$ORIGIN:lib", [("run-path", "error", "lib")]),
    ],
)
@pytest.mark.parametrize("tags", ["--enable-new-dtags", "--disable-new-dtags"])
def test_run_path(
    build: Build, find: Find, path: str, expected: list[tuple[str, str, str]], tags: str
) -> None:
    assert find(build("libmine.so", PLAIN, f"-Wl,-rpath,{path},{tags}")) == expected


def test_static_tls(build: Build, find: Find) -> None:
    source = "extern __thread int there; int mine(void) { return there; }"
    provider = build("libthere.so", "__thread int there = 3;")
    library = build("libmine.so", source, "-ftls-model=initial-exec", str(provider))
    assert find(library, providers=[provider]) == [("static-tls", "warning", "DF_STATIC_TLS")]


def test_glibc_floor(build: Build, find: Find, sysroot: Path) -> None:
    c_library = str(sysroot / "lib" / "libc.so.6")
    call = "int {name}(void); int mine(void) {{ return {name}(); }}"
    assert find(build("libold.so", call.format(name="old"), c_library)) == []
    found = find(build("libnew.so", call.format(name="new"), c_library))
    assert found == [("glibc-floor", "error", "GLIBC_2.38")]


def test_cxx_runtime_beyond_that_of_torch(
    build: Build, find: Find, torch: Path, version_script: Callable[[str], str]
) -> None:
    script = version_script(
        "GLIBCXX_3.4.22 { global: old; local: *; }; GLIBCXX_3.4.30 { global: new; } GLIBCXX_3.4.22;"
    )
    cxx = build("torch/lib/libstdc++.so.6", "int old(void) { return 1; } int new(void) { return 1; }", script)
    call = "int {name}(void); int mine_{name}(void) {{ return {name}(); }}"
    build("torch/lib/libuser.so", call.format(name="old"), str(cxx))
    assert find(build("libold.so", call.format(name="old").replace("mine", "my"), str(cxx))) == []
    found = find(build("libnew.so", call.format(name="new"), str(cxx)))
    assert found == [("cxx-runtime", "warning", "GLIBCXX_3.4.30")]


def test_the_runtime_needs_no_cxx_library(build: Build, find: Find) -> None:
    cxx = build("libstdc++.so.6", "int f(void) { return 1; }")
    library = build("libcuvil_runtime.so.1", PLAIN, "-Wl,--no-as-needed", str(cxx))
    assert find(library, providers=[cxx]) == [("cxx-runtime", "error", "libstdc++.so.6")]


def test_a_freestanding_model_is_clean(build: Build, find: Find) -> None:
    assert find(build("libmodel.so", MODEL), build("libother.so", MODEL)) == []


@pytest.mark.parametrize(
    ("source", "subject"),
    [
        (f"{MODEL} int extra;", "extra"),
        (MODEL.replace("cuvil_model_run", '__attribute__((visibility("hidden"))) run'), "cuvil_model_run"),
        (
            f'{MODEL} int old(void); __attribute__((visibility("hidden"))) int g(void) {{ return old(); }}',
            "old",
        ),
    ],
)
def test_a_model_that_is_not_freestanding(build: Build, find: Find, source: str, subject: str) -> None:
    assert find(build("libmodel.so", source)) == [("freestanding", "error", subject)]


def test_a_model_with_a_needed_library(build: Build, find: Find) -> None:
    other = build("libother.so", "int other;")
    library = build("libmodel.so", MODEL, "-Wl,--no-as-needed", str(other))
    assert find(library, providers=[other]) == [("freestanding", "error", "libother.so")]


@pytest.mark.parametrize("target_name", ["aarch64-linux", "riscv64-linux", "x86_64-linux"])
def test_elf_machine(cross_build: Build, find: Find, target_name: str) -> None:
    library = cross_build("libmine.so", PLAIN, f"{target_name}-gnu")
    assert find(library, on=target_name) == []
    assert find(library, on=f"{target_name}-of-its-family") == []
    other = "x86_64-linux" if target_name != "x86_64-linux" else "aarch64-linux"
    assert find(library, on=other) == [("elf-machine", "error", "machine")]


@pytest.mark.parametrize(
    ("triple", "target_name", "expected"),
    [
        ("arm-linux-gnueabihf", "arm-linux", []),
        ("arm-linux-gnueabi", "arm-linux", [("elf-machine", "error", "flags")]),
    ],
)
def test_float_abi_of_arm(
    cross_build: Build, find: Find, triple: str, target_name: str, expected: list[tuple[str, str, str]]
) -> None:
    library = cross_build(
        "libmine.so", PLAIN, triple, "-fno-unwind-tables", "-fno-asynchronous-unwind-tables"
    )
    assert find(library, on=target_name) == expected


@pytest.mark.parametrize("flags", [0x1, 0x3, 0x5, 0x4, 0x6, 0xC, 0x14])
def test_float_abi_of_riscv(cross_build: Build, find: Find, flags: int) -> None:
    library = cross_build("libmine.so", PLAIN, "riscv64-linux-gnu")
    data = bytearray(library.read_bytes())
    struct.pack_into("<I", data, 48, flags)
    library.write_bytes(data)
    expected = [] if flags in (0x4, 0x5) else [("elf-machine", "error", "flags")]
    assert find(library, on="riscv64-linux") == expected


def test_every_check_has_a_case_here(request: pytest.FixtureRequest) -> None:
    text = "".join(path.read_text() for path in request.path.parent.glob("test_*.py"))
    assert [check.id for check in all_checks() if f'"{check.id}"' not in text] == []
