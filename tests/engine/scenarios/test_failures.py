"""What failed, was cut off or interrupted: nothing is lost, and the next run goes on."""

from __future__ import annotations

import json
import signal
import subprocess
import time

import pytest

from tests.engine.scenario import scenario
from tests.engine.trial import Trial

WORKLOAD = """T = R(custom_timeouts=CustomTimeouts(create=E("T", "1s"), update=E("T", "1s")))
NAME = {"name": E("NAME")} if E("NAME") else {}
# Nothing here serves Deployments: it never becomes ready.
workload("p", metadata=NAME, opts=T)
if E("BAD"):
    cm("bad", metadata={"name": "bad"}, data={"bad key": "1"})
cm("good", metadata={"name": "good"}, data={"x": "1"})
"""


@scenario(
    "A workload does not get ready while a sibling fails",
    "waited for to its end, recorded with `initErrors`; the next `up` updates it",
    "equal",
)
def test_records_what_was_begun_when_a_sibling_fails(trial: Trial) -> None:
    trial.write(WORKLOAD)
    for _ in range(2):
        trial.up(BAD="1", expect=1)
        assert len(trial.names("deployments")) == 1
        assert trial.resources()["p"]["initErrors"]
    trial.destroy()
    assert trial.names("deployments") == set()


@scenario("`up` fails at one of many objects, then `destroy`", "nothing is left", "equal")
def test_loses_nothing_in_a_failed_up(trial: Trial) -> None:
    trial.write(
        'cm("bad", metadata={"name": "bad"}, data={"bad key": "1"})\n'
        'for n in range(24):\n    cm(f"n{n}", data={"x": "1"})\n'
    )
    trial.up(expect=1)
    recorded = {resource["id"].split("/")[1] for resource in trial.resources().values()}
    assert recorded == trial.names()
    trial.destroy()
    assert trial.names() == set()


@pytest.mark.parametrize(
    ("name", "then"),
    [("", "up"), ("", "refresh"), ("", "preview"), ("killed", "up"), ("killed", "destroy")],
)
@scenario(
    "`kill -9` while an object is made; then `up`, `destroy`, `refresh` or `preview`",
    "the object is forgotten: a second one, or already exists, or left behind",
    "other",
    "the object is found by the field manager written down before its creation, and is the stack's",
)
def test_finds_an_interrupted_creation_again(trial: Trial, name: str, then: str) -> None:
    trial.write(WORKLOAD)
    trial.up_killed(lambda: bool(trial.names("deployments")), NAME=name, T="60s")
    (deployment,) = trial.names("deployments")
    getattr(trial, then)(NAME=name, expect=None)
    if then == "destroy":
        assert trial.names("deployments") == set()
        assert not trial.resources()
        return
    assert trial.names("deployments") == {deployment}
    trial.up(NAME=name, expect=1)  # it never becomes ready here
    assert trial.names("deployments") == {deployment}
    assert trial.resources()["p"]["id"].endswith(f"/{deployment}")
    trial.destroy()
    assert trial.names("deployments") | trial.names() == set()


@scenario(
    "`kill -9` while an object is made, which the program then drops",
    "the object stays in the cluster",
    "other",
    "the object is found and deleted",
)
def test_deletes_an_interrupted_creation_that_the_program_drops(trial: Trial) -> None:
    trial.write(WORKLOAD)
    trial.up_killed(lambda: bool(trial.names("deployments")), T="60s")
    trial.write("")
    trial.up()
    assert trial.names("deployments") | trial.names() == set()


@scenario(
    "Replacement fails, program reverted",
    "the old object stays; same",
    "equal",
)
def test_keeps_the_old_object_after_a_failed_replacement(trial: Trial) -> None:
    trial.write('cm("a", metadata={"name": E("N")}, data={E("K"): "1"})\n')
    trial.up(N="fr", K="x")
    uid = trial.uid("fr")
    trial.up(N="frb", K="bad key", expect=1)
    assert "delete" not in trial.resources()["a"]
    assert "deleted" not in trial.up(N="fr", K="x")
    assert trial.uid("fr") == uid


@scenario(
    "Delete-first replacement fails, program reverted, fixed name",
    "the object just made is deleted; the next `up` says same",
    "other",
    "the object is made again and stays",
)
def test_recreates_the_object_of_a_reverted_delete_first_replacement(trial: Trial) -> None:
    trial.write('cm("a", metadata={"name": "fr"}, data={E("K"): "1"})\n')
    trial.up(K="x")
    trial.up(K="bad key", expect=1)
    trial.up(K="x")
    assert trial.names() == {"fr"}
    assert trial.resources()["a"]["outputs"]["metadata"]["uid"] == trial.uid("fr")


@pytest.mark.lab
def test_follows_an_alias_of_an_interrupted_creation(trial: Trial) -> None:
    trial.write(
        'T = CustomTimeouts(create=E("T", "1s"), update="1s")\n'
        'workload(E("N"), opts=R(custom_timeouts=T, aliases=[Alias(name="before")]))\n'
    )
    trial.up_killed(lambda: bool(trial.names("deployments")), N="before", T="60s")
    (deployment,) = trial.names("deployments")
    trial.up(N="after", expect=1)
    assert trial.names("deployments") == {deployment}
    assert set(trial.resources()) == {"after"}
    trial.destroy()
    assert trial.names("deployments") == set()


@pytest.mark.lab
def test_loses_nothing_in_a_reverted_interrupted_replacement(trial: Trial) -> None:
    trial.write(
        'workload("p",'
        ' metadata={"name": E("N"), "annotations": {"pulumi.com/skipAwait": E("S", "")}},\n'
        '  opts=R(custom_timeouts=CustomTimeouts(create="60s", update="1s")))\n'
    )
    trial.up(N="one", S="true")
    trial.up_killed(lambda: "two" in trial.names("deployments"), N="two")
    uid = trial.uid("one", "deployment")
    trial.up(N="one", S="true")
    assert trial.names("deployments") == {"one"}
    assert trial.uid("one", "deployment") == uid
    trial.destroy()
    assert trial.names("deployments") == set()


@pytest.mark.lab
def test_reverts_a_replacement_beside_a_failure(trial: Trial) -> None:
    trial.write(
        'cm("a", metadata={"name": E("N")}, data={"x": "1"})\n'
        'if E("BAD"):\n    cm("bad", metadata={"name": "bad"}, data={"bad key": "1"})\n'
    )
    trial.up(N="one")
    uid = trial.uid("one")
    trial.up(N="two", BAD="1", expect=1)
    assert trial.names() == {"one", "two"}
    assert "1 left from an earlier replacement deleted" in trial.up(N="one")
    assert trial.names() == {"one"}
    assert trial.uid("one") == uid
    trial.up(N="two", BAD="1", expect=1)
    trial.up(N="two")
    assert trial.names() == {"two"}


@scenario(
    "The program raises midway (`RunError`)",
    "its message; what it registered before is made; nothing is deleted",
    "other",
    "its message; nothing is changed",
)
def test_changes_nothing_when_the_program_raises(trial: Trial) -> None:
    trial.write(
        'cm("a", metadata={"name": "a"}, data={"x": E("STOP", "1")})\n'
        'if E("STOP"):\n    raise pulumi.RunError("wrong")\n'
        'cm("b", metadata={"name": "b"})\n'
    )
    trial.up()
    uid, checkpoint = trial.uid("a"), trial.checkpoint.read_bytes()
    assert "error: wrong" in trial.up(STOP="2", expect=1)
    assert trial.names() == set(trial.resources()) == {"a", "b"}
    assert trial.uid("a") == uid
    assert trial.checkpoint.read_bytes() == checkpoint


SLOW = """from pulumi.dynamic import CreateResult, Resource, ResourceProvider
import pathlib, time
class P(ResourceProvider):
    def create(self, props):
        pathlib.Path("begun").write_text("")
        time.sleep(60)
        return CreateResult("id1", {})
class D(Resource):
    def __init__(self, name):
        super().__init__(P(), name, {})
if E("SLOW"):
    D("slow")
cm("a", metadata={"name": "a"})
"""


@pytest.mark.lab
def test_ends_at_once_on_a_second_interrupt_and_loses_nothing(trial: Trial) -> None:
    trial.write(SLOW)
    process = trial.start("up", "--yes", SLOW="1")
    while not (trial.folder / "begun").exists() or not trial.names():
        assert process.poll() is None
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):  # a dynamic provider ends what it has begun
        process.wait(timeout=1)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=10)
    assert process.returncode == 130, output
    assert "interrupted immediately" in output
    assert "the creation of slow was interrupted" in trial.up()
    assert trial.names() == {"a"}
    assert "cannot be determined" in trial.destroy(expect=1)
    trial.refresh("--clear-pending-creates")
    trial.destroy()
    assert trial.names() == set()


@pytest.mark.lab
def test_records_what_is_left_after_an_interrupted_destroy(trial: Trial) -> None:
    trial.write(
        'cm("a", metadata={"name": "a", "finalizers": ["example.com/hold"]})\n'
        'cm("b", metadata={"name": "b"})\n'
    )
    trial.up()
    process = trial.start("destroy", "--yes")
    while "b" in trial.names():
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=20)
    assert process.returncode == 130, output
    assert "waiting for example.com/hold" in output
    assert set(trial.resources()) == {"a"}
    free = json.dumps({"metadata": {"finalizers": None}})
    place = f"--namespace={trial.namespace}"
    trial.cluster.kubectl("patch", "configmap", "a", place, f"--patch={free}", "--type=merge")
    trial.destroy()
    assert trial.names() == set()
