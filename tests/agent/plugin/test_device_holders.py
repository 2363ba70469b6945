"""What the kubelet's checkpoint tells of containers that may start again."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc.aio import Metadata

from divvy.agent.gpu.holders import Holder, Remembered
from divvy.agent.kubelet.api import deviceplugin_pb2 as api
from divvy.agent.plugin.device_holders import CHECKPOINT, DeviceHolders

OLD, NEW, BARE = "0123456789abcdef", "fedcba9876543210", "00112233aabbccdd"


def holders(folder: Path, *answers: bytes | None) -> DeviceHolders:
    """Give a node whose kubelet was given these answers to Allocate."""
    entries = [
        {
            "PodUID": f"uid-{number}",
            "ContainerName": "main",
            "ResourceName": "nvidia.com/gpu.shared",
            "DeviceIDs": {"-1": [f"GPU-0::{number}"]},
            "AllocResp": None if answer is None else base64.b64encode(answer).decode(),
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
    device_holders = holders(tmp_path, by_cdi(OLD))
    (tmp_path / CHECKPOINT).write_bytes(content)
    assert device_holders.limiters() is None
    (tmp_path / CHECKPOINT).unlink()
    assert device_holders.limiters() is None
    assert holders(tmp_path, b"\xff\xff\xff").limiters() is None


NOTEBOOK = Holder("team/notebook", "main", "nvidia.com/gpu", "GPU-0", "uid-1")
AGENT = "divvy-system/divvy-agent-x"


class Kubelet:
    """A kubelet whose list and checkpoint may differ; at first it has no checkpoint."""

    def __init__(self, folder: Path) -> None:
        self.pods: set[str] = set()
        self.held: tuple[Holder, ...] = ()
        (folder / "kubelet.sock").touch()
        self.folder = folder

    async def listed(self) -> tuple[tuple[Holder, ...], frozenset[str]]:
        return self.held, frozenset(self.pods)

    def write(self, *recorded: Holder) -> None:
        """Write the checkpoint, as after a list."""
        entries = [
            {
                "PodUID": holder.pod_uid,
                "ContainerName": holder.container,
                "ResourceName": holder.resource,
                "DeviceIDs": {"-1": [holder.device_id]},
            }
            for holder in recorded
        ]
        content = json.dumps({"Data": {"PodDeviceEntries": entries}})
        (self.folder / "new").write_text(content)
        (self.folder / "new").replace(self.folder / CHECKPOINT)


async def test_withholds_possibly_held_devices_before_it_has_read_a_new_kubelet(
    tmp_path: Path,
) -> None:
    kubelet: Any = Kubelet(tmp_path)
    device_holders = DeviceHolders(kubelet, tmp_path, AGENT, Remembered((1, 1), (NOTEBOOK,)))
    assert device_holders.holder("GPU-0") == NOTEBOOK
    assert device_holders.holder("GPU-1") is None
    await device_holders.refresh()  # the kubelet has written no checkpoint yet
    assert device_holders.holder("GPU-0") == NOTEBOOK
    kubelet.write()
    kubelet.pods = {"kube-system/static"}
    await device_holders.refresh()
    # It may not have heard of the pod yet.
    assert device_holders.suspects == {"GPU-0"}
    assert device_holders.holder("GPU-0") == NOTEBOOK
    assert device_holders.forgotten == ()
    kubelet.pods |= {AGENT, "team/notebook"}
    await device_holders.refresh()
    assert device_holders.holder("GPU-0") == NOTEBOOK
    assert device_holders.forgotten == (NOTEBOOK,)
    assert device_holders.remembered.forgotten == (NOTEBOOK,)


async def test_withholds_devices_by_an_old_list_when_the_kubelet_does_not_answer(
    tmp_path: Path,
) -> None:
    """It listed the agent's pod before it had heard of a younger one, which holds the device."""
    kubelet: Any = Kubelet(tmp_path)
    kubelet.write()
    kubelet.pods = {AGENT}
    holders = DeviceHolders(kubelet, tmp_path, AGENT, Remembered((1, 1), (NOTEBOOK,)))

    async def no_answer() -> None:
        raise grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, Metadata(), Metadata())

    kubelet.write()
    await holders.refresh()
    assert holders.holder("GPU-0") is None
    kubelet.listed = no_answer
    await holders.refresh()
    assert holders.holder("GPU-0") == NOTEBOOK


async def test_holds_what_was_allocated_before_the_kubelet_shows_it(tmp_path: Path) -> None:
    kubelet: Any = Kubelet(tmp_path)
    holders = DeviceHolders(kubelet, tmp_path, AGENT, Remembered())
    kubelet.write()
    holders.allocated("nvidia.com/gpu", ["GPU-0"])
    assert await holders.holders() == (Holder("", "", "nvidia.com/gpu", "GPU-0"),)


@pytest.mark.parametrize("look_again", [DeviceHolders.refresh, DeviceHolders.holders])
async def test_withholds_devices_though_an_older_list_arrives_late(
    tmp_path: Path, look_again: Callable[[DeviceHolders], Awaitable[object]]
) -> None:
    """It was asked for by somebody else, and lacks a pod that the kubelet has heard of since."""

    class Overtaken(Kubelet):
        late: asyncio.Event | None = None

        async def listed(self) -> tuple[tuple[Holder, ...], frozenset[str]]:
            answer = await super().listed()
            if self.late is not None:
                await self.late.wait()
            return answer

    kubelet: Any = Overtaken(tmp_path)
    holders = DeviceHolders(kubelet, tmp_path, AGENT, Remembered((1, 1), (NOTEBOOK,)))
    kubelet.write()
    kubelet.pods = {AGENT}
    late = kubelet.late = asyncio.Event()
    look = asyncio.create_task(holders.holders())
    await asyncio.sleep(0)
    kubelet.pods, kubelet.late = {AGENT, "team/notebook"}, None
    await look_again(holders)
    late.set()
    assert await look == (NOTEBOOK,)
    assert holders.holder("GPU-0") == NOTEBOOK


async def test_names_no_pod_that_has_ended_though_the_checkpoint_keeps_it(tmp_path: Path) -> None:
    listed = replace(NOTEBOOK, pod_uid="")
    kubelet: Any = Kubelet(tmp_path)
    kubelet.pods = {AGENT, "team/notebook"}
    kubelet.held = (listed,)
    device_holders = DeviceHolders(kubelet, tmp_path, AGENT, Remembered())
    kubelet.write(NOTEBOOK)
    assert await device_holders.of_pods() == (NOTEBOOK,)
    kubelet.pods, kubelet.held = {AGENT}, ()
    assert await device_holders.of_pods() == ()
    # The kubelet may not have given the device back.
    assert await device_holders.holders() == (NOTEBOOK,)
    kubelet.pods = set()  # restarted: it has not heard of its pods
    assert await device_holders.of_pods() == (NOTEBOOK,)


async def test_counts_a_pod_as_ended_when_a_settled_kubelet_omits_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubelet: Any = Kubelet(tmp_path)
    device_holders = DeviceHolders(kubelet, tmp_path, AGENT, Remembered((1, 1), (NOTEBOOK,)))
    now = 1000.0
    monkeypatch.setattr("divvy.agent.plugin.device_holders.monotonic", lambda: now)
    kubelet.write()
    for pods, held in (
        ({"kube-system/static"}, True),
        ({"kube-system/static"}, True),  # for an hour, without the API
        ({"kube-system/static", AGENT}, True),
        ({"kube-system/static", AGENT}, False),
    ):
        kubelet.pods = pods
        assert (NOTEBOOK in await device_holders.holders()) == held
        now += 9.0 if AGENT in pods else 3600.0
        if AGENT in pods and held:
            now += 2.0


async def test_withholds_a_forgotten_holders_device_before_its_own_look(tmp_path: Path) -> None:
    """An agent that has just started, beside the kubelet that has forgotten, may get no answer."""
    kubelet: Any = Kubelet(tmp_path)
    kubelet.pods = {AGENT, "team/notebook"}
    socket = (tmp_path / "kubelet.sock").stat()
    remembered = Remembered((socket.st_ino, socket.st_mtime_ns), (), (NOTEBOOK,))
    device_holders = DeviceHolders(kubelet, tmp_path, AGENT, remembered)
    await device_holders.refresh()  # no checkpoint: who holds what is unknown
    assert device_holders.holder("GPU-0") == NOTEBOOK
    kubelet.write()
    await device_holders.refresh()
    assert device_holders.holder("GPU-0") == NOTEBOOK
    kubelet.pods = {AGENT}
    await device_holders.refresh()
    assert device_holders.holder("GPU-0") is None


async def test_frees_a_forgotten_holders_device_when_its_pod_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its successor asks at once, long before anybody looks for another reason."""
    kubelet: Any = Kubelet(tmp_path)
    kubelet.pods = {AGENT, "team/notebook"}
    device_holders = DeviceHolders(kubelet, tmp_path, AGENT, Remembered((1, 1), (NOTEBOOK,)))
    now = 1000.0
    monkeypatch.setattr("divvy.agent.plugin.device_holders.monotonic", lambda: now)
    kubelet.write()
    await device_holders.refresh()
    now += 3600.0
    assert device_holders.holder("GPU-0") == NOTEBOOK
    kubelet.pods = {AGENT}
    await device_holders.refresh()
    assert device_holders.holder("GPU-0") is None


async def test_withholds_a_later_holders_device_though_an_earlier_one_ended(
    tmp_path: Path,
) -> None:
    """Both were forgotten, one kubelet after the other; the agents ended before they settled."""
    kubelet: Any = Kubelet(tmp_path)
    earlier = replace(NOTEBOOK, pod="team/earlier", pod_uid="uid-0")
    remembered = Remembered((1, 1), known=(NOTEBOOK,), forgotten=(earlier,))
    holders = DeviceHolders(kubelet, tmp_path, AGENT, remembered)
    kubelet.write()
    kubelet.pods = {AGENT, "team/notebook"}
    await holders.refresh()
    assert holders.holder("GPU-0") == NOTEBOOK


@pytest.mark.parametrize("answer", [(NOTEBOOK,), ()])
async def test_attributes_no_answer_of_one_kubelet_to_another(
    tmp_path: Path, answer: tuple[Holder, ...]
) -> None:
    """An agent without a processor asks, or reads, when there is another, which has forgotten."""

    class Ending(Kubelet):
        async def listed(self) -> tuple[tuple[Holder, ...], frozenset[str]]:
            (self.folder / "next").touch()
            (self.folder / "next").replace(self.folder / "kubelet.sock")
            self.write()
            return answer, frozenset({AGENT, "team/notebook"})

    kubelet: Any = Ending(tmp_path)
    socket = (tmp_path / "kubelet.sock").stat()
    version = (socket.st_ino, socket.st_mtime_ns)
    device_holders = DeviceHolders(kubelet, tmp_path, AGENT, Remembered(version, (NOTEBOOK,)))
    await device_holders.refresh()
    kubelet.__class__ = Kubelet
    kubelet.pods = {AGENT, "team/notebook"}
    kubelet.write()
    await device_holders.refresh()
    assert device_holders.holder("GPU-0") == NOTEBOOK
