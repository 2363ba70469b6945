"""Look every few seconds who is above a ``memoryLimit``, and say so: an Event per excess."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

import grpc

from divvy.agent.cluster import ClusterLink
from divvy.agent.driver import Driver
from divvy.agent.holders import PodResources, by_uuid
from divvy.agent.inventory import Resource
from divvy.agent.kubelet import Kubelet
from divvy.agent.memory_limit import Excess, Use, excesses, pod_uid, pods_by_uid
from divvy.agent.nvml.process import DriverProblem

_LOOK_SECONDS = 5.0
_PROC = Path("/proc")


class MemoryWatch:
    """Warns about pods above their limit; needs the host's PIDs and /var/log/pods' names."""

    def __init__(
        self,
        driver: Driver,
        kubelet: Kubelet,
        pod_resources: PodResources,
        cluster: ClusterLink,
        pod_logs: Path,
    ) -> None:
        self._driver = driver
        self._kubelet = kubelet
        self._pod_resources = pod_resources
        self._cluster = cluster
        self._pod_logs = pod_logs
        self.excesses: tuple[Excess, ...] = ()

    async def run(self) -> None:
        """Look for ever."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            limited = [r for r in self._kubelet.published() if r.memory_limit_mib is not None]
            try:
                found = await self._look(limited) if limited else ()
            except (DriverProblem, grpc.RpcError, OSError):
                continue  # told elsewhere; the next look is in a moment
            known = {(excess.pod_uid, excess.uuid) for excess in self.excesses}
            self.excesses = found
            for excess in found:
                if (excess.pod_uid, excess.uuid) not in known:
                    await self._cluster.pod_event(
                        excess.pod, excess.pod_uid, "GpuMemoryOverLimit", excess.sentence
                    )

    async def _look(self, limited: Iterable[Resource]) -> tuple[Excess, ...]:
        limits = {each.name: each.memory_limit_mib or 0 for each in limited}
        gpus = {device.gpu for each in limited for device in each.devices}
        uses = [use for gpu in sorted(gpus) for use in await self._uses(gpu)]
        if not uses:
            return ()
        held = by_uuid(await self._pod_resources.holders())
        pods = pods_by_uid(folder.name for folder in self._pod_logs.iterdir())
        return excesses(uses, pods, held, limits)

    async def _uses(self, uuid: str) -> list[Use]:
        gpu = None if self._driver.snapshot is None else self._driver.snapshot.gpu(uuid)
        if gpu is None or gpu.lost:
            return []
        by_gi = {instance.gi: instance.uuid for instance in gpu.instances}
        uses = []
        for process in await self._driver.processes(uuid):
            pod = _pod_of(process["pid"] or 0)
            if pod is not None:
                device = by_gi.get(process["gi"] or 0) or uuid
                uses.append(Use(pod, device, process["used_mib"] or 0))
        return uses


def _pod_of(pid: int) -> str | None:
    try:
        return pod_uid((_PROC / str(pid) / "cgroup").read_text())
    except OSError:
        return None  # it ended meanwhile
