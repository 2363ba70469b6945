"""What drivers of claims publish of a node: NVIDIA's is read, everything else is named."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from divvy.init.claimed_gpus import ClaimedGpus, claimed_gpus

A100 = "NVIDIA A100-SXM4-40GB"


def gpu(index: int, product: str = A100, **more: Any) -> dict[str, Any]:
    attributes = {"type": "gpu", "uuid": f"GPU-{index}", "productName": product}
    return {
        "name": f"gpu-{index}",
        "attributes": {name: {"string": value} for name, value in attributes.items()},
        "capacity": {"memory": {"value": "40Gi"}},
        **more,
    }


def mig(parent: int, profile: str) -> dict[str, Any]:
    attributes = {
        "type": "mig",
        "parentUUID": f"GPU-{parent}",
        "profile": profile,
        "productName": A100,
    }
    return {
        "name": f"gpu-{parent}-mig-{profile.replace('.', '')}",
        "attributes": {name: {"string": value} for name, value in attributes.items()},
        "capacity": {"memory": {"value": "4864Mi"}},
    }


def spec(
    *devices: Any,
    driver: str = "gpu.nvidia.com",
    pool: str = "n1",
    generation: int = 1,
    slices: int = 1,
) -> dict[str, Any]:
    return {
        "driver": driver,
        "nodeName": "n1",
        "pool": {"name": pool, "generation": generation, "resourceSliceCount": slices},
        "devices": list(devices),
    }


def test_reads_whole_gpus() -> None:
    assert claimed_gpus([spec(gpu(0), slices=2), spec(gpu(1), slices=2)]) == {
        "n1": ClaimedGpus(2, "NVIDIA-A100-SXM4-40GB", 40960, {"claims": {}})
    }


def test_reads_mig_devices_made_before_and_on_demand() -> None:
    """Beside a whole GPU, and on one of which nothing whole is published."""
    whole, partitioned = (gpu(0), mig(0, "1g.5gb"), mig(0, "3g.20gb")), (mig(1, "1g.5gb"),)
    slices = [spec(*whole, slices=2), spec(*partitioned, slices=2)]
    node = claimed_gpus(slices)["n1"]
    assert (node.gpus, node.profile) == (2, {"claims": {"mig": ["1g.5gb", "3g.20gb"]}})


def test_reads_shared_gpus() -> None:
    node = claimed_gpus([spec(gpu(0, allowMultipleAllocations=True))])["n1"]
    assert node.profile == {"claims": {"shares": {}}}


def test_reads_the_newest_generation_of_a_pool() -> None:
    slices = [spec(gpu(0), gpu(1), generation=1), spec(gpu(0), generation=2)]
    assert claimed_gpus(slices)["n1"].gpus == 1


@pytest.mark.parametrize(
    ("slices", "words"),
    [
        ([spec(gpu(0), driver="gpu.example.com")], "by gpu.example.com"),
        (
            [spec(gpu(0)), spec(gpu(0), driver="gpu.example.com")],
            "by gpu.example.com, gpu.nvidia.com",
        ),
        ([spec(gpu(0), gpu(1, "Tesla T4"))], f"several models: {A100}, Tesla T4"),
        ([spec()], "has no device"),
        # The driver is publishing the other one.
        ([spec(gpu(0), slices=2)], "has a part of its ResourceSlices of gpu.nvidia.com alone"),
        (
            [spec(gpu(0), slices=2), spec(gpu(1), slices=2, generation=2)],
            "has a part of its ResourceSlices",
        ),
        (
            [spec({**gpu(0), "attributes": {"type": {"string": "vfio"}}})],
            "devices of the type vfio",
        ),
    ],
)
def test_says_why_no_stack_file_can_have_them(slices: list[Any], words: str) -> None:
    node = claimed_gpus(slices)["n1"]
    assert words in node.problem
    assert node.profile is None


def test_ignores_drivers_of_other_devices() -> None:
    assert claimed_gpus([spec(gpu(0), driver="nic.example.com")]) == {}


@pytest.mark.parametrize(
    "path", ["attributes", "type", "uuid", "productName", "capacity", "memory"]
)
@pytest.mark.parametrize("value", [None, 7, "text", [], {}])
def test_names_a_node_whose_slices_cannot_be_read(path: str, value: Any) -> None:
    device = copy.deepcopy(gpu(0))
    place = device if path in device else device["capacity" if path == "memory" else "attributes"]
    place[path] = value
    node = claimed_gpus([spec(device)])["n1"]
    assert node.problem == "has ResourceSlices of gpu.nvidia.com that cannot be read"
