"""Slices keep to the API's limits, and say what each device is and how much of it there is."""

from __future__ import annotations

from typing import Any

import pytest

from divvy.agent.claims.quantities import mib_of, mib_quantity
from divvy.agent.claims.slice_specs import UNHEALTHY, Taint, same_spec, slice_name, slice_specs
from tests.agent.claim_values import BY_SIZE, ON_DEMAND, offered_gpu

ALL = {
    "shares": {},
    "mig": ["1g.5gb", "1g.5gb+me", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"],
}


def specs(*gpus: Any, taints: Any = None, tasks: Any = None) -> list[dict[str, Any]]:
    return list(slice_specs("node", gpus, taints or {}, tasks or {}).values())


def device(found: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(each for spec in found for each in spec.get("devices", ()) if each["name"] == name)


@pytest.mark.parametrize("count", [1, 8, 9, 16])
def test_limits_of_a_slice_are_kept(count: int) -> None:
    found = specs(*(offered_gpu(index, ALL) for index in range(count)))
    assert all(len(spec.get("devices", ())) <= 64 for spec in found)
    assert all(len(spec.get("sharedCounters", ())) <= 8 for spec in found)
    assert all(("devices" in spec) != ("sharedCounters" in spec) for spec in found)
    listed = [each["name"] for spec in found for each in spec.get("devices", ())]
    assert len(listed) == len(set(listed)) == count * len(offered_gpu(0, ALL).gpu.devices)
    pools = [spec["pool"] for spec in found]
    assert pools == [{"name": "node/divvy", "resourceSliceCount": len(found)}] * len(found)


def test_every_counter_that_is_consumed_is_there() -> None:
    found = specs(offered_gpu(0, ALL), offered_gpu(1, ALL))
    sets = {
        each["name"]: each["counters"] for spec in found for each in spec.get("sharedCounters", ())
    }
    for spec in found:
        for each in spec.get("devices", ()):
            (consumed,) = each["consumesCounters"]
            for name, counter in consumed["counters"].items():
                assert int(counter["value"]) <= int(sets[consumed["counterSet"]][name]["value"])


def test_a_share_is_as_a_claim_by_size_asks_for_it() -> None:
    share = device(specs(offered_gpu(0)), "gpu-0-share")
    assert share["allowMultipleAllocations"]
    assert share["attributes"]["whole"] == {"bool": True}
    assert share["attributes"]["type"] == {"string": "nvidia-a100-sxm4-40gb"}
    assert "consumesCounters" not in share
    assert share["capacity"] == {
        "memory": {
            "value": "40Gi",
            "requestPolicy": {
                "default": "40Gi",
                "validRange": {"min": "1Mi", "max": "40Gi", "step": "1Mi"},
            },
        },
        "cores": {
            "value": "100",
            "requestPolicy": {
                "default": "100",
                "validRange": {"min": "1", "max": "100", "step": "1"},
            },
        },
        "shares": {"value": "16", "requestPolicy": {"default": "1", "validValues": ["1"]}},
    }


def test_a_mig_placement_says_its_profile_and_where_it_begins() -> None:
    found = device(specs(offered_gpu(0, ON_DEMAND)), "gpu-0-mig-2g10gb-4")
    assert found["attributes"]["profile"] == {"string": "2g.10gb"}
    assert found["attributes"]["start"] == {"int": 4}
    assert "allowMultipleAllocations" not in found


def test_shares_stand_in_slices_of_their_own_the_fewest_tasks_first() -> None:
    gpus = [offered_gpu(index, ON_DEMAND) for index in range(3)]
    *_, before = specs(*gpus)
    *others, after = specs(*gpus, tasks={"GPU-0": 2, "GPU-1": 1})
    assert [each["name"] for each in before["devices"]] == [f"gpu-{n}-share" for n in (0, 1, 2)]
    assert [each["name"] for each in after["devices"]] == [f"gpu-{n}-share" for n in (2, 1, 0)]
    assert others == specs(*gpus)[:-1]
    packed = {"shares": {"placement": "pack"}}
    gpus = [offered_gpu(index, packed) for index in range(3)]
    assert not gpus[0].spread or specs(*gpus, tasks={"GPU-0": 2}) != specs(*gpus)


def test_a_taint_has_no_part_in_comparison_but_its_reason() -> None:
    tainted = specs(offered_gpu(0), taints={"gpu-0-share": (Taint(UNHEALTHY, "XID-79"),)})
    (taint,) = device(tainted, "gpu-0-share")["taints"]
    assert taint == {"key": "divvy.gpu/unhealthy", "value": "XID-79", "effect": "NoSchedule"}
    (stored,) = specs(offered_gpu(0), taints={"gpu-0-share": (Taint(UNHEALTHY, "XID-79"),)})
    stored["pool"] = {**stored["pool"], "generation": 7}
    stored["devices"][0]["taints"][0]["timeAdded"] = "2026-11-22T10:00:00Z"
    assert same_spec(stored, tainted[0])
    assert not same_spec(stored, specs(offered_gpu(0))[0])


def test_a_long_name_of_a_node_still_gives_names() -> None:
    assert slice_name("node", "shares-0") == "node-divvy.gpu-shares-0"
    long = [slice_name(f"{'n' * 249}{end}", "shares-0") for end in ("a", "b")]
    assert len(set(long)) == 2
    assert all(len(name) <= 253 for name in long)


@pytest.mark.parametrize(
    ("mib", "text"),
    [(1, "1Mi"), (1024, "1Gi"), (40960, "40Gi"), (40961, "40961Mi"), (1 << 20, "1Ti")],
)
def test_sizes_are_written_as_the_api_server_does(mib: int, text: str) -> None:
    assert mib_quantity(mib) == text
    assert mib_of(text) == mib


@pytest.mark.parametrize(
    ("text", "mib"), [("3000Mi", 3000), ("3145728000", 3000), ("1", 1), ("3k", 1), ("1G", 954)]
)
def test_sizes_are_read_whatever_their_unit(text: str, mib: int) -> None:
    assert mib_of(text) == mib


@pytest.mark.parametrize("text", ["", "much", "-1", "500m"])
def test_what_is_no_whole_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a whole number"):
        mib_of(text)


def test_by_size_needs_no_counters() -> None:
    assert not any("sharedCounters" in spec for spec in specs(offered_gpu(0, BY_SIZE)))
