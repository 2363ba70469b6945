"""What holds for every pair of stack files."""

from __future__ import annotations

import json
import random
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
    place,
)
from divvy.plan import Plan, diff, plan
from divvy.render.markdown import difference_markdown

few = settings(max_examples=40, deadline=None)
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
def test_every_valid_file_survives_its_way_to_the_nodes(value: dict[str, Any]) -> None:
    text = canonical_json(value)
    assert parse_canonical(text) == parse_cluster(value)
    assert not diff(planned(value), planned(json.loads(text)["cluster"]))


@few
@given(values(), st.integers())
def test_order_alone_is_no_change(value: dict[str, Any], seed: int) -> None:
    assert not diff(planned(value), planned(shuffled(value, seed)))


@few
@given(values())
def test_the_name_of_a_profile_is_no_change_and_that_of_a_pool_is_a_new_name(
    value: dict[str, Any],
) -> None:
    renamed = json.loads(canonical_json(value).replace('"p0-', '"other-'))["cluster"]
    assert not diff(planned(value), planned(renamed))
    moved = json.loads(canonical_json(value).replace('"pool-0"', '"pool-x"'))["cluster"]
    difference = diff(planned(value), planned(moved))
    assert difference.renamed == {"pool-x": "pool-0"}
    assert not difference.changes
    assert not difference.settings


@few
@given(values(), values())
def test_the_way_back_undoes_the_way_there(first: dict[str, Any], second: dict[str, Any]) -> None:
    there, back = (
        diff(planned(first), planned(second)),
        diff(planned(second), planned(first)),
    )
    assert bool(there) == bool(back)
    assert {(one.resource, one.before, one.after) for one in there.totals} == {
        (one.resource, one.after, one.before) for one in back.totals
    }
    assert {(one.path, one.before, one.after) for one in there.settings} == {
        (one.path, one.after, one.before) for one in back.settings
    }
    assert {new: old for old, new in back.renamed.items()} == dict(there.renamed)
    assert len(difference_markdown(there).encode()) < 65_536
