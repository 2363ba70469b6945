"""A kubelet's device manager: it admits pods, and keeps a checkpoint of what they were allocated.

It follows the real one (1.36) where plugins can tell the difference, above all where it hurts:

* GetPreferredAllocation's answer is intersected with what is free; admission fails when Allocate
  fails, and keeps what the pod's other containers were given until the pod is seen to be gone.
  What ordinary init containers were given is given to the pod's later containers again.
* Before each start of a container it asks the plugins that registered for it.
* Allocations live in its checkpoint, written when all devices of a container are allocated and
  whenever a list arrives. An entry leaves it only when the pods are known, the pod is not among
  them, and somebody asks for the list. Without a whole checkpoint a new kubelet knows of none.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from divvy.agent.kubelet.api import deviceplugin_pb2 as api
from divvy.agent.kubelet.api import deviceplugin_pb2_grpc as stubs


class AdmissionFailed(Exception):
    """The pod would end as Failed with UnexpectedAdmissionError."""


class StartFailed(Exception):
    """The container would wait with CreateContainerConfigError, and be tried again."""


@dataclass
class Endpoint:
    """A registered resource: its plugin's socket and the devices it listed last."""

    resource: str
    socket: Path
    channel: Any
    devices: dict[str, Any] = field(default_factory=dict)
    lists: int = 0
    alive: bool = True
    pre_start: bool = False
    watch: asyncio.Task[None] | None = None

    @property
    def healthy(self) -> list[str]:
        return [name for name, device in self.devices.items() if device.health == "Healthy"]


@dataclass(frozen=True)
class Container:
    """A container and the devices it requests: resource → number."""

    name: str
    requests: Mapping[str, int]
    init: bool = False


@dataclass
class Pod:
    """A pod as the API has it; ``running`` says that its containers run."""

    name: str
    uid: str
    containers: tuple[Container, ...]
    running: bool = True


@dataclass(frozen=True)
class Allocation:
    """What one container was given of one resource."""

    uid: str
    container: str
    resource: str
    device_ids: tuple[str, ...]
    by_numa: Mapping[str, list[str]]
    answer: bytes = b""

    @property
    def entry(self) -> dict[str, Any]:
        return {
            "PodUID": self.uid,
            "ContainerName": self.container,
            "ResourceName": self.resource,
            "DeviceIDs": self.by_numa,
            "AllocResp": base64.b64encode(self.answer).decode(),
        }


class DeviceManager:
    """What a kubelet knows of devices, and what it does with them while it is not frozen."""

    def __init__(self, plugins: Path) -> None:
        self.plugins = plugins
        self.endpoints: dict[str, Endpoint] = {}
        self.pods: dict[str, Pod] = {}
        self.ended: set[str] = set()  # names of pods that are Succeeded or Failed, not deleted
        self.ready = True  # it has its pods from the API
        self.admission_seconds = 0.0  # what other plugins take between an Allocate and the next
        self._allocations: list[Allocation] = []
        self._uids = itertools.count(1)
        self._thawed = asyncio.Event()
        self._thawed.set()
        self._life = 0
        self._admitting = asyncio.Lock()

    @property
    def checkpoint(self) -> Path:
        return self.plugins / "kubelet_internal_checkpoint"

    def held(self, pod: str) -> dict[str, list[str]]:
        """Return what a pod was allocated, by resource."""
        uid = self.pods[pod].uid
        held: dict[str, list[str]] = {}
        for allocation in self._allocations:
            if allocation.uid == uid:
                devices = held.setdefault(allocation.resource, [])
                devices += [name for name in allocation.device_ids if name not in devices]
        return held

    def holders(self) -> list[tuple[Pod, str, str]]:
        """Return who holds what in truth: pod, resource, device ID, whoever lists it or not."""
        return [
            (pod, resource, device_id)
            for pod in self.pods.values()
            for resource, device_ids in self.held(pod.name).items()
            for device_id in device_ids
        ]

    async def admit(
        self, pod: str, resource: str, count: int = 1, *, init: bool = False, running: bool = True
    ) -> Any:
        """Admit a pod ("namespace/name") of one container; return Allocate's answer.

        With ``init`` it is an ordinary init container that requests the devices.
        """
        container = Container("init" if init else "main", {resource: count}, init)
        (answer,) = await self.admit_pod(pod, (container,), running=running)
        return answer

    async def admit_pod(
        self, pod: str, containers: tuple[Container, ...], *, running: bool = True
    ) -> list[Any]:
        """Admit a pod as the device manager does: return the answers to its Allocate calls."""
        admitted = Pod(pod, f"uid-{next(self._uids)}", containers, running)
        life = self._life
        answers: list[Any] = []
        reusable: dict[str, set[str]] = {}
        async with self._admitting:  # one pod at a time, as the kubelet does
            while not self.ready:  # until the API has told it of a pod, it admits none of it
                await asyncio.sleep(0.02)
                await self._until_thawed(life)
            self.pods[pod] = admitted
            try:
                for container in sorted(containers, key=lambda candidate: not candidate.init):
                    answers += await self._allocate(admitted, container, reusable, life)
            except AdmissionFailed:
                self.pods.pop(pod, None)
                raise
        return answers

    async def _allocate(
        self, pod: Pod, container: Container, reusable: dict[str, set[str]], life: int
    ) -> list[Any]:
        answers = []
        for resource, count in container.requests.items():
            await self._until_thawed(life)
            self._forget_ended()
            endpoint = self.endpoints.get(resource)
            if endpoint is None or not endpoint.alive:
                raise AdmissionFailed(f"cannot allocate unregistered device {resource}")
            spare = sorted(reusable.get(resource, set()))[:count]
            try:
                chosen = spare + await self._choose(endpoint, count - len(spare))
                request = api.AllocateRequest(
                    container_requests=[api.ContainerAllocateRequest(devices_ids=chosen)]
                )
                answer = await stubs.DevicePluginStub(endpoint.channel).Allocate(request)
            except (grpc.RpcError, grpc.aio.UsageError, asyncio.InvalidStateError) as error:
                raise AdmissionFailed(str(error)) from None
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is not None and task.cancelling():
                    raise
                raise AdmissionFailed("the connection was closed") from None
            await self._until_thawed(life)
            by_numa: dict[str, list[str]] = {}
            for name in chosen:
                device = endpoint.devices.get(name)
                nodes = [] if device is None else device.topology.nodes
                by_numa.setdefault(str(nodes[0].ID) if nodes else "-1", []).append(name)
            (given,) = answer.container_responses
            self._allocations.append(
                Allocation(
                    *(pod.uid, container.name, resource, tuple(chosen), by_numa),
                    given.SerializeToString(),
                )
            )
            # What an init container was given is the next one's; what that took is used up.
            pool = reusable.setdefault(resource, set())
            (pool.update if container.init else pool.difference_update)(chosen)
            answers.append(given)
            await asyncio.sleep(self.admission_seconds)
        await self._until_thawed(life)
        self._write_checkpoint()
        return answers

    async def _choose(self, endpoint: Endpoint, count: int) -> list[str]:
        """Choose free devices, those that the plugin prefers first."""
        if not count:
            return []
        held = {
            name
            for allocation in self._allocations
            if allocation.resource == endpoint.resource
            for name in allocation.device_ids
        }
        free = [name for name in endpoint.healthy if name not in held]
        if len(free) < count:
            raise AdmissionFailed(f"requested {count}, available {len(free)}")
        container = api.ContainerPreferredAllocationRequest(
            available_deviceIDs=free, allocation_size=count
        )
        answer = await stubs.DevicePluginStub(endpoint.channel).GetPreferredAllocation(
            api.PreferredAllocationRequest(container_requests=[container])
        )
        wanted = [name for name in answer.container_responses[0].deviceIDs if name in free]
        return (wanted + [name for name in free if name not in wanted])[:count]

    async def start_container(self, pod: str, container: str = "main") -> None:
        """Ask the plugins that want it before a container starts, for the first time or again."""
        uid = self.pods[pod].uid
        for allocation in self._allocations:
            if (allocation.uid, allocation.container) != (uid, container):
                continue
            endpoint = self.endpoints.get(allocation.resource)
            if endpoint is None:
                raise StartFailed(f"endpoint not found for {allocation.resource}")
            if not endpoint.pre_start:
                continue
            stub = stubs.DevicePluginStub(endpoint.channel)
            request = api.PreStartContainerRequest(devices_ids=allocation.device_ids)
            try:
                await stub.PreStartContainer(request, timeout=30)
            except grpc.RpcError as error:
                raise StartFailed(str(error.details())) from None

    async def _until_thawed(self, life: int) -> None:
        await self._thawed.wait()
        if life != self._life:
            raise AdmissionFailed("the kubelet was restarted")

    def end(self, pod: str) -> None:
        """End a pod: what it held is free when the kubelet comes to see it."""
        if self.pods.pop(pod, None) is not None:
            self.ended.add(pod)

    def _forget_ended(self) -> None:
        if self.ready:
            active = {pod.uid for pod in self.pods.values()}
            self._allocations = [
                allocation for allocation in self._allocations if allocation.uid in active
            ]

    def _read_checkpoint(self) -> list[Allocation]:
        try:
            entries = json.loads(self.checkpoint.read_text())["Data"]["PodDeviceEntries"]
        except (OSError, ValueError, KeyError):
            return []
        return [
            Allocation(
                entry["PodUID"],
                entry["ContainerName"],
                entry["ResourceName"],
                tuple(name for names in entry["DeviceIDs"].values() for name in names),
                entry["DeviceIDs"],
                base64.b64decode(entry["AllocResp"]),
            )
            for entry in entries
        ]

    def _write_checkpoint(self) -> None:
        registered = {name: endpoint.healthy for name, endpoint in self.endpoints.items()}
        entries = [allocation.entry for allocation in self._allocations]
        data = {"PodDeviceEntries": entries, "RegisteredDevices": registered}
        scratch = self.checkpoint.with_suffix(".new")
        scratch.write_text(json.dumps({"Data": data, "Checksum": 0}))
        scratch.replace(self.checkpoint)
