"""What another DRA driver offers, and what of it a claim was given."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.cluster.slices import claimed_uuids, offered_devices, whole_gpus

DRIVER = "gpu.nvidia.com"
NAMED = ("gpu", "mig-1g.5gb", "mig-1g.5gb.me")
CLASSES: list[dict[str, Any]] = [
    {"spec": {"extendedResourceName": f"nvidia.com/{name}"}} for name in NAMED
] + [{"spec": {}}]


def device(name: str, kind: str, profile: str = "", shares: int = 0) -> dict[str, Any]:
    attributes = {"type": {"string": kind}, "uuid": {"string": f"U-{name}"}}
    if profile:
        attributes["profile"] = {"string": profile}
    capacity = {"shares": {"value": str(shares)}} if shares else {}
    return {"name": name, "attributes": attributes, "capacity": capacity}


def slice_of(
    node: str, *devices: dict[str, Any], generation: int = 1, driver: str = DRIVER
) -> dict[str, Any]:
    pool = {"name": node, "generation": generation}
    return {"spec": {"driver": driver, "nodeName": node, "pool": pool, "devices": list(devices)}}


def test_counts_devices_by_the_resource_that_pods_name() -> None:
    slices = [
        slice_of("n1", device("gpu-0", "gpu"), device("m-0", "mig", "1g.5gb")),
        slice_of("n1", device("m-1", "mig", "1g.5gb"), device("m-2", "mig", "1g.5gb+me")),
        slice_of("n2", device("gpu-0", "gpu")),
        slice_of("n1", device("gpu-9", "gpu"), driver="gpu.example.org"),
    ]
    assert offered_devices(slices, CLASSES, DRIVER, "n1") == {
        "nvidia.com/gpu": 1, "nvidia.com/mig-1g.5gb": 2, "nvidia.com/mig-1g.5gb.me": 1,
    }  # fmt: skip


def test_counts_a_device_as_often_as_claims_can_have_it() -> None:
    slices = [slice_of("n1", device("gpu-0", "gpu", shares=4), device("gpu-1", "gpu", shares=4))]
    assert offered_devices(slices, CLASSES, DRIVER, "n1") == {"nvidia.com/gpu": 8}


def test_leaves_out_what_no_class_lets_pods_name() -> None:
    slices = [slice_of("n1", device("m-0", "mig", "2g.10gb"), device("m-1", "mig", "1g.5gb"))]
    assert offered_devices(slices, CLASSES, DRIVER, "n1") == {"nvidia.com/mig-1g.5gb": 1}


def test_leaves_out_what_an_older_generation_offered() -> None:
    slices = [
        slice_of("n1", device("gpu-0", "gpu"), generation=1),
        slice_of("n1", device("m-0", "mig", "1g.5gb"), generation=2),
    ]
    assert offered_devices(slices, CLASSES, DRIVER, "n1") == {"nvidia.com/mig-1g.5gb": 1}


def test_names_what_a_claim_was_given() -> None:
    slices = [
        slice_of("n1", device("gpu-0", "gpu"), device("gpu-1", "gpu")),
        slice_of("n2", device("gpu-1", "gpu")),
    ]
    results = [
        {"driver": DRIVER, "pool": "n1", "device": "gpu-1"},
        {"driver": "nic.example.org", "pool": "n1", "device": "gpu-0"},
    ]
    claim = {"status": {"allocation": {"devices": {"results": results}}}}
    assert claimed_uuids(claim, slices, DRIVER) == ["U-gpu-1"]
    assert claimed_uuids({}, slices, DRIVER) == []


def test_names_no_uuid_of_a_device_that_is_made_for_its_claim() -> None:
    abstract = device("m-0", "mig", "1g.5gb")
    del abstract["attributes"]["uuid"]
    results = [{"driver": DRIVER, "pool": "n1", "device": "m-0"}]
    claim = {"status": {"allocation": {"devices": {"results": results}}}}
    assert claimed_uuids(claim, [slice_of("n1", abstract)], DRIVER) == [""]


def test_lists_whole_gpus_in_order_with_their_holders() -> None:
    gpus = [
        {**device(name, "gpu"), "capacity": {"memory": {"value": "15Gi"}}}
        for name in ("gpu-10", "gpu-2")
    ]
    slices = [slice_of("n1", *gpus, device("m-0", "mig", "1g.5gb")), slice_of("n2", gpus[0])]
    result = {"driver": DRIVER, "pool": "n1", "device": "gpu-10"}
    reserved = [{"resource": "pods", "name": "train"}]
    status = {"allocation": {"devices": {"results": [result]}}, "reservedFor": reserved}
    claims = [{"metadata": {"namespace": "team", "name": "c"}, "status": status}]
    listed = whole_gpus(slices, claims, DRIVER, "n1")
    assert [(gpu.index, gpu.uuid) for gpu in listed] == [(2, "U-gpu-2"), (10, "U-gpu-10")]
    assert [[holder.words for _, holder in gpu.holders] for gpu in listed] == [[], ["team/train"]]
    assert {gpu.devices[0].memory_mib for gpu in listed} == {15360}
    assert {gpu.devices[0].kind for gpu in listed} == {"gpu"}


@pytest.mark.parametrize(("shares", "most"), [(0, 15360), (4, 4)])
def test_lists_gpus_whose_memory_is_claimed_in_parts_as_shares(shares: int, most: int) -> None:
    policy = {"default": "0", "validRange": {"min": "0", "step": "1Mi"}}
    gpu = device("gpu-0", "gpu", shares=shares)
    gpu["allowMultipleAllocations"] = True
    gpu["capacity"]["memory"] = {"value": "15Gi", "requestPolicy": policy}
    result = {"driver": DRIVER, "pool": "n1", "device": "gpu-0"}
    result["consumedCapacity"] = {"memory": "3000Mi"}
    status = {"allocation": {"devices": {"results": [result]}}}
    claims = [{"metadata": {"namespace": "team", "name": "c"}, "status": status}]
    (listed,) = whole_gpus([slice_of("n1", gpu)], claims, DRIVER, "n1")
    (share,) = listed.devices
    assert (share.kind, share.step_mib, share.most) == ("share", 1, most)
    assert [holder.words for _, holder in listed.holders] == ["claim team/c (3,000 MiB)"]


@pytest.mark.parametrize(
    ("policy", "kind"),
    [
        ({"default": "0", "validRange": {"min": "0"}}, "share"),
        ({"default": "0", "validRange": {"min": "0", "step": "256Mi"}}, "share"),
        ({"default": "15Gi", "validValues": ["15Gi"]}, "gpu"),
        (None, "gpu"),
    ],
)
def test_knows_parts_of_memory_by_a_range_of_sizes(
    policy: dict[str, Any] | None, kind: str
) -> None:
    """Any size of a range without a step can be claimed."""
    gpu = device("gpu-0", "gpu")
    gpu["allowMultipleAllocations"] = True
    gpu["capacity"]["memory"] = {"value": "15Gi", **({"requestPolicy": policy} if policy else {})}
    (listed,) = whole_gpus([slice_of("n1", gpu)], [], DRIVER, "n1")
    assert [offered.kind for offered in listed.devices] == [kind]
    assert listed.devices[0].step_mib == (256 if "step" in str(policy) else 1)
