"""What is given as a baseline is looked at before anything runs."""

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from divvy.cli.verify import register


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "the baseline cannot be read"),
        ("a: [", "the baseline cannot be read"),
        ("kind: Pod", "is no report.yaml of an earlier run"),
    ],
)
def test_a_baseline_that_is_none(tmp_path: Path, text: str | None, said: str) -> None:
    baseline = tmp_path / "old.yaml"
    if text is not None:
        baseline.write_text(text)
    app = typer.Typer()
    app.callback()(lambda: None)
    register(app)
    result = CliRunner().invoke(app, ["verify", "-s", "lab", f"--baseline={baseline}"])
    assert result.exit_code == 1
    assert said in result.output
