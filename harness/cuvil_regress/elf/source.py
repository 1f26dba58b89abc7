"""Bounded reads from a file that may be damaged or hostile, and the shapes of ELF's tables."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from cuvil_regress.errors import HarnessError

Table = npt.NDArray[np.void]

_WORDS = {"H": "u2", "W": "u4", "B": "u1"}


@dataclass(frozen=True)
class Encoding:
    """ELF class and byte order: the two things that change the shape of every table."""

    bits: int
    little_endian: bool

    def shape(self, fields: str, fields_of_32: str | None = None) -> np.dtype[np.void]:
        """A packed record type from `name:T` words; T is B, H, W (1, 2, 4 bytes) or N (the address size)."""
        order = "<" if self.little_endian else ">"
        words = _WORDS | {"N": "u8" if self.bits == 64 else "u4"}
        chosen = fields_of_32 if self.bits == 32 and fields_of_32 else fields
        pairs = [word.split(":") for word in chosen.split()]
        return np.dtype([(name, order + words[kind]) for name, kind in pairs])

    @property
    def header(self) -> np.dtype[np.void]:
        return self.shape(
            "type:H machine:H version:W entry:N phoff:N shoff:N flags:W ehsize:H phentsize:H phnum:H"
            " shentsize:H shnum:H shstrndx:H"
        )

    @property
    def program_header(self) -> np.dtype[np.void]:
        return self.shape(
            "type:W flags:W offset:N vaddr:N paddr:N filesz:N memsz:N align:N",
            "type:W offset:N vaddr:N paddr:N filesz:N memsz:N flags:W align:N",
        )

    @property
    def section_header(self) -> np.dtype[np.void]:
        return self.shape("name:W type:W flags:N addr:N offset:N size:N link:W info:W addralign:N entsize:N")

    @property
    def symbol(self) -> np.dtype[np.void]:
        return self.shape(
            "name:W info:B other:B shndx:H value:N size:N", "name:W value:N size:N info:B other:B shndx:H"
        )

    @property
    def dynamic(self) -> np.dtype[np.void]:
        return self.shape("tag:N value:N")

    @property
    def words(self) -> np.dtype[np.void]:
        return self.shape("word:W")

    def relocation(self, *, addend: bool) -> np.dtype[np.void]:
        return self.shape("offset:N info:N addend:N" if addend else "offset:N info:N")


@dataclass(frozen=True)
class Source:
    """An open file, its size, and the error that names it."""

    path: Path
    stream: BinaryIO
    size_bytes: int

    def error(self, what: str, *, expected: object, got: object) -> HarnessError:
        return HarnessError(
            f"{self.path}: {what}; expected {expected}, got {got}",
            hint="the file is damaged or incomplete; build or fetch it again",
        )

    def read(self, offset: int, size_bytes: int, what: str) -> bytes:
        """Exactly `size_bytes` bytes at `offset`.

        Raises:
            HarnessError: the range leaves the file, checked before anything is allocated.
        """
        if offset + size_bytes > self.size_bytes:
            raise self.error(
                f"{what} leaves the file",
                expected=f"an end at most {self.size_bytes}",
                got=offset + size_bytes,
            )
        data = os.pread(self.stream.fileno(), size_bytes, offset)
        while len(data) < size_bytes:  # one call moves at most 2 GiB
            more = os.pread(self.stream.fileno(), size_bytes - len(data), offset + len(data))
            if not more:
                raise self.error("file shrank while it was read", expected=size_bytes, got=len(data))
            data += more
        return data

    def table(self, offset: int, count: int, shape: np.dtype[np.void], what: str) -> Table:
        """`count` records of `shape` at `offset`."""
        return np.frombuffer(self.read(offset, count * shape.itemsize, what), shape)


def printable(name: bytes) -> str:
    """`name` as one line of printable text, whatever a file claims to be a name."""
    text = name.decode(errors="backslashreplace")
    return text if text.isprintable() else text.encode("unicode_escape").decode()
