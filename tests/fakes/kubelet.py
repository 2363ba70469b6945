"""A kubelet's device manager without the kubelet: registration, lists, admission, PodResources.

It follows the real one where plugins can tell the difference: sockets in the
folder are removed at its start, Register dials back before it answers, a list
replaces the former one, GetPreferredAllocation's answer is intersected with
what is free, admission fails when Allocate fails.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from divvy.agent.api import deviceplugin_pb2 as api
from divvy.agent.api import deviceplugin_pb2_grpc as stubs
from divvy.agent.api import podresources_pb2 as pods_api
from divvy.agent.api import podresources_pb2_grpc as pods_stubs


class AdmissionFailed(Exception):
    """The pod would end as Failed with UnexpectedAdmissionError."""


@dataclass
class Endpoint:
    """A registered resource: its plugin's socket and the devices it listed last."""

    resource: str
    socket: Path
    channel: Any
    devices: dict[str, Any] = field(default_factory=dict)
    lists: int = 0
    alive: bool = True
    watch: asyncio.Task[None] | None = None

    @property
    def healthy(self) -> list[str]:
        return [name for name, device in self.devices.items() if device.health == "Healthy"]


class FakeKubelet(stubs.RegistrationServicer, pods_stubs.PodResourcesListerServicer):
    """Start with ``async with fake_kubelet(folder) as kubelet``."""

    def __init__(self, folder: Path) -> None:
        self.plugins = folder / "device-plugins"
        self.pod_resources = folder / "pod-resources" / "kubelet.sock"
        self.endpoints: dict[str, Endpoint] = {}
        self.registrations: list[str] = []
        self.pods: dict[str, dict[str, list[str]]] = {}
        self._servers: list[Any] = []
        self._changed = asyncio.Event()

    async def start(self) -> None:
        self.plugins.mkdir(parents=True, exist_ok=True)
        self.pod_resources.parent.mkdir(parents=True, exist_ok=True)
        for socket in self.plugins.glob("*.sock"):
            socket.unlink()
        self.pod_resources.unlink(missing_ok=True)
        registration = grpc.aio.server()
        stubs.add_RegistrationServicer_to_server(self, registration)
        registration.add_insecure_port(f"unix:{self.plugins / 'kubelet.sock'}")
        lister = grpc.aio.server()
        pods_stubs.add_PodResourcesListerServicer_to_server(self, lister)
        lister.add_insecure_port(f"unix:{self.pod_resources}")
        self._servers = [registration, lister]
        for server in self._servers:
            await server.start()

    async def stop(self) -> None:
        for endpoint in self.endpoints.values():
            await self._disconnect(endpoint)
        self.endpoints = {}
        for server in self._servers:
            await server.stop(None)

    async def restart(self) -> None:
        """Come back as a new kubelet: plugins must register again, pods stay."""
        await self.stop()
        await self.start()

    async def Register(self, request: Any, context: Any) -> Any:  # noqa: N802
        if request.version != "v1beta1":
            await context.abort(grpc.StatusCode.UNKNOWN, f"version {request.version} unknown")
        socket = self.plugins / request.endpoint
        channel = grpc.aio.insecure_channel(f"unix:{socket}")
        stub = stubs.DevicePluginStub(channel)
        await stub.GetDevicePluginOptions(api.Empty(), timeout=10)
        old = self.endpoints.get(request.resource_name)
        if old is not None:
            await self._disconnect(old)
        endpoint = Endpoint(request.resource_name, socket, channel)
        endpoint.watch = asyncio.create_task(self._watch(endpoint))
        self.endpoints[request.resource_name] = endpoint
        self.registrations.append(request.resource_name)
        return api.Empty()

    async def List(self, request: Any, context: Any) -> Any:  # noqa: N802
        answer = pods_api.ListPodResourcesResponse()
        for pod, held in self.pods.items():
            namespace, name = pod.split("/")
            entry = answer.pod_resources.add(name=name, namespace=namespace)
            container = entry.containers.add(name="main")
            for resource, ids in held.items():
                container.devices.add(resource_name=resource, device_ids=ids)
        return answer

    async def GetAllocatableResources(self, request: Any, context: Any) -> Any:  # noqa: N802
        answer = pods_api.AllocatableResourcesResponse()
        for endpoint in self.endpoints.values():
            if endpoint.alive:
                answer.devices.add(resource_name=endpoint.resource, device_ids=endpoint.healthy)
        return answer

    async def admit(self, pod: str, resource: str, count: int = 1) -> Any:
        """Admit a pod ("namespace/name") as the device manager does; return Allocate's answer."""
        endpoint = self.endpoints.get(resource)
        if endpoint is None or not endpoint.alive:
            raise AdmissionFailed(f"cannot allocate unregistered device {resource}")
        held = {name for used in self.pods.values() for name in used.get(resource, ())}
        free = [name for name in endpoint.healthy if name not in held]
        if len(free) < count:
            raise AdmissionFailed(f"requested {count}, available {len(free)}")
        stub = stubs.DevicePluginStub(endpoint.channel)
        try:
            wish = api.ContainerPreferredAllocationRequest(
                available_deviceIDs=free, allocation_size=count
            )
            answer = await stub.GetPreferredAllocation(
                api.PreferredAllocationRequest(container_requests=[wish])
            )
            wanted = [name for name in answer.container_responses[0].deviceIDs if name in free]
            chosen = (wanted + [name for name in free if name not in wanted])[:count]
            request = api.AllocateRequest(
                container_requests=[api.ContainerAllocateRequest(devices_ids=chosen)]
            )
            allocated = await stub.Allocate(request)
        except grpc.RpcError as error:
            raise AdmissionFailed(error.details()) from None
        self.pods.setdefault(pod, {})[resource] = chosen
        return allocated.container_responses[0]

    def end(self, pod: str) -> None:
        """Free what a pod held."""
        del self.pods[pod]

    async def until(self, met: Callable[[], bool], seconds: float = 10.0) -> None:
        """Wait until something about the lists is true."""
        async with asyncio.timeout(seconds):
            while not met():
                self._changed.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.2):
                        await self._changed.wait()

    def allocatable(self, resource: str) -> int:
        """Return what the node's status would show."""
        endpoint = self.endpoints.get(resource)
        return len(endpoint.healthy) if endpoint is not None and endpoint.alive else 0

    async def _watch(self, endpoint: Endpoint) -> None:
        stub = stubs.DevicePluginStub(endpoint.channel)
        try:
            async for message in stub.ListAndWatch(api.Empty()):
                endpoint.devices = {device.ID: device for device in message.devices}
                endpoint.lists += 1
                self._changed.set()
        except grpc.RpcError:
            pass
        endpoint.alive = False
        self._changed.set()

    async def _disconnect(self, endpoint: Endpoint) -> None:
        if endpoint.watch is not None:
            endpoint.watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await endpoint.watch
        await endpoint.channel.close()


@asynccontextmanager
async def fake_kubelet(folder: Path) -> AsyncIterator[FakeKubelet]:
    """Run a fake kubelet below ``folder``."""
    kubelet = FakeKubelet(folder)
    await kubelet.start()
    try:
        yield kubelet
    finally:
        await kubelet.stop()
