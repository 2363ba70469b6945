"""Slices keep to the API's limits, and say what each device is and how much of it there is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from divvy.agent.claims.device_attributes import gpu_attributes
from divvy.agent.claims.quantities import mib_of
from divvy.agent.gpu.hardware import Gpu, Snapshot
from divvy.model.gpu_models import gpu_model, gpu_models
from divvy.model.quantities import mib_quantity, parse_quantity
from divvy.model.slice_specs import UNHEALTHY, Taint, same_spec, slice_name, slice_specs
from tests.agent.claim_values import BY_SIZE, ON_DEMAND, offered_gpu

# ResourceSliceMaxAttributesAndCapacitiesPerDevice of Kubernetes.
MAX_OF_A_DEVICE = 32
# DeviceAttributeMaxValueLength of Kubernetes, in bytes.
MAX_OF_A_VALUE = 64
ALL = {
    "shares": {},
    "mig": ["1g.5gb", "1g.5gb+me", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"],
}


def specs(
    *gpus: Any, taints: Any = None, tasks: Any = None, allocated: Any = None, attributes: Any = None
) -> list[dict[str, Any]]:
    specs_by_name = slice_specs(
        "node", gpus, taints or {}, tasks or {}, allocated or {}, attributes or {}
    )
    return list(specs_by_name.values())


def device(resource_slices: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(
        entry
        for spec in resource_slices
        for entry in spec.get("devices", ())
        if entry["name"] == name
    )


@pytest.mark.parametrize("count", [1, 8, 9, 16])
def test_keeps_to_the_limits_of_a_resource_slice(count: int) -> None:
    resource_slices = specs(*(offered_gpu(index, ALL) for index in range(count)))
    assert all(len(spec.get("devices", ())) <= 64 for spec in resource_slices)
    assert all(len(spec.get("sharedCounters", ())) <= 8 for spec in resource_slices)
    assert all(("devices" in spec) != ("sharedCounters" in spec) for spec in resource_slices)
    listed = [entry["name"] for spec in resource_slices for entry in spec.get("devices", ())]
    assert len(listed) == len(set(listed)) == count * len(offered_gpu(0, ALL).gpu.devices)
    pool = {"name": "node/divvy", "resourceSliceCount": len(resource_slices)}
    assert all(spec["pool"] == pool for spec in resource_slices)


def test_declares_every_counter_that_a_device_consumes() -> None:
    resource_slices = specs(offered_gpu(0, ALL), offered_gpu(1, ALL))
    sets = {
        shared_counter["name"]: shared_counter["counters"]
        for spec in resource_slices
        for shared_counter in spec.get("sharedCounters", ())
    }
    for spec in resource_slices:
        for entry in spec.get("devices", ()):
            (consumed,) = entry["consumesCounters"]
            for name, counter in consumed["counters"].items():
                of_gpu = sets[consumed["counterSet"]][name]["value"]
                assert parse_quantity(counter["value"]) <= parse_quantity(of_gpu)


@pytest.mark.parametrize(
    "model", [name for name, card in gpu_models().items() if card.mig is not None]
)
def test_counts_enough_memory_for_everything_that_the_slices_admit(model: str) -> None:
    """However a card is divided, its parts have no more memory than the counter."""
    geometry = gpu_model(model).mig
    assert geometry is not None
    gpu = offered_gpu(0, {"mig": [profile.name for profile in geometry.profiles]}, model)
    resource_slices = specs(gpu)
    ((counters,),) = (
        spec["sharedCounters"] for spec in resource_slices if "sharedCounters" in spec
    )
    total = mib_of(counters["counters"]["memory"]["value"])
    most: dict[int, int] = {0: 0}
    for slices in range(1, geometry.memory_slices + 1):
        fitting = [p for p in geometry.profiles if p.memory_slices <= slices]
        most[slices] = max(
            (most[slices - p.memory_slices] + p.memory_mib for p in fitting),
            default=most[slices - 1],
        )
    assert max(most.values()) <= total
    taken = device(resource_slices, "gpu-0")["consumesCounters"][0]["counters"]["memory"]["value"]
    assert mib_of(taken) == total


def test_publishes_the_attributes_that_other_drivers_know() -> None:
    gpu = Gpu(
        index=0,
        uuid="GPU-0",
        product="NVIDIA A100-SXM4-40GB",
        memory_mib=40960,
        minor=0,
        pci_bus_id="00000000:3B:00.0",
        pcie_root="pci0000:3a",
        compute_capability=(8, 0),
        numa=1,
    )
    seen = gpu_attributes(Snapshot("550.163.01", (12, 4), (gpu,)))
    resource_slices = specs(offered_gpu(0, ON_DEMAND), attributes=seen)
    for name in ("gpu-0", "gpu-0-share", "gpu-0-mig-1g5gb-2"):
        attributes = device(resource_slices, name)["attributes"]
        assert attributes["resource.kubernetes.io/pciBusID"] == {"string": "0000:3b:00.0"}
        assert attributes["resource.kubernetes.io/pcieRoot"] == {"string": "pci0000:3a"}
        assert attributes["resource.kubernetes.io/numaNode"] == {"int": 1}
        # Semantic versions have no leading zeros, and the API server refuses others.
        assert attributes["driverVersion"] == {"version": "550.163.1"}
        assert attributes["cudaDriverVersion"] == {"version": "12.4.0"}
        assert attributes["cudaComputeCapability"] == {"version": "8.0.0"}
        # All devices of a class have what a selector may name: one that lacks it fails the claim.
        assert attributes["gpu.nvidia.com/productName"] == {"string": "NVIDIA A100-SXM4-40GB"}
        assert attributes["gpu.nvidia.com/architecture"] == attributes["architecture"]
        assert attributes["gpu.nvidia.com/driverVersion"] == {"version": "550.163.1"}
        assert len(attributes) + len(device(resource_slices, name)["capacity"]) <= MAX_OF_A_DEVICE
    instance = device(resource_slices, "gpu-0-mig-1g5gb-2")["attributes"]
    assert instance["gpu.nvidia.com/parentUUID"] == {"string": "GPU-0"}
    assert instance["gpu.nvidia.com/profile"] == {"string": "1g.5gb"}
    whole = device(resource_slices, "gpu-0")["attributes"]
    assert whole["gpu.nvidia.com/uuid"] == {"string": "GPU-0"}
    # NVIDIA's classes select by it: a share that is not for requests of a whole GPU has none.
    assert whole["gpu.nvidia.com/type"] == {"string": "gpu"}
    assert instance["gpu.nvidia.com/type"] == {"string": "mig"}
    assert "gpu.nvidia.com/type" not in device(resource_slices, "gpu-0-share")["attributes"]


def test_omits_attributes_that_the_driver_does_not_report() -> None:
    gpu = Gpu(0, "GPU-0", "A100", 40960, 0, "00010000:3B:00.0")
    seen = gpu_attributes(Snapshot("unknown", (0, 0), (gpu,)))
    assert seen == {"GPU-0": {}}
    assert gpu_attributes(None) == {}


@pytest.mark.parametrize("product", ["NVIDIA " + 12 * "Long-Name ", 40 * "Ü"])
def test_keeps_the_slices_of_a_product_with_a_long_name(product: str) -> None:
    resource_slices = specs(replace(offered_gpu(0, ON_DEMAND), product=product))
    for name in ("gpu-0", "gpu-0-share", "gpu-0-mig-1g5gb-2"):
        attributes = device(resource_slices, name)["attributes"]
        texts = [attribute["string"] for attribute in attributes.values() if "string" in attribute]
        assert max(len(text.encode()) for text in texts) <= MAX_OF_A_VALUE
        assert product.startswith(attributes["product"]["string"])
        assert attributes["gpu.nvidia.com/productName"] == attributes["product"]


@pytest.mark.parametrize(
    "version", ["", "...", "-5.163.01", "5_0.1", "570.86.10-rc1", "٣.1", "9" * 80 + ".1", "x" * 79]
)
def test_omits_a_version_that_the_api_server_would_refuse(version: str) -> None:
    gpu = Gpu(0, "GPU-0", "A100", 40960, 0, "")
    assert gpu_attributes(Snapshot(version, (-1, 0), (gpu,))) == {"GPU-0": {}}


def test_describes_a_share_as_a_claim_by_size_requests_it() -> None:
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
        # A condition for NVIDIA's driver may name it; no claim takes any of it.
        "gpu.nvidia.com/memory": {
            "value": "40Gi",
            "requestPolicy": {"default": "0", "validValues": ["0"]},
        },
    }


def test_publishes_the_profile_and_start_of_a_mig_placement() -> None:
    instance = device(specs(offered_gpu(0, ON_DEMAND)), "gpu-0-mig-2g10gb-4")
    assert instance["attributes"]["profile"] == {"string": "2g.10gb"}
    assert instance["attributes"]["start"] == {"int": 4}
    assert "allowMultipleAllocations" not in instance


def test_puts_shares_in_own_slices_with_the_fewest_tasks_first() -> None:
    gpus = [offered_gpu(index, ON_DEMAND) for index in range(3)]
    before, *_ = specs(*gpus)
    after, *others = specs(*gpus, tasks={"GPU-0": 2, "GPU-1": 1})
    assert [entry["name"] for entry in before["devices"]] == [f"gpu-{n}-share" for n in (0, 1, 2)]
    assert [entry["name"] for entry in after["devices"]] == [f"gpu-{n}-share" for n in (2, 1, 0)]
    assert others == specs(*gpus)[1:]


def test_lists_the_few_shares_and_whole_gpus_before_the_many_mig_devices() -> None:
    """It reads slices in the order of their names, and evaluates a class on each device."""
    gpus = [offered_gpu(index, ALL) for index in range(8)]
    by_name = sorted(slice_specs("node", gpus, {}, {}, {}, {}).items())
    kinds = [
        entry["attributes"]["kind"]["string"]
        for _, spec in by_name
        for entry in spec.get("devices", ())
    ]
    assert kinds == ["share"] * 8 + ["gpu"] * 8 + ["mig"] * (len(kinds) - 16)


def test_packs_shares_on_the_fullest_gpu_beginning_with_the_last() -> None:
    """Whole GPUs and MIG devices begin at the first one: they and shares leave each other GPUs."""
    gpus = [offered_gpu(index, {"shares": {"placement": "pack"}}) for index in range(3)]
    gpus = [replace(gpu, spread=False) for gpu in gpus]
    (before,) = specs(*gpus, tasks={"GPU-0": 2})
    (after,) = specs(*gpus, allocated={"GPU-0": 0.7, "GPU-1": 0.5})
    assert [entry["name"] for entry in before["devices"]] == [f"gpu-{n}-share" for n in (2, 1, 0)]
    assert [entry["name"] for entry in after["devices"]] == [f"gpu-{n}-share" for n in (0, 1, 2)]


def test_compares_taints_by_their_reason_alone() -> None:
    tainted = specs(offered_gpu(0), taints={"gpu-0-share": (Taint(UNHEALTHY, "XID-79"),)})
    (taint,) = device(tainted, "gpu-0-share")["taints"]
    assert taint == {"key": "divvy.gpu/unhealthy", "value": "XID-79", "effect": "NoSchedule"}
    (stored,) = specs(offered_gpu(0), taints={"gpu-0-share": (Taint(UNHEALTHY, "XID-79"),)})
    stored["pool"] = {**stored["pool"], "generation": 7}
    stored["devices"][0]["taints"][0]["timeAdded"] = "2026-11-22T10:00:00Z"
    assert same_spec(stored, tainted[0])
    assert not same_spec(stored, specs(offered_gpu(0))[0])


def test_names_slices_of_a_node_with_a_long_name() -> None:
    assert slice_name("node", "by-size-0") == "node-divvy.gpu-by-size-0"
    long = [slice_name(f"{'n' * 249}{end}", "by-size-0") for end in ("a", "b")]
    assert len(set(long)) == 2
    assert all(len(name) <= 253 for name in long)


@pytest.mark.parametrize(
    ("mib", "text"),
    [(1, "1Mi"), (1024, "1Gi"), (40960, "40Gi"), (40961, "40961Mi"), (1 << 20, "1Ti")],
)
def test_writes_sizes_as_the_api_server_does(mib: int, text: str) -> None:
    assert mib_quantity(mib) == text
    assert mib_of(text) == mib


@pytest.mark.parametrize(
    ("text", "mib"), [("3000Mi", 3000), ("3145728000", 3000), ("1", 1), ("3k", 1), ("1G", 954)]
)
def test_reads_sizes_in_any_unit(text: str, mib: int) -> None:
    assert mib_of(text) == mib


@pytest.mark.parametrize("text", ["", "much", "-1", "500m"])
def test_refuses_a_quantity_that_is_not_whole(text: str) -> None:
    with pytest.raises(ValueError, match="not a whole number"):
        mib_of(text)


def test_needs_no_counters_by_size() -> None:
    assert not any("sharedCounters" in spec for spec in specs(offered_gpu(0, BY_SIZE)))
