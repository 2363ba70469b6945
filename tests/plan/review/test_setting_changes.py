"""The diff is complete: whatever changes what a node will do shows."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from divvy.model import InvalidCluster, parse_cluster
from divvy.plan import diff, plan
from divvy.render.views.markdown import difference_markdown

BASE: dict[str, Any] = {
    "profiles": {
        "w": {},
        "seven": {"mig": {"1g.5gb": 7}},
        "four": {"timeSlicing": {"replicas": 4}},
    },
    "pools": {
        "q": {"select": {"role": "b"}, "profile": "w"},
        "auto": {
            "select": {"role": "c"},
            "profile": "w",
            "hardware": {"model": "A100-SXM4-40GB", "gpus": 2, "count": 0},
        },
    },
    "devices": [{"resource": "fuse/dev", "paths": ["/dev/fuse"], "count": 2}],
    "plugin": {"image": {"registry": "r:5000"}},
}


def changed(**paths: Any) -> dict[str, Any]:
    value = copy.deepcopy(BASE)
    for path, new in paths.items():
        *keys, last = path.split("__")
        at = value
        for key in keys:
            at = at.setdefault(key, {}) if not key.isdigit() else at[int(key)]  # type: ignore[index]
        at[last] = new
    return value


def compare(before: dict[str, Any], after: dict[str, Any]) -> Any:
    return diff(plan(parse_cluster(before), "a"), plan(parse_cluster(after), "b"))


HARDWARE = {"model": "A100-SXM4-40GB", "gpus": 2}
NODES = {**HARDWARE, "count": 2}


def settings(before: dict[str, Any], after: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [
        (setting.path, setting.before, setting.after) for setting in compare(before, after).settings
    ]


def test_shows_a_rule_for_a_model_that_the_hardware_does_not_name() -> None:
    def rules(replicas: int) -> list[dict[str, Any]]:
        return [{"devices": "A100*"}, {"devices": "T4*", "timeSlicing": {"replicas": replicas}}]

    before = changed(profiles__w=rules(4), pools__auto__hardware=NODES)
    after = changed(profiles__w=rules(8), pools__auto__hardware=NODES)
    four, eight = (f"A100*: whole GPUs; T4*: timeSlicing.replicas {n}" for n in (4, 8))
    assert ("pools.auto.profile", four, eight) in settings(before, after)
    assert not compare(before, after).changes
    # What the prediction shows is not said twice.
    seen = changed(profiles__w=[{"devices": "A100*", "timeSlicing": {"replicas": 2}}])
    more = changed(profiles__w=[{"devices": "A100*", "timeSlicing": {"replicas": 3}}])
    for value in (seen, more):
        value["pools"]["q"] = {**value["pools"]["q"], "hardware": NODES}
        value["pools"]["auto"]["hardware"] = NODES
    assert len(compare(seen, more).changes) == 2
    assert settings(seen, more) == []


def test_shows_a_rule_for_all_gpus_narrowed_to_some() -> None:
    four = {"timeSlicing": {"replicas": 4}}
    before = changed(profiles__four=four, pools__auto__hardware=NODES, pools__auto__profile="four")
    after = copy.deepcopy(before)
    after["profiles"]["four"] = {"devices": [0, 1], **four}
    four_each = "timeSlicing.replicas 4"
    assert settings(before, after) == [("pools.auto.profile", four_each, f"0, 1: {four_each}")]
    after["profiles"]["four"] = {"timeSlicing": {"replicas": 8}}
    assert settings(before, after) == []


def test_shows_whole_gpus_for_one_node() -> None:
    before = changed(pools__q__profile="seven")
    after = changed(pools__q__profile="seven", pools__q__overrides={"node-1": "w"})
    assert settings(before, after) == [
        ("pools.q.overrides.node-1", "mig.layout.1g.5gb 7", "whole GPUs")
    ]


def test_shows_the_profile_of_nodes_to_come() -> None:
    """Every node that is there now has an override."""
    hardware = {**HARDWARE, "count": 1}
    before = changed(pools__auto__hardware=hardware, pools__auto__overrides={"node-1": "four"})
    after = copy.deepcopy(before)
    after["pools"]["auto"]["profile"] = "seven"
    expected = ("pools.auto.profile", "whole GPUs", "mig.layout.1g.5gb 7")
    assert settings(before, after) == [expected]


def test_shows_the_memory_of_a_model_without_data() -> None:
    hardware = {"model": "Z1", "memory": "24Gi", "gpus": 1, "count": 1}
    more = {**hardware, "memory": "48Gi"}
    difference = compare(
        changed(pools__auto__hardware=hardware), changed(pools__auto__hardware=more)
    )
    assert [(setting.path, setting.after) for setting in difference.settings] == [
        ("pools.auto.hardware.memory", "48Gi")
    ]


@pytest.mark.parametrize("profile", ["w", "seven"])
def test_counts_the_first_node_of_a_pool_as_no_new_hardware(profile: str) -> None:
    before = changed(pools__auto__profile=profile)
    difference = compare(before, changed(pools__auto__profile=profile, pools__auto__hardware=NODES))
    assert difference.changes
    assert not difference.settings


def test_ignores_the_order_of_sets() -> None:
    tolerations = [{"key": "a", "operator": "Exists"}, {"key": "b", "operator": "Exists"}]
    before = changed(
        health__ignoreXids=[13, 31], imagePullSecrets=["a", "b"],
        pools__q__tolerations=tolerations, devices__0__paths=["/dev/fuse", "/dev/kvm"],
    )  # fmt: skip
    after = changed(
        health__ignoreXids=[31, 13], imagePullSecrets=["b", "a"],
        pools__q__tolerations=tolerations[::-1], devices__0__paths=["/dev/kvm", "/dev/fuse"],
    )  # fmt: skip
    assert not compare(before, after)


def test_shows_profile_names_that_come_and_go_since_a_label_may_choose_them() -> None:
    unfollowed = copy.deepcopy(BASE)
    unfollowed["profiles"]["quarter"] = unfollowed["profiles"].pop("four")
    assert compare(BASE, unfollowed).withdrawn_profiles == ("four",)
    followed = copy.deepcopy(BASE)
    followed["profiles"]["all"] = followed["profiles"].pop("w")
    for pool in followed["pools"].values():
        pool["profile"] = "all"
    difference = compare(BASE, followed)
    assert [(setting.path, setting.before, setting.after) for setting in difference.settings] == [
        ("profiles.all", "", "in the stack file"),
        ("profiles.w", "in the stack file", ""),
    ]
    assert (difference.changes, difference.withdrawn_profiles) == ((), ("w",))


@pytest.mark.parametrize(
    ("policy", "says"),
    [("wait", "must be free"), ("evict", "are evicted"), ("never", "are not repartitioned")],
)
def test_derives_the_disruption_from_the_change_policy(policy: str, says: str) -> None:
    hardware = {**HARDWARE, "count": 2}
    change = {"policy": policy}
    before = changed(profiles__w={"mig": {"3g.20gb": 2}}, pools__auto__hardware=hardware)
    after = changed(profiles__w={"mig": {"7g.40gb": 1}}, pools__auto__hardware=hardware)
    before["change"] = after["change"] = change
    (pool_change,) = compare(before, after).changes
    assert says in pool_change.disruption.reason


def test_renders_a_short_inert_page() -> None:
    from divvy.render.views.words import code

    assert code("a`b") == "`` a`b ``"
    assert code("a|b") == r"`a\|b`"
    assert "\x1b" not in code("\x1b[31m")
    with pytest.raises(InvalidCluster) as refusal:
        parse_cluster({**BASE, "profiles": {"a\n::error::x": {"mig": {"9g": 1}}}})
    assert "\n::error" not in "".join(problem.path for problem in refusal.value.problems)


def many(number: int, hardware: bool, kinds: int = 1) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a stack file without and with that many overrides, of so many profiles."""
    profiles = {
        f"share-{n}": {"timeSlicing": {"replicas": n + 2, "resourceName": f"share-{n}"}}
        for n in range(kinds)
    }
    pool: dict[str, Any] = {"select": {"role": "b"}, "profile": "w"}
    if hardware:
        pool["hardware"] = {**HARDWARE, "count": number + 5}
    before = {"profiles": {"w": {}, **profiles}, "pools": {"q": pool}}
    after = copy.deepcopy(before)
    nodes = {
        f"gpu-node-{n:04}.europe-west4.example.org": f"share-{n % kinds}" for n in range(number)
    }
    after["pools"]["q"]["overrides"] = nodes
    return before, after


@pytest.mark.parametrize(("hardware", "kinds"), [(True, 1), (True, 90), (False, 1), (False, 90)])
@pytest.mark.parametrize("number", [100, 1200])
def test_fits_any_number_of_overrides_into_one_comment(
    number: int, hardware: bool, kinds: int
) -> None:
    text = difference_markdown(compare(*many(number, hardware, kinds)))
    assert len(text.encode()) < 65_536
    assert text.count("```") % 2 == 0


def test_merges_overrides_that_change_alike_on_the_page() -> None:
    text = difference_markdown(compare(*many(100, hardware=True)))
    assert text.count("| resource | before | after |") == 2  # theirs, and the total
    assert "100 nodes, each so: gpu-node-0000" in text
    assert "and 80 more" in text
    two_kinds = difference_markdown(compare(*many(100, hardware=True, kinds=2)))
    assert two_kinds.count("50 nodes, each so") == 2
