"""Where the installed PyTorch keeps its libraries, found without importing it."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Sequence
from pathlib import Path

from cuvil_regress.elf import ElfImage
from cuvil_regress.errors import ToolMissingError, UsageError
from cuvil_regress.scope import distinct, read_cached

_LIBRARY_NAME = re.compile(r".+\.so(\.\d+)*")


def find_torch_lib_dirs() -> list[Path]:
    """The folders of the installed torch that hold shared libraries: `torch/lib`, and `torch` for `_C`.

    Nothing of torch is executed: an import costs seconds and loads the libraries under question.

    Raises:
        ToolMissingError: torch is not installed in this environment.
    """
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        raise ToolMissingError(
            "torch: not installed in this environment; expected a package 'torch', got none",
            hint="pip install torch, or name the folder of another installation's libraries",
        )
    tops = [Path(location) for location in spec.submodule_search_locations]
    return [folder for top in tops for folder in (top / "lib", top) if folder.is_dir()]


def read_torch(directories: Sequence[Path]) -> tuple[ElfImage, ...]:
    """Every shared library of `directories`, in order of name.

    Raises:
        UsageError: a folder does not exist.
        HarnessError: a library is damaged.
    """
    for directory in directories:
        if not directory.is_dir():
            raise UsageError(f"{directory}: no such folder; expected one that holds torch's libraries")
    paths = [path for directory in directories for path in sorted(directory.iterdir())]
    return distinct([read_cached(path) for path in paths if _LIBRARY_NAME.fullmatch(path.name)])
