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
def test_a_rename_without_alias_fails_and_harms_nothing(trial: Trial) -> None:
    trial.write('cm(E("N"), metadata={"name": "shared"}, data={"x": "1"})\n')
    trial.up(N="a")
    uid = trial.uid("shared")
    assert "exists already" in trial.up(N="b", expect=1)
    assert trial.uid("shared") == uid
    assert set(trial.resources()) == {"a"}


@scenario("Logical rename, automatic name", "create, then delete", "equal")
def test_a_rename_of_an_automatic_name_makes_a_new_object(trial: Trial) -> None:
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
    "children follow where their name begins with the component's; else already exists",
    "equal",
)
def test_children_inherit_the_alias_of_their_parent(trial: Trial) -> None:
    trial.write(COMPONENT)
    trial.up(N="old")
    before = {name: trial.uid(name) for name in trial.names()}
    assert "created" not in trial.up(N="new", AL="1")
    assert {name: trial.uid(name) for name in trial.names()} == before
    assert set(trial.resources()) == {"new-x", "fixed"}
    trial.up(N="new", AL="1", SUB="1")
    before = {name: trial.uid(name) for name in trial.names()}
    trial.write(COMPONENT.replace('name="old"', 'name="new"'))
    assert "exists already" in trial.up(N="third", AL="1", SUB="1", expect=1)
    assert {name: trial.uid(name) for name in trial.names()} == before


@scenario("`metadata.namespace` written out, and taken out again", "same", "equal")
def test_a_namespace_written_out_is_the_same(trial: Trial) -> None:
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
    for found in text["checkpoint"]["latest"]["resources"]:
        found.get("inputs", {}).get("metadata", {}).pop("namespace", None)
    trial.checkpoint.write_text(json.dumps(text))
    for namespace in ("", trial.namespace):
        assert "replaced" not in trial.preview(NS=namespace, expect=0)


@pytest.mark.lab
def test_a_field_that_never_changes_is_refused_with_the_way_to_replace(trial: Trial) -> None:
    trial.write(
        'k8s.networking.v1.IngressClass("i", metadata={"name": E("NS")},\n'
        '  spec={"controller": E("C")}, opts=R(delete_before_replace=bool(E("R")),\n'
        '  replace_on_changes=["spec.controller"] if E("R") else None))\n'
    )
    trial.environment["NS"] = trial.namespace
    trial.up(C="example.com/one")
    uid = trial.uid(trial.namespace, "ingressclass")
    assert "replace_on_changes=[its path]" in trial.preview(C="example.com/two", expect=1)
    assert "replace_on_changes=[its path]" in trial.up(C="example.com/two", expect=1)
    assert trial.uid(trial.namespace, "ingressclass") == uid
    trial.up(C="example.com/two", R="1")
    assert trial.uid(trial.namespace, "ingressclass") not in (uid, None)
    trial.destroy(C="example.com/two")


@scenario(
    "Data of an auto-named ConfigMap changes",
    "new random name, create first; a failing creation leaves the old one",
    "equal",
)
def test_an_automatic_name_is_new_in_a_replacement(trial: Trial) -> None:
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


@scenario("autoscaling/v1 to v2", "updated in place", "equal")
def test_another_version_of_an_api_is_an_update(trial: Trial) -> None:
    trial.write(
        'ref = {"api_version": "apps/v1", "kind": "Deployment", "name": "x"}\n'
        'version = getattr(k8s.autoscaling, E("V"))\n'
        'version.HorizontalPodAutoscaler("h", metadata={"name": "h"},'
        ' spec={"max_replicas": 3, "scale_target_ref": ref})\n'
    )
    trial.up(V="v1")
    uid = trial.uid("h", "hpa")
    trial.up(V="v2")
    assert trial.uid("h", "hpa") == uid


@scenario("A custom resource right after its definition", "the definition is awaited", "equal")
def test_a_custom_resource_follows_its_definition(trial: Trial) -> None:
    trial.write(
        'G = E("NS") + ".example.com"\n'
        'S = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}\n'
        'd = k8s.apiextensions.v1.CustomResourceDefinition("d", metadata={"name": "things." + G},\n'
        '  spec={"group": G, "scope": "Namespaced", "names": {"kind": "Thing",\n'
        '  "plural": "things"}, "versions": [{"name": "v1", "served": True, "storage": True,\n'
        '  "schema": {"open_apiv3_schema": S}}]})\n'
        'k8s.apiextensions.CustomResource("t", api_version=G + "/v1", kind="Thing",\n'
        '  metadata={"name": "t"}, opts=R(depends_on=[d]))\n'
    )
    trial.environment["NS"] = trial.namespace
    trial.preview(expect=2)
    trial.up()
    assert "unchanged" in trial.up()
    trial.destroy()
