"""Who holds which device: the kubelet's PodResources and the grants it has not listed yet."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import grpc

from divvy.agent.api import podresources_pb2 as api
from divvy.agent.api import podresources_pb2_grpc as stubs
from divvy.agent.hardware import Gpu
from divvy.agent.inventory import physical

# An Allocate is listed by PodResources within milliseconds; a pod that the
# kubelet refuses after Allocate never is.
_LEDGER_SECONDS = 10.0


@dataclass(frozen=True, order=True)
class Holder:
    """A container that holds a device; ``pod`` is "namespace/name", empty while only granted."""

    pod: str
    container: str
    resource: str
    device_id: str


Held = Mapping[str, tuple[Holder, ...]]


@dataclass
class Ledger:
    """Grants that PodResources may not list yet: (resource, device ID) → time of Allocate."""

    grants: dict[tuple[str, str], float] = field(default_factory=dict)

    def record(self, resource: str, device_ids: Iterable[str], now: float) -> None:
        """Note a grant."""
        for device_id in device_ids:
            self.grants[resource, device_id] = now

    def open_grants(self, listed: Collection[Holder], now: float) -> tuple[Holder, ...]:
        """Return grants not yet listed; forget those that are, or that are too old to come."""
        known = {(holder.resource, holder.device_id) for holder in listed}
        self.grants = {
            key: granted
            for key, granted in self.grants.items()
            if key not in known and now - granted < _LEDGER_SECONDS
        }
        return tuple(Holder("", "", *key) for key in sorted(self.grants))


def by_uuid(holders: Iterable[Holder]) -> Held:
    """Group holders by the GPU or MIG device behind what they hold."""
    grouped: dict[str, list[Holder]] = {}
    for holder in sorted(holders):
        grouped.setdefault(physical(holder.device_id), []).append(holder)
    return {uuid: tuple(found) for uuid, found in grouped.items()}


def on_gpu(gpu: Gpu, held: Mapping[str, tuple[Holder, ...]]) -> dict[str, tuple[Holder, ...]]:
    """Return the holders of this GPU and of its MIG devices."""
    uuids = [gpu.uuid, *(instance.uuid for instance in gpu.instances if instance.uuid)]
    return {uuid: held[uuid] for uuid in uuids if uuid in held}


class PodResources:
    """A client of the kubelet's PodResources socket; raises grpc.RpcError when it is away."""

    def __init__(self, socket: Path) -> None:
        self._channel = grpc.aio.insecure_channel(
            f"unix:{socket}", options=[("grpc.max_receive_message_length", 16 << 20)]
        )
        self._stub = stubs.PodResourcesListerStub(self._channel)

    async def holders(self) -> tuple[Holder, ...]:
        """List every container of an active pod that holds devices."""
        answer = await self._stub.List(api.ListPodResourcesRequest(), timeout=5)
        return tuple(
            Holder(f"{pod.namespace}/{pod.name}", container.name, held.resource_name, device_id)
            for pod in answer.pod_resources
            for container in pod.containers
            for held in container.devices
            for device_id in held.device_ids
        )

    async def allocatable(self) -> frozenset[str]:
        """Return the IDs of all devices the kubelet would hand out."""
        answer = await self._stub.GetAllocatableResources(
            api.AllocatableResourcesRequest(), timeout=5
        )
        return frozenset(device_id for listed in answer.devices for device_id in listed.device_ids)

    async def containers(self) -> frozenset[str]:
        """Return the names of all containers of active pods on the node."""
        answer = await self._stub.List(api.ListPodResourcesRequest(), timeout=5)
        return frozenset(
            container.name for pod in answer.pod_resources for container in pod.containers
        )

    async def close(self) -> None:
        """Close the channel."""
        await self._channel.close()
