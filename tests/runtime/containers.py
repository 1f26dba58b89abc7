"""`.cuv` files around the hand-written model."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from cuvil import toolchain
from cuvil.container import CODE, METADATA, WEIGHTS, Content, read_container, write_container

from .conftest import Machine

FACTOR = np.float32(1.1)


def code_of(
    library: Path, machine: Machine, target: str = "native", features: int = 0, vlen: int = 0
) -> Content:
    """A section of code, with the weights that come third in the file."""
    elf_machine = toolchain.platform_of(machine.target).elf_machine
    return Content(CODE, lambda: [library.read_bytes()], features, vlen, elf_machine, 2, target)


def weights_of(factor: np.float32 = FACTOR, size_bytes: int = 64) -> Content:
    return Content(WEIGHTS, lambda: [factor.tobytes().ljust(size_bytes, b"\0")])


def container_of(path: Path, code: Content, weights: Content | None = None, *others: Content) -> Path:
    """Writes metadata, code, weights and what else there is."""
    write_container(path, [Content(METADATA, lambda: [b"{}"]), code, weights or weights_of(), *others])
    return path


def weights_offset(path: Path) -> int:
    """Where the first weights begin."""
    return next(section.offset for section in read_container(path).sections if section.kind == WEIGHTS)
