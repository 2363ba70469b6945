"""The template of a request, and what slices offer for it."""

from __future__ import annotations

from time import process_time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from divvy.claim_templates.offered import OfferedShares, Share, shares_of
from divvy.claim_templates.template import canonical_mib, template_of
from divvy.model.claim_names import SizedRequest
from divvy.model.quantities import parse_count

A100, H100 = (
    Share(40960, "nvidia-a100-sxm4-40gb", None),
    Share(81559, "nvidia-h100-80gb-hbm3", None),
)
TYPE = '("-" + device.attributes["divvy.gpu"].type + "-")'


def request_of(template: Any) -> dict[str, Any]:
    ((request),) = template["spec"]["devices"]["requests"]
    assert request["name"] == "gpu"
    typed: dict[str, Any] = request
    return typed


def test_requests_a_size_in_mib_exactly() -> None:
    template = template_of(SizedRequest(2, 3000, "m", 30), {})
    assert request_of(template)["exactly"] == {
        "deviceClassName": "divvy-share",
        "allocationMode": "ExactCount",
        "count": 2,
        "capacity": {"requests": {"memory": "3000Mi", "cores": "30"}},
    }


@pytest.mark.parametrize(
    ("sized", "cores"),
    [
        (SizedRequest(1, 10, "m"), "1"),
        (SizedRequest(1, 10, "m", 100), "100"),
        (SizedRequest(1, 50, "p"), "1"),
        (SizedRequest(1, 100, "p"), "100"),
        (SizedRequest(1, 100, "p", 30), "30"),
    ],
)
def test_requests_the_least_time_by_default_and_all_with_all_memory(
    sized: SizedRequest, cores: str
) -> None:
    request = request_of(template_of(sized, {A100: 1}))
    exactly = request.get("exactly") or request["firstAvailable"][0]
    assert exactly["capacity"]["requests"]["cores"] == cores


def test_requests_whole_gpus_of_a_type() -> None:
    template = template_of(SizedRequest(2, 1, "g", use_types=("a100",)), {})
    assert request_of(template)["exactly"] == {
        "deviceClassName": "divvy-gpu",
        "allocationMode": "ExactCount",
        "count": 2,
        "selectors": [{"cel": {"expression": f'{TYPE}.contains("-a100-")'}}],
    }


def test_uses_the_class_of_the_tenant() -> None:
    template = template_of(SizedRequest(1, 10, "m", tenant="prod"), {})
    assert request_of(template)["exactly"]["deviceClassName"] == "divvy-share-prod"


def test_matches_types_as_parts_of_a_products_name() -> None:
    sized = SizedRequest(1, 10, "m", use_types=("a100", "h100"), no_types=("a100-pcie", "t4"))
    selectors = request_of(template_of(sized, {}))["exactly"]["selectors"]
    assert [selector["cel"]["expression"] for selector in selectors] == [
        f'{TYPE}.contains("-a100-") || {TYPE}.contains("-h100-")',
        f'!({TYPE}.contains("-a100-pcie-") || {TYPE}.contains("-t4-"))',
    ]


def sizes(sized: SizedRequest, offered: dict[Share, int]) -> list[str]:
    template = template_of(sized, offered)
    if template is None:
        return []
    return [
        alternative["capacity"]["requests"]["memory"]
        for alternative in request_of(template)["firstAvailable"]
    ]


def test_offers_an_alternative_of_a_percentage_for_each_size() -> None:
    template = template_of(SizedRequest(1, 25, "p", 10), {H100: 1, A100: 3})
    small, large = request_of(template)["firstAvailable"]
    assert small == {
        "name": "size-0",
        "deviceClassName": "divvy-share",
        "allocationMode": "ExactCount",
        "count": 1,
        "capacity": {"requests": {"memory": "10Gi", "cores": "10"}},
        "selectors": [
            {
                "cel": {
                    "expression": 'device.capacity["divvy.gpu"].memory'
                    '.compareTo(quantity("40Gi")) == 0'
                }
            }
        ],
    }
    assert large["name"] == "size-1"
    assert large["capacity"]["requests"]["memory"] == "20389Mi"


def test_makes_no_template_of_a_percentage_without_a_size() -> None:
    assert template_of(SizedRequest(1, 25, "p"), {}) is None
    other = Share(40960, "nvidia-a100-sxm4-40gb", "prod")
    assert template_of(SizedRequest(1, 25, "p"), {other: 1}) is None
    assert template_of(SizedRequest(1, 25, "p", tenant="prod"), {other: 1}) is not None


def test_counts_only_sizes_of_the_requested_types() -> None:
    both = {A100: 1, H100: 1}
    assert sizes(SizedRequest(1, 50, "p", use_types=("a100",)), both) == ["20Gi"]
    assert sizes(SizedRequest(1, 50, "p", no_types=("a100",)), both) == ["40779Mi"]
    assert sizes(SizedRequest(1, 50, "p", use_types=("a10",)), both) == []


def test_keeps_the_most_frequent_sizes_that_a_request_can_list() -> None:
    offered = {Share(1000 * n, "x", None): (1 if n in (3, 7) else 2) for n in range(1, 11)}
    listed = sizes(SizedRequest(1, 100, "p"), offered)
    assert listed == [f"{1000 * n}Mi" for n in (1, 2, 4, 5, 6, 8, 9, 10)]


def test_rounds_a_small_part_of_a_small_gpu_up() -> None:
    assert sizes(SizedRequest(1, 1, "p"), {Share(50, "x", None): 1}) == ["1Mi"]


@given(st.integers(1, 1 << 50))
def test_writes_sizes_as_the_api_server_does(mib: int) -> None:
    text = canonical_mib(mib)
    assert parse_count(text) == mib << 20
    assert int(text[:-2]) % 1024 or text.endswith("Ei")


def device(kind: str, memory: Any, **attributes: str) -> dict[str, Any]:
    strings = {"kind": kind, **attributes}
    return {
        "name": "d",
        "attributes": {name: {"string": text} for name, text in strings.items()},
        "capacity": {"memory": {"value": memory}},
    }


def test_reads_sizes_from_slices() -> None:
    devices = [
        device("share", "40Gi", type="a"),
        device("share", "40960Mi", type="a"),
        device("share", "42949672960", type="a", tenant="prod"),
        device("gpu", "80Gi", type="a"),
        device("share", "all", type="a"),
        {"name": "bare"},
    ]
    assert shares_of({"spec": {"devices": devices}}) == {
        Share(40960, "a", None),
        Share(40960, "a", "prod"),
    }
    assert shares_of({"spec": {"sharedCounters": []}}) == frozenset()


def test_remembers_a_size_for_a_while_after_it_has_gone() -> None:
    offered = OfferedShares(memory_seconds=60)
    assert offered.put("one", frozenset({A100}), now=0)
    assert offered.put("two", frozenset({A100, H100}), now=0)
    assert offered.counted(1) == {A100: 2, H100: 1}
    # A kubelet starts again: its slices go and come back.
    assert not offered.put("two", frozenset(), now=10)
    assert offered.counted(11) == {A100: 1, H100: 0}
    assert not offered.put("two", frozenset({H100}), now=12)
    assert offered.counted(100) == {A100: 1, H100: 1}
    assert not offered.replace({"one": frozenset({A100})}, now=100)
    assert offered.counted(159).keys() == {A100, H100}
    assert offered.counted(161).keys() == {A100}


_KINDS = st.frozensets(st.sampled_from([A100, H100, Share(15360, "tesla-t4", "prod")]))
_CHANGES = st.lists(st.tuples(st.sampled_from("123"), _KINDS, st.floats(0, 40)), max_size=20)


@given(_CHANGES)
def test_counts_sizes_as_the_slices_have_them(changes: Any) -> None:
    offered, slices, now = OfferedShares(memory_seconds=60), dict[str, Any](), 0.0
    for name, shares, seconds in changes:
        now += seconds
        known = offered.counted(now).keys()
        slices[name] = shares
        news = offered.put(name, shares, now)
        counted = offered.counted(now)
        assert news == (counted.keys() != known)
        for share in (*counted, *shares):
            assert counted[share] == sum(share in of_slice for of_slice in slices.values())


def test_lists_the_slices_of_a_large_cluster_in_no_time() -> None:
    """They are listed every few minutes, and all else waits: 5,000 nodes took over a minute."""
    offered = OfferedShares(memory_seconds=60)
    slices = {f"node-{number}": frozenset({A100}) for number in range(5000)}
    began = process_time()
    for now in (1.0, 2.0):
        offered.replace(slices, now)
    assert process_time() - began < 2
    assert offered.counted(3) == {A100: 5000}
