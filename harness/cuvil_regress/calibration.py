"""Measures how much of a policy's allowance PyTorch's own float32 eager mode uses against float64.

A tolerance for float32 results has to pass a correct float32 implementation with room to spare, and no
more. The numbers in a policy's `[calibration]` table are made and checked by this module:

    python -m cuvil_regress.calibration oracle-fp32
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence

from cuvil_regress import models, policy
from cuvil_regress.comparer import compare_tensor
from cuvil_regress.errors import HarnessError
from cuvil_regress.policy import Measurement, Policy


def measure(tolerance: Policy) -> Iterator[Measurement]:
    """Measures every output of every case of every model; needs PyTorch."""
    for name in models.names():
        model = models.load(name)
        for case in models.CASES:
            yield from _measure_case(model, case, tolerance)


def _measure_case(model: models.Model, case: str, tolerance: Policy) -> Iterator[Measurement]:
    narrow, wide = (model.evaluate(case, dtype).outputs for dtype in ("float32", "float64"))
    for output in model.outputs:
        found = compare_tensor(narrow[output], wide[output], tolerance, model_dtype="float32")
        yield Measurement(model.name, case, output, found.max_share_of_allowed)


def render(measured: Iterator[Measurement]) -> str:
    """The measurements as the rows of a policy's `[calibration]` table; the last digit is rounded up."""
    rows = (
        f'  {{ model = "{row.model}", case = "{row.case}", output = "{row.output}", '
        f"share_of_allowed = {row.share_of_allowed + 0.0005:.3f} }},"
        for row in measured
    )
    return "\n".join(("measured = [", *rows, "]"))


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m cuvil_regress.calibration", description="Measure a policy."
    )
    parser.add_argument("policy", metavar="POLICY", help="its name, or a .toml file")
    options = parser.parse_args(arguments)
    try:
        print(render(measure(policy.load(options.policy))))
    except HarnessError as error:
        print(error.render(), file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
