"""What an object is across updates: names, aliases, versions, fields that never change."""

from __future__ import annotations

import json

import pytest

from tests.engine.scenario import scenario
from tests.engine.trial import Trial


@scenario(
    "Logical rename without an alias, fixed `metadata.name`",
    "fails: already exists; nothing deleted",
    "equal",
)
def test_fails_harmlessly_on_a_rename_without_alias(trial: Trial) -> None:
    trial.write('cm(E("N"), metadata={"name": "shared"}, data={"x": "1"})\n')
    trial.up(N="a")
    uid = trial.uid("shared")
    assert "already exists" in trial.up(N="b", expect=1)
    assert trial.uid("shared") == uid
    assert set(trial.resources()) == {"a"}


@scenario("Logical rename, automatic name", "create, then delete", "equal")
def test_creates_a_new_object_on_a_rename_of_an_automatic_name(trial: Trial) -> None:
    trial.write('cm(E("N"), data={"x": "1"})\n')
    trial.up(N="a")
    output = trial.up(N="b")
    assert "created" in output
    assert "deleted" in output
    assert len(trial.names()) == 1


COMPONENT = """class C(pulumi.ComponentResource):
    def __init__(self, n, o=None):
        super().__init__("x:index:C", n, {}, o)
        O = R(parent=self)
        cm(f"{n}-x", metadata={"name": "prefixed"}, data={"x": "1"}, opts=O)
        cm("fixed", metadata={"name": "fixedcm"}, data={"x": "1"}, opts=O)
        if E("SUB"):
            cm(f"sub-{n}", metadata={"name": "suffixed"}, data={"x": "1"}, opts=O)
C(E("N"), R(aliases=[Alias(name="old")] if E("AL") else None))
"""


@scenario(
    "Component renamed with an alias on the component alone",
    "children follow if their name begins with the component's; else already exists",
    "equal",
)
def test_inherits_a_parents_alias_in_its_children(trial: Trial) -> None:
    trial.write(COMPONENT)
    trial.up(N="old")
    before = {name: trial.uid(name) for name in trial.names()}
    assert "created" not in trial.up(N="new", AL="1")
    assert {name: trial.uid(name) for name in trial.names()} == before
    assert set(trial.resources()) == {"new-x", "fixed"}
    trial.up(N="new", AL="1", SUB="1")
    before = {name: trial.uid(name) for name in trial.names()}
    trial.write(COMPONENT.replace('name="old"', 'name="new"'))
    assert "already exists" in trial.up(N="third", AL="1", SUB="1", expect=1)
    assert {name: trial.uid(name) for name in trial.names()} == before


@scenario("`metadata.namespace` written out, and taken out again", "same", "equal")
def test_treats_an_explicit_default_namespace_as_the_same(trial: Trial) -> None:
    trial.write(
        'cm("a", metadata={"name": "a", **({"namespace": E("NS")} if E("NS") else {})},'
        ' data={"x": "1"})\n'
    )
    trial.up()
    uid = trial.uid("a")
    for namespace in (trial.namespace, ""):
        output = trial.up(NS=namespace)
        assert "replaced" not in output
        assert "deleted" not in output
        assert trial.uid("a") == uid
    # As another engine may record it.
    text = json.loads(trial.checkpoint.read_text())
    for resource in text["checkpoint"]["latest"]["resources"]:
        resource.get("inputs", {}).get("metadata", {}).pop("namespace", None)
    trial.checkpoint.write_text(json.dumps(text))
    for namespace in ("", trial.namespace):
        assert "replaced" not in trial.preview(NS=namespace, expect=0)


@scenario(
    "Data of an auto-named ConfigMap changes",
    "new random name, create first; a failing creation leaves the old one",
    "equal",
)
def test_draws_a_new_automatic_name_in_a_replacement(trial: Trial) -> None:
    trial.write(
        'a = cm("a", data={E("K", "x"): E("X")})\n'
        'cm("user", metadata={"name": "user"}, data={"ref": a.metadata["name"]},'
        ' opts=R(provider=k8s.Provider("p", enable_config_map_mutable=True)))\n'
    )
    trial.up(X="1")
    (before,) = trial.names() - {"user"}
    trial.up(X="2", K="bad key", expect=1)
    assert trial.names() == {before, "user"}
    assert "unchanged" in trial.up(X="1")
    trial.up(X="2")
    (after,) = trial.names() - {"user"}
    assert after != before
    assert trial.names() == {after, "user"}


@scenario(
    "Delete-first replacement with dependants by property",
    "dependants that would be replaced too are deleted first",
    "other",
    "each dependant follows by its own change",
)
def test_keeps_dependants_of_a_replaced_object(trial: Trial) -> None:
    trial.write(
        'a = cm("a", metadata={"name": "a"}, data={"x": E("X")})\n'
        'cm("b", metadata={"name": "b"}, data={"name": a.metadata["name"]}, opts=R(protect=True))\n'
        'cm("c", metadata={"name": "c"}, data={"v": a.data["x"]})\n'
    )
    trial.up(X="1")
    uids = {name: trial.uid(name) for name in "abc"}
    assert "2 to replace" in trial.preview(X="2", expect=2)
    trial.up(X="2")
    assert trial.uid("b") == uids["b"]
    assert all(trial.uid(name) not in (None, uids[name]) for name in "ac")


@pytest.mark.lab
def test_updates_to_immutable_and_replaces_back(trial: Trial) -> None:
    trial.write(
        'cm("a", metadata={"name": "a"}, data={"x": "1"}, immutable=bool(E("I")) or None)\n'
    )
    trial.up()
    uid = trial.uid("a")
    assert "1 updated" in trial.up(I="1")
    assert trial.uid("a") == uid
    assert "1 replaced" in trial.up()
