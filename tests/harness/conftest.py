"""What the harness's tests share."""

from __future__ import annotations

from typing import Any

import pytest

from tests.needs import need_module


@pytest.fixture
def torch() -> Any:
    """PyTorch."""
    return need_module("torch")
