"""What is given as a baseline is looked at before anything runs."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from divvy.cli.main import app


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "the baseline cannot be read"),
        ("a: [", "the baseline cannot be read"),
        ("kind: Pod", "is not a report.yaml of an earlier run"),
    ],
)
def test_a_baseline_that_is_none(tmp_path: Path, text: str | None, said: str) -> None:
    baseline = tmp_path / "old.yaml"
    if text is not None:
        baseline.write_text(text)
    result = CliRunner().invoke(app, ["verify", "-s", "lab", f"--baseline={baseline}"])
    assert result.exit_code == 1
    assert said in result.output
