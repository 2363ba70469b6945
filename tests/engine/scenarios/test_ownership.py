"""Whose an object is: nothing of others is adopted, changed or deleted."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.divvy_command import divvy_command, divvy_environment
from tests.engine.scenario import scenario
from tests.engine.trial import Trial


def theirs(trial: Trial) -> str:
    place = f"--namespace={trial.namespace}"
    trial.cluster.kubectl("create", "configmap", "theirs", place, "--from-literal=a=1")
    uid = trial.uid("theirs")
    assert uid
    return uid


@scenario(
    "An object exists already, also with `pulumi.com/patchForce`",
    "fails: already exists",
    "equal",
)
def test_adopts_no_object_of_somebody_else(trial: Trial) -> None:
    uid = theirs(trial)
    trial.write(
        'cm("a", metadata={"name": "theirs", "annotations": {"pulumi.com/patchForce": "true"}},'
        ' data={"a": "2"})\n'
    )
    assert "already exists (created by kubectl-create)" in trial.preview(expect=1)
    assert "already exists" in trial.up(expect=1)
    trial.destroy()
    assert trial.uid("theirs") == uid


@scenario(
    "Second checkout of the same project and stack",
    "already exists; the first's object untouched",
    "equal",
)
def test_shares_no_object_with_a_second_checkout(trial: Trial, tmp_path: Path) -> None:
    program = 'cm("a", metadata={"name": "a"}, data={"x": "1"})\n'
    trial.write(program)
    trial.up()
    uid = trial.uid("a")
    second = Trial(tmp_path / "second", trial.cluster, trial.namespace, trial.sdk)
    second.write(program)
    assert "already exists" in second.up(expect=1)
    second.destroy()
    assert trial.uid("a") == uid


@scenario("One URN twice in a program", "fails", "equal")
def test_refuses_one_urn_twice(trial: Trial) -> None:
    trial.write('cm("a", data={"x": "1"})\ncm("a", data={"x": "2"})\n')
    assert "registered twice" in trial.up(expect=1)
    assert len(trial.names()) == len(trial.resources()) <= 1


@scenario("One object under two names", "already exists, at every `up`", "equal")
def test_refuses_one_object_under_two_names(trial: Trial) -> None:
    trial.write('for n in "12":\n    cm(n, metadata={"name": "one"}, data={"x": n})\n')
    assert "one object cannot be two resources" in trial.up(expect=1)
    assert len(trial.resources()) == 1
    trial.destroy()
    assert trial.names() == set()


@scenario("`stack import` of another stack's deployment", "refused without `--force`", "equal")
def test_refuses_to_import_another_stacks_deployment(trial: Trial, tmp_path: Path) -> None:
    trial.write('cm("a", metadata={"name": "a"})\n')
    trial.up()
    exported = tmp_path / "dev.json"
    exported.write_text(trial.run("stack", "export").replace("pulumi:dev::", "pulumi:prod::"))
    output = trial.run("stack", "import", str(exported), expect=1)
    assert "another stack" in output
    assert set(trial.resources()) == {"a"}


@pytest.mark.parametrize("resources", ['"x"', '["x"]', "[5]", '[{"urn": "x"}]'])
def test_refuses_to_import_what_is_no_deployment(tmp_path: Path, resources: str) -> None:
    (tmp_path / "Pulumi.yaml").write_text("name: trial\nruntime: python\n")
    (tmp_path / "Pulumi.dev.yaml").write_text("config: {}\n")
    (tmp_path / "file.json").write_text(
        f'{{"version": 3, "deployment": {{"resources": {resources}}}}}'
    )
    done = subprocess.run(
        divvy_command("stack", "import", "file.json", "--stack=dev"),
        cwd=tmp_path,
        env=divvy_environment({}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("error: file.json is not an exported deployment")
    assert not (tmp_path / ".pulumi").exists()
