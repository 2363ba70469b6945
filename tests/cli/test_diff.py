"""divvy diff between revisions, files and stacks."""

import json
from pathlib import Path

import pytest

from tests.divvy_command import invoke


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize(
    "sides",
    [
        ("HEAD", "a"),
        ("HEAD", "stacks/Pulumi.a.yaml"),
        ("HEAD:stacks/Pulumi.a.yaml", "a"),
        ("HEAD", "-s", "a"),
    ],
)
def test_diffs_against_a_revision(sides):
    result = invoke("diff", *sides, "-o", "json")
    assert result.exit_code == 2
    totals = json.loads(result.stdout)["totals"]
    assert totals == {
        "nvidia.com/gpu.shared": {"before": 32, "after": 0},
        "nvidia.com/mig-1g.5gb": {"before": 0, "after": 56},
    }


def test_says_how_to_diff_a_stack_file_that_the_revision_lacks(project: Path) -> None:
    new = "stacks/Pulumi.new.yaml"
    (project / new).write_text((project / "stacks/Pulumi.a.yaml").read_text())
    result = invoke("diff", "HEAD", new)
    assert result.exit_code == 1
    assert "a new stack file has no older side" in result.stderr
    assert invoke(*result.stderr.partition("divvy ")[2].split()[:3]).exit_code == 0


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize("sides", [("a", "a"), ("HEAD", "HEAD", "-s", "a")])
def test_exits_0_for_a_diff_without_a_change(sides):
    result = invoke("diff", *sides)
    assert (result.exit_code, "no change" in result.stdout) == (0, True)


@pytest.mark.usefixtures("project")
def test_writes_diffs_in_every_format():
    for form, start in (("text", "a@HEAD"), ("md", "## GPU topology"), ("html", "<!doctype")):
        result = invoke("diff", "HEAD", "a", "-o", form)
        assert result.exit_code == 2
        assert result.stdout.startswith(start)
