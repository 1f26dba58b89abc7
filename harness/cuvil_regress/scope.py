"""Which libraries the loader searches for one library's symbols: its NEEDED closure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

from cuvil_regress.elf import ElfImage, read
from cuvil_regress.errors import HarnessError, ToolMissingError
from cuvil_regress.target_abi import TargetAbi

_C_LIBRARY = "libc.so.6"
_TYPE_SHARED = 3


@lru_cache(maxsize=256)
def _read_version(path: Path, size_bytes: int, changed_ns: int) -> ElfImage:
    return read(path)


def read_cached(path: Path) -> ElfImage:
    """`elf.read`, once per process for a file that has not changed."""
    try:
        status = path.stat()
    except OSError:
        return read(path)  # which says what is wrong
    return _read_version(path, status.st_size, status.st_mtime_ns)


@dataclass(frozen=True)
class Sysroot:
    """The C library and its companions for one target."""

    root: Path
    target: TargetAbi

    @cached_property
    def directories(self) -> tuple[Path, ...]:
        triple = self.target.triple
        inner = ("lib", f"lib/{triple}", "lib64", "usr/lib", f"usr/lib/{triple}", "usr/lib64")
        return tuple(self.root / part for part in inner if (self.root / part).is_dir())

    def find(self, name: str) -> ElfImage | None:
        """The library `name` of the target's machine, None where there is none."""
        for directory in self.directories:
            path = directory / name
            if path.is_file():
                image = read_cached(path)
                if self.target.runs(image):
                    return image
        return None

    def require(self, name: str) -> ElfImage:
        """The library `name`.

        Raises:
            ToolMissingError: the sysroot has none.
        """
        found = self.find(name)
        if found is None:
            raise ToolMissingError(
                f"sysroot {str(self.root)!r}: no {name} for {self.target.name}; expected one in lib or lib64",
                hint=f"install the C library of {self.target.triple}, or name its sysroot",
            )
        return found


@dataclass(frozen=True)
class Missing:
    """A NEEDED entry that no known library answers to."""

    name: str
    needed_by: str


@dataclass(frozen=True, eq=False)
class Scope:
    """The libraries that are searched, in order, and the NEEDED entries that were not found."""

    images: tuple[ElfImage, ...]
    missing: tuple[Missing, ...]


@dataclass(frozen=True, eq=False)
class Pool:
    """Every library that a NEEDED entry may mean: given ones, torch's, and the sysroot's, in this order.

    `providers` are in the process whether or not anything needs them (an interpreter, for example).
    """

    given: tuple[ElfImage, ...]
    providers: tuple[ElfImage, ...]
    torch: tuple[ElfImage, ...]
    sysroot: Sysroot

    def find(self, name: str) -> ElfImage | None:
        """The library that a NEEDED entry `name` means, None where there is none."""
        for image in (*self.providers, *self.given, *self.torch):
            if name in (image.load_name, str(image.path)) and self.sysroot.target.runs(image):
                return image
        return self.sysroot.find(name) if "/" not in name else None

    def close(self, library: ElfImage) -> Scope:
        """The scope of `library`: itself, the providers, the C library and loader, and all that is needed."""
        start = [library, *filter(self.sysroot.target.runs, self.providers)]
        if library.undefined or library.needed:
            start += [self.sysroot.require(name) for name in (_C_LIBRARY, self.sysroot.target.loader)]
        found, missing = {image.load_name: image for image in reversed(start)}, list[Missing]()
        queue = list(start)
        for image in queue:  # grows while it is walked: breadth first, as the loader does it
            for name in image.needed:
                if name in found or any(name == entry.name for entry in missing):
                    continue
                dependency = self.find(name)
                if dependency is None:
                    missing.append(Missing(name, image.load_name))
                else:
                    found[name] = dependency
                    queue.append(dependency)
        return Scope(tuple(queue), tuple(missing))


def read_shared_library(path: Path) -> ElfImage:
    """Read a library under test.

    Raises:
        HarnessError: it is damaged, or an ELF file that is no shared library.
    """
    image = read_cached(path)
    if image.type != _TYPE_SHARED or not image.dynamic:
        raise HarnessError(
            f"{path}: not a shared library; expected ELF type {_TYPE_SHARED} with a dynamic segment,"
            f" got type {image.type}",
            hint="link the objects with -shared first",
        )
    return image


def distinct(images: Sequence[ElfImage]) -> tuple[ElfImage, ...]:
    """`images` without second paths to the same file."""
    return tuple({image.path.resolve(): image for image in reversed(images)}.values())[::-1]
