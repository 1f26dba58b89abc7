"""What all tests share: how properties are sampled, and the switch that rewrites expectations."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

# A busy machine must not fail a property by its deadline; a failure prints what reproduces it.
settings.register_profile("cuvil", deadline=None, print_blob=True)
settings.load_profile("cuvil")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update", action="store_true", help="rewrite the expectations of file tests to what is found"
    )


def pytest_configure(config: pytest.Config) -> None:
    # Runs that tests make must not stand in the job summary of the tests themselves.
    os.environ.pop("GITHUB_STEP_SUMMARY", None)
    if config.getoption("--update") and os.environ.get("CI") == "true":
        raise pytest.UsageError("--update is refused where CI=true; run it by hand and review the change")
