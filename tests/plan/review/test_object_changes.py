"""Comparing the rendered objects of two stack files."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from divvy.model import parse_document
from divvy.plan.review.object_changes import ObjectChanges, object_changes
from divvy.render.objects.cluster import objects

BASE: dict[str, Any] = {
    "profiles": {"whole": {}, "shared": {"timeSlicing": {"replicas": 4}}},
    "pools": {"a": {"select": {"pool": "a"}, "profile": "whole"}},
}
LIMIT = {"limit": "auto", "action": "prevent"}


def compare(edit: dict[str, Any], image: tuple[str, str] = ("i", "i")) -> ObjectChanges:
    """Compare the base with itself after an edit of its top level."""
    sides = (BASE, {**deepcopy(BASE), **edit})
    return object_changes(
        *(objects(parse_document(value), name) for value, name in zip(sides, image, strict=True))
    )


def test_names_a_configuration_that_only_an_object_shows() -> None:
    changes = compare({"profiles": {**BASE["profiles"], "twin": {}}})
    assert changes.updated == ("ConfigMap divvy",)
    assert changes.effects == ()


def test_reports_agents_that_restart_for_another_image() -> None:
    changes = compare({}, ("old", "new"))
    assert changes.restarted == ("DaemonSet divvy-agent",)
    assert changes.effects == ("pods of Divvy restart: DaemonSet divvy-agent",)


def test_reports_what_an_unreachable_rule_with_a_limit_lets_agents_see() -> None:
    rule = {"devices": [99], "timeSlicing": {"replicas": 2, "memoryLimit": LIMIT}}
    changes = compare({"profiles": {**BASE["profiles"], "whole": [rule, {}]}})
    assert "DaemonSet divvy-agent" in changes.updated
    assert any(
        "sees more of its host: " in effect and "hostPID" in effect for effect in changes.effects
    )


def test_reports_the_rights_that_eviction_needs() -> None:
    changes = compare({"change": {"policy": "evict"}})
    (effect,) = changes.effects
    assert effect.endswith(" gains the rights: create pods/eviction")
    assert effect.startswith("ClusterRole ")


def test_reports_what_the_first_claims_bring() -> None:
    profiles = {**BASE["profiles"], "sizes": {"claims": {"shares": {}}}}
    changes = compare({"profiles": profiles})
    text = "\n".join(changes.effects)
    assert "Kubernetes 1.36.2 or newer is needed" in text
    assert "new admission policies that can change pods of every namespace: divvy-" in text
    assert "new admission policies that can refuse pods of every namespace: divvy-" in text
    assert "gains the rights: " in text
    assert "DeviceClass divvy-share" in changes.created
    back = object_changes(
        objects(parse_document({**BASE, "profiles": profiles}), "i"),
        objects(parse_document(BASE), "i"),
    )
    assert "DeviceClass divvy-share" in back.deleted
    assert not any("Kubernetes" in effect for effect in back.effects)


def test_reports_a_move_of_divvy_to_another_namespace() -> None:
    effects = compare({"namespace": "gpus"}).effects
    assert effects[0] == (
        "Divvy moves from namespace divvy-system to gpus: its objects are created there"
    )
    assert effects[1].startswith("pods of Divvy restart: DaemonSet divvy-agent")
