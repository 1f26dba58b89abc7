"""Policies: the shipped ones, and every way a policy file can be wrong."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from cuvil_regress import calibration, models, policy
from cuvil_regress.errors import EXIT_USAGE, UsageError

HEAD = 'schema_version = 1\nsummary = "s"\nrtol = 1e-6\n'


def read(tmp_path: Path, text: str) -> policy.Policy:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    return policy.read(path)


def test_shipped_policies_are_the_files() -> None:
    assert policy.names() == ("oracle-fp32", "release")
    for name in policy.names():
        assert policy.load(name).name == name


def test_the_release_policy_is_purely_relative() -> None:
    assert dataclasses.replace(policy.load("release"), summary="") == policy.Policy("release", "", rtol=1e-6)


def test_a_policy_file_may_stand_anywhere(tmp_path: Path) -> None:
    text = HEAD + 'atol = 1\natol_of_largest = 0.5\nnan = "forbidden"\nallow_empty = true\n'
    expected = policy.Policy("mine", "s", 1e-6, 1.0, 0.5, "forbidden", True)
    assert read(tmp_path, text) == expected
    assert policy.load(str(tmp_path / "mine.toml")) == expected


FAULTS = [
    ("", "unknown schema_version"),
    ("schema_version = 2\n", "unknown schema_version"),
    ("schema_version = true\n", "unknown schema_version"),
    ("schema_version = 1\nrtol = 0\n", "missing key; expected 'summary'"),
    ("rtol = \n", "can't be read"),
    ("schema_version = 1\nsummary = 's'\nrtol = nan\n", "'rtol' is out of range"),
    ("schema_version = 1\nsummary = 's'\nrtol = inf\n", "'rtol' is out of range"),
    ("schema_version = 1\nsummary = 's'\nrtol = -1e-6\n", "'rtol' is out of range"),
    ("schema_version = 1\nsummary = 's'\nrtol = 1\n", "expected a number below 1"),
    ("schema_version = 1\nsummary = 's'\nrtol = true\n", "'rtol' has a wrong type"),
    ("schema_version = 1\nsummary = 's'\nrtol = '1e-6'\n", "'rtol' has a wrong type"),
    ("schema_version = 1\nsummary = 3\nrtol = 0\n", "'summary' has a wrong type"),
    (HEAD + "atol = inf\n", "'atol' is out of range"),
    (HEAD + "nan = 'ignore'\n", "'nan' is unknown; expected one of same-places, forbidden"),
    (HEAD + "allow_empty = 1\n", "'allow_empty' has a wrong type"),
    (HEAD + "name = 'other'\n", "unknown key"),
    (HEAD + "calibration = 1\n", "'calibration' has a wrong type"),
    (HEAD + "[calibration]\ntorch = '2'\nheadroom = 2\n", "missing key; expected 'measured'"),
    (HEAD + "[calibration]\ntorch = '2'\nheadroom = 2\nmeasured = [1]\n", "an array of tables"),
    (HEAD + "[calibration]\ntorch = '2'\nheadroom = 2\nmeasured = [{model = 'm'}]\n", "measured\\[0\\]"),
]


@pytest.mark.parametrize(("text", "message"), FAULTS)
def test_faults_are_usage_errors_that_name_the_file(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        read(tmp_path, text)
    assert caught.value.exit_code == EXIT_USAGE
    assert "mine.toml" in str(caught.value)


def test_an_unknown_key_or_name_is_told_its_nearest_neighbour(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="unknown key") as caught:
        read(tmp_path, HEAD + "atol_of_larges = 1e-6\n")
    assert caught.value.hint == "did you mean 'atol_of_largest'?"
    with pytest.raises(UsageError, match="unknown name") as caught:
        policy.load("realease")
    assert caught.value.hint == "did you mean 'release'?"
    with pytest.raises(UsageError, match="no such file"):
        policy.load(str(tmp_path / "absent.toml"))


def test_the_recorded_calibration_covers_every_output_and_its_headroom() -> None:
    recorded = policy.load("oracle-fp32").calibration
    assert recorded is not None
    keys = {(row.model, row.case, row.output) for row in recorded.measured}
    loaded = [models.load(name) for name in models.names()]
    assert keys == {(m.name, case, output) for m in loaded for case in models.CASES for output in m.outputs}
    assert recorded.headroom >= 4
    assert max(row.share_of_allowed for row in recorded.measured) * recorded.headroom <= 1


def test_the_calibration_is_what_eager_mode_measures_today(torch: Any) -> None:
    """Another processor or release rounds differently, but not by a factor of two."""
    tolerance = policy.load("oracle-fp32")
    assert tolerance.calibration is not None
    recorded = {(row.model, row.case, row.output): row for row in tolerance.calibration.measured}
    for row in calibration.measure(tolerance):
        former = recorded[row.model, row.case, row.output].share_of_allowed
        assert former / 2 <= row.share_of_allowed + 0.0005 <= former * 2, row
        assert row.share_of_allowed * tolerance.calibration.headroom / 2 <= 1, row


def test_a_calibration_of_no_policy_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert calibration.main(["oracle-fp23"]) == EXIT_USAGE
    assert capsys.readouterr().err.endswith("hint: did you mean 'oracle-fp32'?\n")


def test_calibration_rows_render_as_the_policy_reads_them(tmp_path: Path) -> None:
    rows = calibration.render(iter([policy.Measurement("m", "ordinary", "y", 0.0415)]))
    found = read(tmp_path, HEAD + f"[calibration]\ntorch = '2'\nheadroom = 2\n{rows}\n").calibration
    assert found == policy.Calibration("2", 2.0, (policy.Measurement("m", "ordinary", "y", 0.042),))
