"""What the kubelet's checkpoint tells of containers that may start again."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from divvy.agent.decide.holders import Remembered
from divvy.agent.kubelet.api import deviceplugin_pb2 as api
from divvy.agent.kubelet.device_holders import CHECKPOINT, DeviceHolders

OLD, NEW, BARE = "0123456789abcdef", "fedcba9876543210", "00112233aabbccdd"


def holders(folder: Path, *answers: bytes | None) -> DeviceHolders:
    """Give a node whose kubelet was given these answers to Allocate."""
    entries = [
        {
            "PodUID": f"uid-{number}",
            "ContainerName": "main",
            "ResourceName": "nvidia.com/gpu.shared",
            "DeviceIDs": {"-1": [f"GPU-0::{number}"]},
            **({} if answer is None else {"AllocResp": base64.b64encode(answer).decode()}),
        }
        for number, answer in enumerate(answers)
    ]
    (folder / CHECKPOINT).write_text(json.dumps({"Data": {"PodDeviceEntries": entries}}))
    unused: Any = None
    return DeviceHolders(unused, folder, "divvy-system/divvy-agent-x", Remembered())


def by_cdi(version: str) -> bytes:
    answer = api.ContainerAllocateResponse()
    answer.cdi_devices.add(name=f"divvy.gpu/limited-gpu-{version}=GPU-0")
    return answer.SerializeToString()


def by_mounts(version: str) -> bytes:
    answer = api.ContainerAllocateResponse()
    host = f"/var/lib/divvy/limiter-{version}/libcuda.so.1"
    answer.mounts.add(container_path="/usr/lib64/libcuda.so.1", host_path=host, read_only=True)
    return answer.SerializeToString()


def test_names_the_limiters_that_containers_may_start_with(tmp_path: Path) -> None:
    whole = api.ContainerAllocateResponse()
    whole.cdi_devices.add(name="divvy.gpu/gpu=GPU-1")
    answers = (by_cdi(OLD), by_mounts(BARE), by_cdi(NEW), whole.SerializeToString(), None)
    assert holders(tmp_path, *answers).limiters() == {OLD, NEW, BARE}
    assert holders(tmp_path).limiters() == frozenset()


@pytest.mark.parametrize("content", [b"", b"{}", b"[" * 100_000])
def test_does_not_know_the_limiters_of_a_damaged_checkpoint(tmp_path: Path, content: bytes) -> None:
    found = holders(tmp_path, by_cdi(OLD))
    (tmp_path / CHECKPOINT).write_bytes(content)
    assert found.limiters() is None
    (tmp_path / CHECKPOINT).unlink()
    assert found.limiters() is None
    assert holders(tmp_path, b"\xff\xff\xff").limiters() is None
