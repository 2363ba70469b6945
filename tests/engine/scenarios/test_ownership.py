"""Whose an object is: nothing of others is adopted, changed or deleted."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.scenario import scenario
from tests.engine.trial import Trial


def theirs(trial: Trial) -> str:
    place = f"--namespace={trial.namespace}"
    trial.cluster.kubectl("create", "configmap", "theirs", place, "--from-literal=a=1")
    uid = trial.uid("theirs")
    assert uid
    return uid


@scenario("`ConfigMapPatch` and other Patch kinds", "patch, and give back", "refused")
def test_patch_kinds_are_refused(trial: Trial) -> None:
    uid = theirs(trial)
    trial.write(
        'k8s.core.v1.ConfigMapPatch("p", metadata={"name": "theirs",'
        ' "annotations": {"pulumi.com/patchForce": "true"}}, data={"b": "ours"})\n'
    )
    assert "ConfigMapPatch is not supported" in trial.up(expect=1)
    trial.destroy()
    assert trial.uid("theirs") == uid


@scenario(
    "An object exists already, also with `pulumi.com/patchForce`",
    "fails: already exists",
    "equal",
)
def test_an_object_of_somebody_else_is_never_adopted(trial: Trial) -> None:
    uid = theirs(trial)
    trial.write(
        'cm("a", metadata={"name": "theirs", "annotations": {"pulumi.com/patchForce": "true"}},'
        ' data={"a": "2"})\n'
    )
    assert "exists already, made by kubectl-create" in trial.preview(expect=1)
    assert "exists already" in trial.up(expect=1)
    trial.destroy()
    assert trial.uid("theirs") == uid


@scenario(
    "`get`, then a real resource of that name; and back",
    "already exists; only the stack's own object is ever deleted",
    "equal",
)
def test_what_was_only_read_is_never_deleted(trial: Trial) -> None:
    uid = theirs(trial)
    trial.environment["NS"] = trial.namespace
    trial.write(
        'if E("OWN"):\n    cm("a", metadata={"name": E("OWN")}, data={"x": "1"})\n'
        'else:\n    cm.get("a", E("NS") + "/theirs")\n'
    )
    trial.up()
    assert "exists already" in trial.up(OWN="theirs", expect=1)
    trial.up(OWN="ours")
    assert trial.names() == {"theirs", "ours"}
    trial.up()
    assert trial.names() == {"theirs"}
    trial.destroy()
    assert trial.uid("theirs") == uid


@pytest.mark.lab
def test_a_protected_object_stays_where_the_program_only_reads_its_name_now(trial: Trial) -> None:
    trial.environment["NS"] = trial.namespace
    theirs(trial)
    trial.write(
        'if E("OWN"):\n    cm("a", metadata={"name": "ours"}, opts=R(protect=True))\n'
        'else:\n    cm.get("a", E("NS") + "/theirs")\n'
    )
    trial.up(OWN="1")
    assert "a is protected" in trial.up(expect=1)
    assert trial.names() == {"ours", "theirs"}


@scenario(
    "Second checkout of the same project and stack",
    "already exists; the first's object untouched",
    "equal",
)
def test_a_second_checkout_shares_no_object(trial: Trial, tmp_path: Path) -> None:
    program = 'cm("a", metadata={"name": "a"}, data={"x": "1"})\n'
    trial.write(program)
    trial.up()
    uid = trial.uid("a")
    second = Trial(tmp_path / "second", trial.cluster, trial.namespace, trial.sdk)
    second.write(program)
    assert "exists already" in second.up(expect=1)
    second.destroy()
    assert trial.uid("a") == uid


@scenario("One URN twice in a program", "fails", "equal")
def test_one_urn_twice_is_refused(trial: Trial) -> None:
    trial.write('cm("a", data={"x": "1"})\ncm("a", data={"x": "2"})\n')
    assert "registered twice" in trial.up(expect=1)
    assert len(trial.names()) == len(trial.resources()) <= 1


@scenario("One object under two names", "already exists, at every `up`", "equal")
def test_one_object_under_two_names_is_refused(trial: Trial) -> None:
    trial.write('for n in "12":\n    cm(n, metadata={"name": "one"}, data={"x": n})\n')
    assert "one object cannot be two resources" in trial.up(expect=1)
    assert len(trial.resources()) == 1
    trial.destroy()
    assert trial.names() == set()


@scenario("`stack import` of another stack's deployment", "refused without `--force`", "equal")
def test_another_stacks_deployment_is_not_imported(trial: Trial, tmp_path: Path) -> None:
    trial.write('cm("a", metadata={"name": "a"})\n')
    trial.up()
    exported = tmp_path / "dev.json"
    exported.write_text(trial.run("stack", "export").replace("pulumi:dev::", "pulumi:prod::"))
    said = trial.run("stack", "import", str(exported), expect=1)
    assert "another stack" in said
    assert set(trial.resources()) == {"a"}
