"""The kubelet's PodResources interface: which container holds which device."""

from __future__ import annotations

from pathlib import Path

import grpc

from divvy.agent.gpu.holders import Holder
from divvy.agent.kubelet.api import podresources_pb2 as api
from divvy.agent.kubelet.api import podresources_pb2_grpc as stubs

_DEADLINE = 5.0


class PodResources:
    """A client of the kubelet's PodResources socket; raises grpc.RpcError when it is away."""

    def __init__(self, socket: Path) -> None:
        self._channel = grpc.aio.insecure_channel(
            f"unix:{socket}",
            options=[
                ("grpc.max_receive_message_length", 16 << 20),
                # gRPC's own would wait up to two minutes for a kubelet that is back.
                ("grpc.initial_reconnect_backoff_ms", 200),
                ("grpc.max_reconnect_backoff_ms", 1000),
            ],
        )
        self._stub = stubs.PodResourcesListerStub(self._channel)

    async def holders(self) -> tuple[Holder, ...]:
        """List every container of an active pod that holds devices."""
        return (await self.listed())[0]

    async def listed(self) -> tuple[tuple[Holder, ...], frozenset[str]]:
        """List who holds devices, and every active pod.

        Ordinary init containers are missing, and all pods until the kubelet has them from the API
        (pkg/kubelet/apis/podresources/server_v1.go of Kubernetes 1.36).
        """
        answer = await self._stub.List(api.ListPodResourcesRequest(), timeout=_DEADLINE)
        pods = frozenset(f"{pod.namespace}/{pod.name}" for pod in answer.pod_resources)
        holders = tuple(
            Holder(f"{pod.namespace}/{pod.name}", container.name, held.resource_name, device_id)
            for pod in answer.pod_resources
            for container in pod.containers
            for held in container.devices
            for device_id in held.device_ids
        )
        return holders, pods

    async def claim_containers(
        self,
    ) -> tuple[dict[tuple[str, str], list[tuple[str, str]]], frozenset[str]]:
        """List the containers that use each claim, and every active pod.

        (namespace, claim) → (namespace/pod, name); as in ``listed`` some are missing.
        """
        answer = await self._stub.List(api.ListPodResourcesRequest(), timeout=_DEADLINE)
        containers: dict[tuple[str, str], list[tuple[str, str]]] = {}
        for pod in answer.pod_resources:
            for container in pod.containers:
                for used in container.dynamic_resources:
                    claim = used.claim_namespace, used.claim_name
                    containers.setdefault(claim, []).append(
                        (f"{pod.namespace}/{pod.name}", container.name)
                    )
        return containers, frozenset(f"{pod.namespace}/{pod.name}" for pod in answer.pod_resources)

    async def allocatable(self) -> frozenset[str]:
        """Return the IDs of all devices the kubelet would allocate."""
        answer = await self._stub.GetAllocatableResources(
            api.AllocatableResourcesRequest(), timeout=_DEADLINE
        )
        return frozenset(device_id for listed in answer.devices for device_id in listed.device_ids)

    async def close(self) -> None:
        """Close the channel."""
        await self._channel.close()
