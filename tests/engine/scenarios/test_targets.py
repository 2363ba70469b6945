"""Order of steps, and `--target`."""

from __future__ import annotations

import json

from tests.engine.scenario import scenario
from tests.engine.trial import Trial


@scenario(
    "Delete-first replacement with dependants by property",
    "dependants deleted first, then made again; a protected one refuses before anything",
    "equal",
)
def test_dependants_go_before_what_they_depend_on(trial: Trial) -> None:
    trial.write(
        'a = cm("a", metadata={"name": "a"}, data={"x": E("X")})\n'
        'b = cm("b", metadata={"name": "b"}, data={"v": a.data["x"]},'
        ' opts=R(protect=bool(E("P"))))\n'
        'cm("c", metadata={"name": "c"}, data={"x": "1"}, opts=R(depends_on=[a]))\n'
    )
    trial.up(X="1", P="1")
    uids = {name: trial.uid(name) for name in "abc"}
    assert "protected" in trial.up(X="2", P="1", expect=1)
    assert {name: trial.uid(name) for name in "abc"} == uids
    trial.up(X="1")
    trial.up(X="2")
    assert trial.uid("c") == uids["c"]
    assert all(trial.uid(name) not in (None, uids[name]) for name in "ab")


@scenario(
    "`--target`: unknown, `refresh`, `destroy` with dependants", "checked and honoured", "equal"
)
def test_targets_are_checked_and_honoured(trial: Trial) -> None:
    trial.write(
        'p = k8s.Provider("p", enable_config_map_mutable=True)\n'
        'a = cm("a", metadata={"name": "a"}, data={"x": "1"}, opts=R(provider=p))\n'
        'cm("b", metadata={"name": "b"}, data={"v": a.data["x"]}, opts=R(provider=p))\n'
    )
    trial.up()
    unknown = "--target=urn:pulumi:dev::trial::kubernetes:core/v1:ConfigMap::none"
    for operation in ("preview", "up", "refresh", "destroy"):
        assert "none" in getattr(trial, operation)(unknown, expect=1)
    place = f"--namespace={trial.namespace}"
    for name in "ab":
        patch = json.dumps({"data": {"x": "out", "v": "out"}})
        trial.cluster.kubectl("patch", "configmap", name, place, f"--patch={patch}")
    trial.refresh(f"--target={trial.urn('a')}")
    recorded = trial.resources()
    assert recorded["a"]["inputs"]["data"]["x"] == "out"
    assert recorded["b"]["inputs"]["data"]["v"] == "1"
    urn = trial.urn("a")
    assert "depend on a --target" in trial.destroy(f"--target={urn}", expect=1)
    assert trial.names() == {"a", "b"}
    trial.destroy(f"--target={urn}", f"--target={trial.urn('b')}")
    assert trial.names() == set()


TARGETED = """p = k8s.Provider("p", enable_config_map_mutable=bool(E("IN_PLACE")))
O = R(provider=p)
if E("A"):
    a = cm("a", metadata={"name": "a"}, data={"x": E("A")}, opts=O)
    cm("b", metadata={"name": "b", "labels": {"l": E("B", "1")}}, data={"v": a.data["x"]}, opts=O)
"""


@scenario(
    "`up --target` of one whose dependency was never made; wildcards",
    "refused; `**` matches",
    "refused",
    "a target is a whole URN",
)
def test_a_target_that_needs_a_resource_that_is_not_there_is_refused(trial: Trial) -> None:
    trial.write(TARGETED)
    urn = "urn:pulumi:dev::trial::kubernetes:core/v1:ConfigMap::b"
    assert "a is new and not a --target" in trial.up(f"--target={urn}", A="1", expect=1)
    assert trial.names() == set()
    assert "**b" in trial.up("--target=**b", A="1", expect=1)
    assert trial.names() == set()


@scenario(
    "`up --target` of one that is replaced delete-first, with a dependant",
    "the dependant is replaced with it",
    "equal",
)
def test_a_targets_dependant_that_had_to_go_is_made_again(trial: Trial) -> None:
    trial.write(TARGETED)
    trial.up(A="1")
    uids = {name: trial.uid(name) for name in "ab"}
    urn = trial.urn("a")
    trial.up(f"--target={urn}", A="2")
    assert trial.names() == {"a", "b"}
    recorded = {name: one["outputs"]["metadata"]["uid"] for name, one in trial.resources().items()}
    assert recorded == {name: trial.uid(name) for name in "ab"}
    assert not set(recorded.values()) & set(uids.values())


@scenario(
    "`up --target` with in-place changes in the target and in another",
    "only the target is changed",
    "equal",
)
def test_only_a_target_is_changed(trial: Trial) -> None:
    trial.write(TARGETED)
    trial.up(IN_PLACE="1", A="1")
    trial.up(f"--target={trial.urn('b')}", IN_PLACE="1", A="2", B="2")
    data = trial.cluster.get("configmaps", "a", f"--namespace={trial.namespace}")["data"]
    assert data == {"x": "1"}
    labels = trial.cluster.get("configmaps", "b", f"--namespace={trial.namespace}")["metadata"]
    assert labels["labels"] == {"l": "2"}
