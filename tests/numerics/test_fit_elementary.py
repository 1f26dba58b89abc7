"""The coefficients in the source are the ones that the fit gives."""

from __future__ import annotations

import pytest

from cuvil.ops import elementary
from tests.needs import need_module

need_module("mpmath")

from tests.numerics.fit_elementary import ERF_LIMIT, TARGETS, fit  # noqa: E402

SOURCES = {
    "exp2": elementary.EXP2,
    "exp2_slope": elementary.EXP2_SLOPE,
    "log1p_slope": elementary.LOG1P_SLOPE,
    "erf_slope": elementary.ERF_SLOPE,
}


def test_the_fit_covers_the_range() -> None:
    assert float(ERF_LIMIT) == elementary.ERF_LIMIT
    assert SOURCES.keys() == TARGETS.keys()


@pytest.mark.parametrize("name", SOURCES)
def test_the_source_has_the_fitted_coefficients(name: str) -> None:
    coefficients, _ = fit(TARGETS[name])
    assert coefficients == pytest.approx(SOURCES[name], rel=1e-14, abs=0)
