"""What holds for every pair of stack files."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from divvy.model import (
    InvalidCluster,
    NoPlacement,
    canonical_json,
    gpu_model,
    gpu_models,
    parse_canonical,
    parse_cluster,
    parse_document,
    place,
)
from divvy.plan import Plan, diff, plan
from divvy.plan.review.object_changes import object_changes
from divvy.render.objects.cluster import objects
from divvy.render.views.markdown import difference_markdown
from tests.thoroughness import at_length

few = settings(max_examples=40)
MODELS = tuple(gpu_models())


@st.composite
def layouts(draw: st.DrawFn, model: str) -> dict[str, int] | None:
    """Draw a MIG layout that a model has room for, None for whole GPUs."""
    geometry = gpu_model(model).mig
    if geometry is None or draw(st.booleans()):
        return None
    names = [profile.name for profile in geometry.profiles if not profile.attributes]
    layout: dict[str, int] = {}
    for name in draw(st.lists(st.sampled_from(names), min_size=1, max_size=7)):
        more = {**layout, name: layout.get(name, 0) + 1}
        try:
            place(geometry, more)
        except NoPlacement:
            continue
        layout = more
    return layout or None


@st.composite
def values(draw: st.DrawFn) -> dict[str, Any]:
    """Draw the ``divvy:cluster`` value of a valid stack file."""
    profiles: dict[str, Any] = {}
    pools: dict[str, Any] = {}
    for number in range(draw(st.integers(1, 3))):
        model = draw(st.sampled_from(MODELS))
        for variant in range(draw(st.integers(1, 2))):
            rule: dict[str, Any] = {}
            layout = draw(layouts(model))
            if layout is not None:
                rule["mig"] = layout
            if draw(st.booleans()):
                name = f"share-{number}-{variant}"
                replicas = draw(st.integers(2, 6))
                one_kind = layout is None or len(layout) == 1
                rule["timeSlicing"] = {"replicas": replicas} | (
                    {"resourceName": name} if one_kind else {}
                )
            profiles[f"p{number}-{variant}"] = rule
        own = [name for name in profiles if name.startswith(f"p{number}-")]
        count = draw(st.integers(0, 4))
        pools[f"pool-{number}"] = {
            "select": {"role": str(number)},
            "hardware": {"model": model, "gpus": draw(st.integers(1, 4)), "count": count},
            "profile": draw(st.sampled_from(own)),
            "overrides": {
                f"n{number}-{node}": draw(st.sampled_from(own))
                for node in range(draw(st.integers(0, count)))
            },
        }
    value = {"profiles": profiles, "pools": pools, "health": {"recoverAfter": "30s"}}
    try:
        parse_cluster(value)
    except InvalidCluster:
        assume(False)
    return value


def _order(value: dict[str, Any], _: random.Random) -> None:
    for key in list(value):
        value[key] = value.pop(key)


def _rename_profile(value: dict[str, Any], at: random.Random) -> None:
    old = at.choice(sorted(value["profiles"]))
    value["profiles"]["other"] = value["profiles"].pop(old)
    for pool in value["pools"].values():
        pool["profile"] = "other" if pool["profile"] == old else pool["profile"]
        for node, name in pool["overrides"].items():
            pool["overrides"][node] = "other" if name == old else name


def _copy_profile(value: dict[str, Any], at: random.Random) -> None:
    value["profiles"]["twin"] = value["profiles"][at.choice(sorted(value["profiles"]))]


def _add_unreachable_rule(value: dict[str, Any], at: random.Random) -> None:
    name = at.choice(sorted(value["profiles"]))
    limit = {"limit": "auto", "action": "prevent"}
    rule = {"devices": [99], "timeSlicing": {"replicas": 2, "memoryLimit": limit}}
    value["profiles"][name] = [rule, value["profiles"][name]]


def _claim(value: dict[str, Any], at: random.Random) -> None:
    value["profiles"][at.choice(sorted(value["profiles"]))] = {"claims": {}}


def _evict(value: dict[str, Any], _: random.Random) -> None:
    value["change"] = {"policy": "evict"}


def _write_out_a_default(value: dict[str, Any], _: random.Random) -> None:
    value["change"] = {"policy": "wait"}


def _tolerate(value: dict[str, Any], at: random.Random) -> None:
    pool = value["pools"][at.choice(sorted(value["pools"]))]
    pool["tolerations"] = [{"key": "a", "operator": "Exists"}]


def _keep(_value: dict[str, Any], _: random.Random) -> None:
    return


Edit = Callable[[dict[str, Any], random.Random], None]
EDITS: tuple[Edit, ...] = (
    _order, _rename_profile, _copy_profile, _add_unreachable_rule, _claim, _evict,
    _write_out_a_default, _tolerate, _keep,
)  # fmt: skip


def planned(value: dict[str, Any]) -> Plan:
    return plan(parse_cluster(value), "s")


def shuffled(value: Any, seed: int) -> Any:
    """Return a value whose mappings have their keys in another order."""
    if isinstance(value, dict):
        items = [(key, shuffled(item, seed)) for key, item in value.items()]
        random.Random(seed).shuffle(items)
        return dict(items)
    return [shuffled(item, seed) for item in value] if isinstance(value, list) else value


@few
@given(values())
def test_carries_every_valid_file_unchanged_to_the_nodes(value: dict[str, Any]) -> None:
    text = canonical_json(value)
    assert parse_canonical(text) == parse_cluster(value)
    assert not diff(planned(value), planned(json.loads(text)["cluster"]))


@few
@given(values(), st.integers())
def test_ignores_order(value: dict[str, Any], seed: int) -> None:
    assert not diff(planned(value), planned(shuffled(value, seed)))


@few
@given(values())
def test_treats_a_renamed_profile_as_a_setting_and_a_renamed_pool_as_renamed(
    value: dict[str, Any],
) -> None:
    renamed = json.loads(canonical_json(value).replace('"p0-', '"other-'))["cluster"]
    difference = diff(planned(value), planned(renamed))
    assert not difference.changes
    names = [name for name in value["profiles"] if name.startswith("p0-")]
    assert difference.withdrawn_profiles == tuple(sorted(names))
    assert len(difference.settings) == 2 * len(names)
    moved = json.loads(canonical_json(value).replace('"pool-0"', '"pool-x"'))["cluster"]
    difference = diff(planned(value), planned(moved))
    assert difference.renamed == {"pool-x": "pool-0"}
    assert not difference.changes
    assert not difference.settings


@settings(max_examples=at_length(50, 2000))
@given(values(), st.sampled_from(EDITS), st.integers(0, 99))
def test_finds_no_change_only_if_no_object_changes(
    first: dict[str, Any], edit: Edit, seed: int
) -> None:
    second = json.loads(json.dumps(first))
    edit(second, random.Random(seed))
    try:
        parse_cluster(second)
    except InvalidCluster:
        assume(False)
    sides = [objects(parse_document(value), "image") for value in (first, second)]
    difference = diff(planned(first), planned(second), object_changes(*sides))
    assert bool(difference) == (sides[0] != sides[1])


@few
@given(values(), values())
def test_inverts_a_diff_on_the_way_back(first: dict[str, Any], second: dict[str, Any]) -> None:
    there, back = (
        diff(planned(first), planned(second)),
        diff(planned(second), planned(first)),
    )
    assert bool(there) == bool(back)
    assert {(total.resource, total.before, total.after) for total in there.totals} == {
        (total.resource, total.after, total.before) for total in back.totals
    }
    assert {(setting.path, setting.before, setting.after) for setting in there.settings} == {
        (setting.path, setting.after, setting.before) for setting in back.settings
    }
    assert {new: old for old, new in back.renamed.items()} == dict(there.renamed)
    assert len(difference_markdown(there).encode()) < 65_536
