"""The list of operators in the compiler's README is the registry's."""

from __future__ import annotations

import re
from pathlib import Path

import cuvil
from cuvil.ops.registry import onnx_importers


def test_the_readme_names_every_operator_that_is_imported() -> None:
    text = (Path(cuvil.__file__).parent / "README.md").read_text(encoding="utf-8")
    section = text.partition("\n## Operators\n")[2].partition("What is left out")[0]
    assert re.findall("`([^`]+)`", section) == sorted(onnx_importers())
