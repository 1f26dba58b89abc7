"""The ELF reader: pyelftools is the judge of what it reads; damage gives one clear line."""

from __future__ import annotations

import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cuvil_regress.elf import ElfImage, read
from cuvil_regress.elf.image import GLOBAL, PROTECTED, UNIQUE, WEAK
from cuvil_regress.errors import HarnessError, UsageError

Build = Callable[..., Path]

SOURCE = """
    int strong(void) { return 1; }
    __attribute__((weak)) int weak(void) { return 1; }
    __attribute__((visibility("protected"))) int protected_one(void) { return 1; }
    __attribute__((visibility("hidden"))) int hidden_one(void) { return 1; }
    __thread int local_to_a_thread = 3;
    extern int wanted(void); __attribute__((weak)) extern int perhaps(void);
    int call(void) { return wanted() + (perhaps ? perhaps() : 0); }
"""
ENUM_BINDINGS = {"STB_LOCAL": 0, "STB_GLOBAL": GLOBAL, "STB_WEAK": WEAK, "STB_LOOS": UNIQUE}


def _strip_section_headers(path: Path) -> Path:
    """The same 64-bit little-endian file without section headers, and with nothing where they were."""
    data = bytearray(path.read_bytes())
    (start,) = struct.unpack_from("<Q", data, 40)
    struct.pack_into("<Q", data, 40, 0)
    struct.pack_into("<HHH", data, 58, 0, 0, 0)
    stripped = path.with_name(f"stripped-{path.name}")
    stripped.write_bytes(data[:start])
    return stripped


def _named(image: ElfImage, name: bytes) -> np.void:
    row: np.void = image.symbol(image.names.index(name))
    return row


def _check_against_pyelftools(path: Path) -> None:
    image = read(path)
    with path.open("rb") as stream:
        elf = ELFFile(stream)
        table = elf.get_section_by_name(".dynsym")
        symbols = list(table.iter_symbols())
        dynamic = list(elf.get_section_by_name(".dynamic").iter_tags())
    assert [name.decode() for name in image.names] == [symbol.name for symbol in symbols]
    assert image.symbols["value"].tolist() == [symbol["st_value"] for symbol in symbols]
    assert image.symbols["size"].tolist() == [symbol["st_size"] for symbol in symbols]
    bindings = [ENUM_BINDINGS[symbol["st_info"]["bind"]] for symbol in symbols]
    assert image.symbols["binding"].tolist() == bindings
    defined = [symbol["st_shndx"] != "SHN_UNDEF" for symbol in symbols]
    assert image.symbols["defined"].tolist() == defined
    assert list(image.needed) == [tag.needed for tag in dynamic if tag.entry.d_tag == "DT_NEEDED"]
    assert (image.bits, image.little_endian) == (elf.elfclass, elf.little_endian)
    assert image.flags == elf.header["e_flags"]


def test_bindings_visibility_and_definedness(build: Build) -> None:
    image = read(build("liba.so", SOURCE))
    exports = {b"strong", b"weak", b"protected_one", b"local_to_a_thread", b"call"}
    assert image.exports.keys() - {b"_init", b"_fini"} == exports
    assert _named(image, b"strong")["binding"] == GLOBAL
    assert _named(image, b"weak")["binding"] == WEAK
    assert _named(image, b"protected_one")["visibility"] == PROTECTED
    assert [image.names[index] for index in image.undefined] == [b"wanted"]
    assert not _named(image, b"perhaps")["defined"]


def test_the_native_library_agrees_with_pyelftools(build: Build) -> None:
    _check_against_pyelftools(build("liba.so", SOURCE))


@pytest.mark.parametrize(
    "triple",
    ["x86_64-linux-gnu", "aarch64-linux-gnu", "riscv64-linux-gnu", "s390x-linux-gnu",
     "arm-linux-gnueabihf", "mips-linux-gnueabihf", "x86-linux-gnu"],
)  # fmt: skip
def test_every_class_and_byte_order_agrees_with_pyelftools(cross_build: Build, triple: str) -> None:
    source = "int data = 3; int f(int x) { return x + data; }"
    _check_against_pyelftools(cross_build("liba.so", source, triple, "-Wl,-soname,liba.so.1"))


def test_big_endian_32_bit(cross_build: Build) -> None:
    image = read(cross_build("liba.so", "int f(void) { return 1; }", "mips-linux-gnueabihf"))
    assert (image.bits, image.little_endian, list(image.exports)) == (32, False, [b"f"])


def test_names_paths_and_properties(build: Build) -> None:
    other = build("libother.so", "int other;", "-Wl,-soname,libother.so.2")
    flags = ["-Wl,-soname,liba.so.1", "-Wl,--no-as-needed", str(other), "-Wl,-z,now"]
    image = read(build("liba.so", "int f;", *flags, "-Wl,--enable-new-dtags,-rpath,$ORIGIN:/abs"))
    assert (image.soname, image.load_name) == ("liba.so.1", "liba.so.1")
    assert image.needed == ("libother.so.2",)
    assert (image.rpath, image.runpath) == ((), ("$ORIGIN", "/abs"))
    assert (image.bind_now, image.text_relocations, image.stack) == (True, False, "not-executable")
    assert image.section_headers


def test_unique_symbols(build: Build) -> None:
    source = "struct S { static inline int value = 3; }; int *f() { return &S::value; }"
    image = read(build("liba.so", source, language="c++"))
    assert _named(image, b"_ZN1S5valueE")["binding"] == UNIQUE


def test_version_nodes(build: Build, version_script: Callable[[str], str]) -> None:
    source = """
        int old_f(void) { return 1; } int new_f(void) { return 2; }
        __asm__(".symver old_f, f@V1"); __asm__(".symver new_f, f@@V2");
    """
    provider = build("libf.so", source, version_script("V1 { global: f; local: *; }; V2 { global: f; } V1;"))
    image = read(provider)
    found = {image.version_of(index): bool(image.symbol(index)["hidden"]) for index in image.exports[b"f"]}
    assert found == {"V1": True, "V2": False}
    assert [node.name for node in image.version_definitions if not node.base] == ["V1", "V2"]
    user = read(build("libuser.so", "int f(void); int g(void) { return f(); }", str(provider)))
    assert [(need.library, need.name) for need in user.version_needs] == [("libf.so", "V2")]
    assert user.version_of(user.undefined[0]) == "V2"


def test_symbols_of_version_nodes_are_not_exports(build: Build, version_script: Callable[[str], str]) -> None:
    script = version_script("NODE_1 { global: f; local: *; };")
    assert list(read(build("liba.so", "int f(void) { return 1; }", script)).exports) == [b"f"]


@pytest.mark.parametrize("style", ["gnu", "sysv", "both"])
@pytest.mark.parametrize(
    "source", [SOURCE, 'extern int wanted; __attribute__((visibility("hidden"))) int *p = &wanted;']
)
def test_a_file_without_section_headers_reads_the_same(build: Build, style: str, source: str) -> None:
    whole = build("liba.so", source, f"-Wl,--hash-style={style}")
    stripped = read(_strip_section_headers(whole))
    assert not stripped.section_headers
    assert stripped.names == read(whole).names
    assert stripped.symbols.tolist() == read(whole).symbols.tolist()


def test_many_symbols(build: Build) -> None:
    source = "\n".join(f".globl symbol_{number}\nsymbol_{number}: .byte 0" for number in range(50_000))
    path = build("liba.so", "")
    text = path.with_suffix(".s")
    text.write_text(f".data\n{source}\n")
    subprocess.run(["cc", "-shared", "-nostdlib", str(text), "-o", str(path)], check=True)
    image = read(path)
    assert {f"symbol_{number}".encode() for number in range(50_000)} <= image.exports.keys()
    assert read(_strip_section_headers(path)).exports == image.exports


def test_the_interpreter_itself_can_be_read() -> None:
    image = read(Path(sys.executable).resolve())
    assert image.type in (2, 3)
    assert image.needed


@pytest.mark.parametrize("content", [b"", b"\x7fEL", b"/* GNU ld script */", b"\x7fELF" + b"\0" * 60])
def test_a_file_that_is_no_elf_file(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "liba.so"
    path.write_bytes(content)
    with pytest.raises(HarnessError, match=r"liba\.so: .*; expected .*, got ") as caught:
        read(path)
    assert "\n" not in str(caught.value)
    assert caught.value.hint is not None


@pytest.mark.parametrize(("name", "found"), [("absent.so", "no such file"), (".", "a folder")])
def test_a_path_without_a_file(tmp_path: Path, name: str, found: str) -> None:
    with pytest.raises(UsageError, match=f"expected a shared library, got {found}"):
        read(tmp_path / name)


@pytest.mark.parametrize("sections", [True, False])
@pytest.mark.parametrize("sixteenth", range(16))
def test_a_truncated_file_is_refused(build: Build, sixteenth: int, sections: bool) -> None:
    path = build("liba.so", SOURCE)
    path = path if sections else _strip_section_headers(path)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) * sixteenth // 16])
    if not sections and sixteenth == 15:  # what is cut off belongs to no segment
        path.write_bytes(data[: len(data) // 2])
    with pytest.raises(HarnessError) as caught:
        read(path)
    assert "\n" not in str(caught.value)


def _consume(path: Path) -> None:
    """Read a damaged file and use everything of it: a clear error or a consistent image, nothing else."""
    try:
        image = read(path)
    except HarnessError as error:
        message = str(error)
    else:
        _check_consistency(image)
        return
    assert str(path) in message
    assert message.isprintable()


def _check_consistency(image: ElfImage) -> None:
    assert len(image.names) == len(image.symbols)
    assert all(index < len(image.names) for indices in image.exports.values() for index in indices)
    for index in range(len(image.symbols)):
        image.version_of(index)
    assert len(image.undefined) <= len(image.symbols)


@pytest.fixture
def small(cross_build: Build) -> bytes:
    path = cross_build(
        "libsmall.so", "int wanted(void); int f(void) { return wanted(); }", "x86_64-linux-gnu", "-s"
    )
    return path.read_bytes()


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    changes=st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)), min_size=1, max_size=12),
    cut=st.none() | st.integers(0, 1 << 20),
)
def test_changed_bytes_give_an_error_or_an_image(
    small: bytes, tmp_path: Path, changes: list[tuple[int, int]], cut: int | None
) -> None:
    data = bytearray(small)
    for offset, value in changes:
        data[offset % len(data)] = value
    path = tmp_path / "libchanged.so"
    path.write_bytes(data if cut is None else data[: cut % len(data)])
    _consume(path)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    position=st.integers(0, 1 << 16),
    value=st.sampled_from(
        [0, 1, 0x7F, 0xFF, 0xFFFF, 1 << 31, (1 << 32) - 1, 1 << 40, 1 << 63, (1 << 64) - 1]
    ),
    everywhere=st.booleans(),
)
def test_hostile_numbers_give_an_error_or_an_image(
    small: bytes, tmp_path: Path, position: int, value: int, everywhere: bool
) -> None:
    """Every 8-byte field in turn takes extreme values: of the headers, or of the whole file."""
    data = bytearray(small)
    limit = len(data) // 8 if everywhere else 80
    struct.pack_into("<Q", data, position % limit * 8, value)
    path = tmp_path / "libhostile.so"
    path.write_bytes(data)
    _consume(path)
