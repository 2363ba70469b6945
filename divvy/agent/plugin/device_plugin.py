"""One gRPC server per resource, as the kubelet's device plugin interface wants it."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import grpc

from divvy.agent.kubelet.api import deviceplugin_pb2 as api
from divvy.agent.kubelet.api import deviceplugin_pb2_grpc as stubs
from divvy.agent.plugin.allocation import ContainerAllocation, Refused
from divvy.agent.plugin.inventory import Device, Resource

API_VERSION = "v1beta1"
_MAX_NAME = 40
# Stands before the number of a move: no name of a resource has it.
_MOVED = "~"


class Allocator(Protocol):
    """Decides what a server answers; the server itself only speaks the protocol."""

    async def refresh_holders(self) -> None:
        """Learn who holds what, where the kubelet may have forgotten it."""

    def preferred_allocation(
        self, resource: Resource, available: Sequence[str], required: Sequence[str], size: int
    ) -> list[str]:
        """Choose devices for GetPreferredAllocation."""

    def allocate(self, resource: Resource, device_ids: Sequence[str]) -> ContainerAllocation:
        """Answer an Allocate, or raise Refused."""

    async def start_container(self, resource: Resource, device_ids: Sequence[str]) -> None:
        """Raise Refused if the container of these devices may not start."""


class ResourceServer(stubs.DevicePluginServicer):
    """Serves one resource on its own socket; a new list goes out on the open stream."""

    def __init__(
        self,
        resource: Resource,
        folder: Path,
        allocator: Allocator,
        on_stream_end: Callable[[str], None],
    ) -> None:
        self._folder = folder
        self._moves = 0
        self._resource = resource
        self._message = _message(resource)
        self._changed = asyncio.Event()
        self._allocator = allocator
        self._on_stream_end = on_stream_end
        self._server: grpc.aio.Server | None = None
        self._sent: dict[int, Any] = {}  # by open stream, the list it was sent last

    @property
    def current(self) -> bool:
        """Return whether a kubelet listens, and the newest list has been sent to it."""
        return any(sent is self._message for sent in self._sent.values())

    @property
    def resource(self) -> Resource:
        """Return what is being served."""
        return self._resource

    def advertise(self, resource: Resource) -> bool:
        """Serve another list from now on; False if nothing the kubelet sees changed."""
        message = _message(resource)
        self._resource = resource
        if message == self._message:
            return False
        self._message = message
        self.resend()
        return True

    def resend(self) -> None:
        """Send the list on the open stream again.

        The kubelet writes its checkpoint whenever a list arrives, the same one too.
        """
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def start(self) -> None:
        """Listen on the socket; what is there from an earlier life is removed. Raises OSError."""
        first = self._folder / socket_name(self._resource.name)
        for earlier in (first, *self._folder.glob(f"{first.stem}{_MOVED}*{first.suffix}")):
            earlier.unlink(missing_ok=True)
        server = grpc.aio.server()
        stubs.add_DevicePluginServicer_to_server(self, server)
        try:
            server.add_insecure_port(f"unix:{self.socket}")
        except RuntimeError as error:
            raise OSError(f"{self.socket}: {error}") from error
        await server.start()
        self._server = server

    @property
    def listens(self) -> bool:
        """Return whether it serves its socket, and nobody has removed that."""
        return self._server is not None and self.socket.exists()

    @property
    def socket(self) -> Path:
        """Return where it listens, or is to."""
        path = self._folder / socket_name(self._resource.name)
        if not self._moves:
            return path
        return path.with_name(f"{path.stem}{_MOVED}{self._moves}{path.suffix}")

    async def move(self) -> None:
        """End every stream, and listen on another socket."""
        await self.stop()
        self._moves += 1
        await self.start()

    async def stop(self) -> None:
        """Close the socket and every stream."""
        server, self._server = self._server, None
        if server is not None:
            await server.stop(None)
        self.socket.unlink(missing_ok=True)

    async def GetDevicePluginOptions(self, request: Any, context: Any) -> Any:  # noqa: N802, ARG002
        """Return what the kubelet may ask, and must."""
        return self.options

    @property
    def options(self) -> Any:
        """Return the options told to the kubelet: it asks before each start of a limited share.

        Also of a client of MPS whose resource is shared otherwise now, and of every container where
        device nodes are given by themselves: they may have become another GPU's.
        """
        resource = self._resource
        return api.DevicePluginOptions(
            get_preferred_allocation_available=True,
            pre_start_required=(
                resource.sharing.needs_container or resource.has_clients or resource.by_node
            ),
        )

    async def ListAndWatch(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802, ARG002
        """Send the list now and after every change."""
        stream, server = id(context), self._server
        self._sent[stream] = None
        try:
            while True:
                changed, message = self._changed, self._message
                yield message
                self._sent[stream] = message
                await changed.wait()
        finally:
            del self._sent[stream]
            # Of a server that was stopped the end was ours, and may be noticed after the next has
            # started. If the kubelet replaced this stream it has taken another one already.
            if server is not None and self._server is server and not self._sent:
                self._on_stream_end(self._resource.name)

    async def GetPreferredAllocation(self, request: Any, context: Any) -> Any:  # noqa: N802, ARG002
        """Choose devices for each container request."""
        await self._allocator.refresh_holders()
        answer = api.PreferredAllocationResponse()
        for container in request.container_requests:
            chosen = self._allocator.preferred_allocation(
                self._resource,
                container.available_deviceIDs,
                container.must_include_deviceIDs,
                container.allocation_size,
            )
            answer.container_responses.add(deviceIDs=chosen)
        return answer

    async def Allocate(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Allocate the devices, or fail with device and reason."""
        await self._allocator.refresh_holders()
        answer = api.AllocateResponse()
        try:
            for container in request.container_requests:
                allocated = self._allocator.allocate(self._resource, container.devices_ids)
                _fill(answer.container_responses.add(), allocated)
        except Refused as refusal:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(refusal))
        return answer

    async def PreStartContainer(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Let a container start, or fail with the reason: the kubelet tries again."""
        try:
            await self._allocator.start_container(self._resource, request.devices_ids)
        except Refused as refusal:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(refusal))
        return api.PreStartContainerResponse()


def socket_name(resource: str) -> str:
    """Return the socket's file name for a resource name.

    A resource's name may have 317 characters, a socket's path 107.
    """
    name = re.sub(r"[^A-Za-z0-9.-]", "_", resource)
    if len(name) > _MAX_NAME:
        name = f"{name[:_MAX_NAME]}-{hashlib.sha256(resource.encode()).hexdigest()[:8]}"
    return f"divvy-{name}.sock"


def _fill(answer: Any, allocated: ContainerAllocation) -> None:
    for name in allocated.cdi_names:
        answer.cdi_devices.add(name=name)
    answer.envs.update(allocated.edits.env)
    for node in allocated.edits.nodes:
        answer.devices.add(
            container_path=node.path, host_path=node.host, permissions=node.permissions
        )
    for mount in allocated.edits.mounts:
        answer.mounts.add(
            container_path=mount.path, host_path=mount.host, read_only=mount.read_only
        )


def _message(resource: Resource) -> Any:
    return api.ListAndWatchResponse(devices=[_device(device) for device in resource.devices])


def _device(device: Device) -> Any:
    health = "Healthy" if device.unhealthy is None else "Unhealthy"
    message = api.Device(ID=device.id, health=health)
    if device.numa is not None and device.numa >= 0:
        message.topology.nodes.add(ID=device.numa)
    return message
