"""A kubelet without the kubelet: registration, device lists, PodResources, and its restarts.

It follows the real one (1.36) where plugins can tell the difference, above all where it hurts (for
how it admits pods see ``device_manager``):

* Sockets in the folder are removed at its start. Register dials back before it answers. A list
  replaces the former one. When a plugin's stream ends, whatever is registered under its name by
  then is disconnected too.
* After its start it has no pods of the API until that has told it of them; its static pods, which
  come from files, it lists at once and first. It never lists ordinary init containers. It admits
  the pods again: one whose container does not run, and whose devices are not listed as healthy,
  fails. So does one whose ordinary init container, which has ended, had devices
  (kubernetes/kubernetes#138446), where ``readmission_seconds`` tells how soon that comes.

Besides, it can be frozen: it accepts connections and answers nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc

from divvy.agent.kubelet.api import deviceplugin_pb2 as api
from divvy.agent.kubelet.api import deviceplugin_pb2_grpc as stubs
from divvy.agent.kubelet.api import podresources_pb2 as pods_api
from divvy.agent.kubelet.api import podresources_pb2_grpc as pods_stubs
from lab.fakes.device_manager import DeviceManager, Endpoint

# The agent's own pod is on every node that has an agent.
AGENT_POD = "divvy-system/divvy-agent-x"


class FakeKubelet(DeviceManager, stubs.RegistrationServicer, pods_stubs.PodResourcesListerServicer):
    """Start with ``async with fake_kubelet(folder) as kubelet``."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "device-plugins")
        self.pod_resources = folder / "pod-resources" / "kubelet.sock"
        self.registrations: list[str] = []
        self.claims: list[tuple[str, str]] = []  # (namespace/pod, claim), used by container main
        self.static: tuple[str, ...] = ()  # pods from files, "namespace/name"
        self.failed: list[tuple[str, str]] = []  # pods that it ended itself, and why
        self.answer_seconds = 0.0  # what PodResources takes
        # From its start until it admits pods again whose ordinary init container had devices.
        self.readmission_seconds: float | None = None
        self._readmission: asyncio.Task[None] | None = None
        self.lists_ended = False
        # From Kubernetes 1.37: a plugin that is connected cannot register again at its socket.
        self.keeps_connections = True
        self._servers: list[Any] = []
        self._changed = asyncio.Event()

    @property
    def alive(self) -> bool:
        """Tell whether there is a kubelet, frozen or not."""
        return bool(self._servers)

    @property
    def frozen(self) -> bool:
        return not self._thawed.is_set()

    def freeze(self) -> None:
        """Answer nothing and see nothing until ``thaw``, as a stopped process."""
        self._thawed.clear()

    def thaw(self) -> None:
        self._thawed.set()

    async def start(self) -> None:
        self._life += 1
        self._allocations = self._read_checkpoint()
        self.plugins.mkdir(parents=True, exist_ok=True)
        self.pod_resources.parent.mkdir(parents=True, exist_ok=True)
        for socket in self.plugins.glob("*.sock"):
            if not socket.is_dir():
                socket.unlink()
        self.pod_resources.unlink(missing_ok=True)
        registration = grpc.aio.server()
        stubs.add_RegistrationServicer_to_server(self, registration)
        registration.add_insecure_port(f"unix:{self.plugins / 'kubelet.sock'}")
        lister = grpc.aio.server()
        pods_stubs.add_PodResourcesListerServicer_to_server(self, lister)
        lister.add_insecure_port(f"unix:{self.pod_resources}")
        for server in (registration, lister):
            await server.start()
        self._servers = [registration, lister]
        self._admit_again()
        if self.readmission_seconds is not None:
            self._readmission = asyncio.create_task(self._admit_init(self.readmission_seconds))

    async def stop(self) -> None:
        self._life += 1
        self._thawed.set()
        if self._readmission is not None:
            self._readmission.cancel()
        endpoints, self.endpoints = self.endpoints, {}
        for endpoint in endpoints.values():
            await self._disconnect(endpoint)
        servers, self._servers = self._servers, []
        for server in servers:
            await server.stop(None)

    async def restart(self, *, ready: bool = True) -> None:
        """Come back as a new kubelet: plugins must register again, pods stay.

        With ``ready`` False it has not heard of its pods; set ``self.ready`` when it has.
        """
        await self.stop()
        self.ready = ready
        await self.start()

    def _admit_again(self) -> None:
        """Fail the pods whose containers do not run: nothing is registered yet."""
        for pod in list(self.pods.values()):
            if not pod.running and self.held(pod.name):
                self.failed.append((pod.name, "no healthy devices present"))
                self.end(pod.name)

    async def _admit_init(self, seconds: float) -> None:
        """Fail the pods with an init container whose devices nobody lists by then."""
        await asyncio.sleep(seconds)
        for pod in list(self.pods.values()):
            wanted = {r for c in pod.containers if c.init for r in c.requests}
            if any(not self.allocatable(resource) for resource in wanted):
                self.failed.append((pod.name, "no healthy devices present"))
                self.end(pod.name)

    async def Register(self, request: Any, context: Any) -> Any:  # noqa: N802
        if request.version != "v1beta1":
            await context.abort(grpc.StatusCode.UNKNOWN, f"version {request.version} unknown")
        await self._thawed.wait()
        socket = self.plugins / request.endpoint
        known = self.endpoints.get(request.resource_name)
        watch = None if known is None or known.socket != socket else known.watch
        if self.keeps_connections and watch is not None and not watch.done():
            refusal = f"device plugin already connected: {socket}"
            await context.abort(grpc.StatusCode.UNKNOWN, refusal)
        channel = grpc.aio.insecure_channel(f"unix:{socket}")
        stub = stubs.DevicePluginStub(channel)
        # It does not look at the request's options.
        options = await stub.GetDevicePluginOptions(api.Empty(), timeout=10)
        asks = options.pre_start_required
        endpoint = Endpoint(request.resource_name, socket, channel, pre_start=asks)
        endpoint.watch = asyncio.create_task(self._watch(endpoint))
        self.endpoints[request.resource_name] = endpoint
        self.registrations.append(request.resource_name)
        return api.Empty()

    async def List(self, request: Any, context: Any) -> Any:  # noqa: N802
        await self._thawed.wait()
        await asyncio.sleep(self.answer_seconds)
        answer = pods_api.ListPodResourcesResponse()
        self._forget_ended()
        for pod_name in (*self.static, *([AGENT_POD] if self.ready else [])):
            namespace, name = pod_name.split("/")
            listed = answer.pod_resources.add(name=name, namespace=namespace)
            listed.containers.add(name="agent" if pod_name == AGENT_POD else name)
        for pod in self.pods.values() if self.ready else ():
            namespace, name = pod.name.split("/")
            listed = answer.pod_resources.add(name=name, namespace=namespace)
            for container in pod.containers:
                if container.init:
                    continue
                shown = listed.containers.add(name=container.name)
                for allocation in self._allocations:
                    if (allocation.uid, allocation.container) == (pod.uid, container.name):
                        shown.devices.add(
                            resource_name=allocation.resource, device_ids=allocation.device_ids
                        )
        for pod_name in sorted(self.ended - self.pods.keys()) if self.ready else ():
            if self.lists_ended:
                namespace, name = pod_name.split("/")
                answer.pod_resources.add(name=name, namespace=namespace).containers.add(name="main")
        for user, claim in self.claims:
            namespace, name = user.split("/")
            shown = answer.pod_resources.add(name=name, namespace=namespace).containers.add(
                name="main"
            )
            shown.dynamic_resources.add(claim_name=claim, claim_namespace=namespace)
        return answer

    async def GetAllocatableResources(self, request: Any, context: Any) -> Any:  # noqa: N802
        await self._thawed.wait()
        await asyncio.sleep(self.answer_seconds)
        answer = pods_api.AllocatableResourcesResponse()
        for endpoint in self.endpoints.values():
            if endpoint.alive:
                answer.devices.add(resource_name=endpoint.resource, device_ids=endpoint.healthy)
        return answer

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
                await self._thawed.wait()
                endpoint.devices = {device.ID: device for device in message.devices}
                endpoint.lists += 1
                self._write_checkpoint()
                self._changed.set()
        except (grpc.RpcError, grpc.aio.UsageError, asyncio.InvalidStateError):
            pass
        await self._thawed.wait()
        endpoint.alive = False
        self._changed.set()
        # The real one, too, asks who has the name now, and disconnects that one.
        successor = self.endpoints.get(endpoint.resource)
        if successor is not None and successor is not endpoint:
            await self._disconnect(successor)
            successor.alive = False

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
