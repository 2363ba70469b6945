"""The workflow that `divvy init` writes: what it runs every night, and when it fails."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import yaml

import divvy.init
from tests.divvy_command import read_by_divvy

TEMPLATES = Path(divvy.init.__file__).parent / "templates"
# Writes down how it was called, and fails for the stack that is asked for.
DIVVY = """#!/bin/sh
echo "$@" >> calls
case "$1 $*" in *"$FAILS"*) exit 1;; esac
"""


def script(host: str) -> str:
    """Return the shell script that verifies every stack."""
    workflow = yaml.safe_load((TEMPLATES / f"{host}.yaml").read_text())
    if host == "gitlab":
        return str(workflow["divvy verify"]["script"][-1])
    steps = workflow["jobs"]["verify"]["steps"]
    return next(str(step["run"]) for step in steps if step.get("name") == "Verify")


@pytest.mark.parametrize("host", ["github", "gitlab"])
def test_verifies_strictly_beside_the_night_before_and_looks_for_drift(
    host: str, tmp_path: Path
) -> None:
    (tmp_path / "stacks").mkdir()
    for name in ("a", "b"):
        (tmp_path / f"stacks/Pulumi.{name}.yaml").write_text("")
    program = tmp_path / "bin/divvy"
    program.parent.mkdir()
    program.write_text(DIVVY)
    program.chmod(0o755)

    def night(fails: str = "nothing at all", **variables: str) -> tuple[int, list[str]]:
        (tmp_path / "calls").unlink(missing_ok=True)
        path = f"{program.parent}:{os.environ['PATH']}"
        environment = {"PATH": path, "FAILS": fails, "RUNNER_TEMP": str(tmp_path), **variables}
        command = ["bash", "-e", "-c", script(host)]
        done = subprocess.run(command, cwd=tmp_path, env=environment, check=False)
        calls = (tmp_path / "calls").read_text().splitlines()
        assert not [words for call in calls if (words := read_by_divvy(call.split()))]
        return done.returncode, calls

    assert night() == (
        0,
        [
            "verify --file stacks/Pulumi.a.yaml --strict --compare last --out out/Pulumi.a",
            "diff --live stacks/Pulumi.a.yaml",
            "verify --file stacks/Pulumi.b.yaml --strict --compare last --out out/Pulumi.b",
            "diff --live stacks/Pulumi.b.yaml",
        ],
    )
    code, calls = night("diff --live stacks/Pulumi.a.yaml")
    assert code == 1
    assert len(calls) == 4
    _, calls = night(WORKLOAD_IMAGE="r.example/workloads@sha256:1")
    image = "--workload-image=r.example/workloads@sha256:1"
    assert [image in call for call in calls] == [True, False, True, False]


def test_takes_the_image_of_the_workloads_from_githubs_variables() -> None:
    workflow = yaml.safe_load((TEMPLATES / "github.yaml").read_text())
    environments = [step.get("env", {}) for step in workflow["jobs"]["verify"]["steps"]]
    (given,) = [variables for variables in environments if "WORKLOAD_IMAGE" in variables]
    assert given["WORKLOAD_IMAGE"] == "${{ vars.WORKLOAD_IMAGE }}"
