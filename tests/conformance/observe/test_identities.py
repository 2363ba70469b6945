"""Devices told by their UUIDs, and other offers of the same GPUs."""

from typing import Any

import pytest

from conformance.bare.host import devices_of
from conformance.observe.identities import (
    cuda_version,
    driver_version,
    libraries_version,
    visible_devices,
    visible_gpus,
)
from conformance.observe.other_offers import other_offers

LISTED = """\
GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-a)
  MIG 3g.20gb     Device  0: (UUID: MIG-a)
  MIG 1g.5gb      Device  1: (UUID: MIG-b)
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-b)
GPU 2: Another card (UUID: GPU-c)
"""


def test_expects_parts_of_a_partitioned_gpu_and_whole_others() -> None:
    devices = devices_of("h", LISTED, {"GPU-a": 40960, "GPU-b": 40960, "GPU-c": 8192})
    assert [(str(device), device.uuid, device.gpu, device.memory_mib) for device in devices] == [
        ("h:GPU 0 MIG 0 (3g.20gb)", "MIG-a", "GPU-a", 20096),
        ("h:GPU 0 MIG 1 (1g.5gb)", "MIG-b", "GPU-a", 4864),
        ("h:GPU 1", "GPU-b", "GPU-b", 40960),
        ("h:GPU 2", "GPU-c", "GPU-c", None),
    ]


CLUSTER: dict[str, Any] = {
    "profiles": {"whole": {}, "slices": {"timeSlicing": {"replicas": 4}}},
    "pools": {"p": {"hardware": {"model": "T4", "gpus": 2, "count": 2}, "profile": "whole"}},
}


LIST = """\
GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-a)
  MIG 3g.20gb     Device  0: (UUID: MIG-a)
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-b)
"""


def test_reads_devices_by_uuid() -> None:
    assert visible_devices(LIST) == ("MIG-a", "GPU-b")
    assert visible_gpus(LIST) == ("GPU-a", "GPU-b")


@pytest.mark.parametrize(
    ("table", "driver", "libraries", "cuda"),
    [
        ("| NVIDIA-SMI 550.163.01   Driver Version: 550.163.01   CUDA Version: 12.4     |",
         "550.163.01", "550.163.01", "12.4"),
        ("| NVIDIA-SMI 610.57.04    KMD Version: 610.57.04     CUDA UMD Version: 13.3     |",
         "610.57.04", "610.57.04", "13.3"),
        ("| NVIDIA-SMI 615.71.09    KMD Version: 610.57.04     CUDA UMD Version: 13.4     |",
         "610.57.04", "615.71.09", "13.4"),
        ("Failed to initialize NVML: Driver/library version mismatch", None, None, None),
    ],
)  # fmt: skip
def test_reads_the_versions_of_old_and_new_drivers(
    table: str, driver: str | None, libraries: str | None, cuda: str | None
) -> None:
    assert (driver_version(table), libraries_version(table), cuda_version(table)) == (
        driver, libraries, cuda,
    )  # fmt: skip


def test_names_other_offers_of_the_same_gpus() -> None:
    def offer(driver: str, node: str, kind: str) -> dict[str, Any]:
        device = {"name": "d", "attributes": {"type": {"string": kind}}}
        return {"spec": {"driver": driver, "nodeName": node, "devices": [device]}}

    slices = [
        offer("gpu.nvidia.com", "n1", "gpu"),
        offer("gpu.nvidia.com", "n2", "gpu"),
        offer("compute-domain.nvidia.com", "n1", "channel"),
        offer("compute-domain.nvidia.com", "n1", "daemon"),
        offer("nic.example.org", "n1", "nic"),
    ]
    allocatable = {"volcano.sh/vgpu-number": "8", "amd.com/gpu": "2", "aliyun.com/gpu-mem": "0"}
    assert other_offers("n1", slices, allocatable, {}) == [
        "DRA driver gpu.nvidia.com", "volcano.sh/vgpu-number 8",
    ]  # fmt: skip
    assert other_offers("n1", slices, {}, {}, "gpu.nvidia.com") == []
    assert other_offers("n3", slices, {}, {}) == []
    # Of a kind to come it is not known that it is no GPU.
    assert other_offers("n4", [offer("gpu.nvidia.com", "n4", "partition")], {}, {}) == [
        "DRA driver gpu.nvidia.com"
    ]
