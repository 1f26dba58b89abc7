"""What the harness's tests share."""

from __future__ import annotations

import importlib.util
import os
from typing import Any

import pytest


@pytest.fixture
def torch() -> Any:
    """PyTorch; without it the test is skipped, or fails where CUVIL_REQUIRE lists torch."""
    required = "torch" in os.environ.get("CUVIL_REQUIRE", "").split(",")
    if importlib.util.find_spec("torch") is None and required:
        pytest.fail("torch is not installed, and CUVIL_REQUIRE lists it")
    return pytest.importorskip("torch")
