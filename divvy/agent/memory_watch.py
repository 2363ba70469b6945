"""Look every few seconds who is above a ``memoryLimit``: say so, and end it where told to."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Iterable
from pathlib import Path
from time import monotonic

import grpc

from divvy.agent.cluster import ClusterLink
from divvy.agent.driver import Driver
from divvy.agent.holders import PodResources, by_uuid
from divvy.agent.inventory import Resource
from divvy.agent.kubelet import Kubelet
from divvy.agent.memory_limit import Excess, Limit, Process, Use, containers_by_id, excesses
from divvy.agent.nvml.process import DriverProblem
from divvy.agent.processes import look, send

_log = logging.getLogger(__name__)
_LOOK_SECONDS = 5.0
# How long a process may take to end by itself.
_GRACE_SECONDS = 10.0


class MemoryWatch:
    """Watches containers with a limit; needs the host's PIDs and /var/log/containers' names."""

    def __init__(
        self,
        driver: Driver,
        kubelet: Kubelet,
        pod_resources: PodResources,
        cluster: ClusterLink,
        container_logs: Path,
    ) -> None:
        self._driver = driver
        self._kubelet = kubelet
        self._pod_resources = pod_resources
        self._cluster = cluster
        self._container_logs = container_logs
        self._told_to_end: dict[Process, float] = {}
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
            known = {excess.key for excess in self.excesses}
            self.excesses = found
            self._enforce(found, monotonic())
            for excess in found:
                if excess.key not in known:
                    await self._tell(excess)

    async def _tell(self, excess: Excess) -> None:
        reason = "GpuMemoryLimitEnforced" if excess.enforced else "GpuMemoryOverLimit"
        await self._cluster.pod_event(excess.pod, excess.pod_uid, reason, excess.sentence)

    def _enforce(self, found: Iterable[Excess], now: float) -> None:
        """End who is above an enforced limit: SIGTERM, after a grace SIGKILL."""
        above = [process for each in found if each.enforced for process in each.processes]
        told = {each: since for each, since in self._told_to_end.items() if each in above}
        for process in above:
            since = told.setdefault(process, now)
            if since == now or now - since >= _GRACE_SECONDS:
                number = signal.SIGTERM if since == now else signal.SIGKILL
                if send(process, number):
                    _log.warning("%s to process %s: above its memory limit", number.name, process)
        self._told_to_end = told

    async def _look(self, limited: Iterable[Resource]) -> tuple[Excess, ...]:
        limits = {
            each.name: Limit(each.memory_limit_mib or 0, each.memory_enforced) for each in limited
        }
        gpus = {device.gpu for each in limited for device in each.devices}
        uses = [use for gpu in sorted(gpus) for use in await self._uses(gpu)]
        if not uses:
            return ()
        held = by_uuid(await self._pod_resources.holders())
        containers = containers_by_id(link.name for link in self._container_logs.iterdir())
        return excesses(uses, containers, held, limits)

    async def _uses(self, uuid: str) -> list[Use]:
        gpu = None if self._driver.snapshot is None else self._driver.snapshot.gpu(uuid)
        if gpu is None or gpu.lost:
            return []
        by_gi = {instance.gi: instance.uuid for instance in gpu.instances}
        uses = []
        for listed in await self._driver.processes(uuid):
            found = look(listed["pid"] or 0)
            if found is not None:
                process, where = found
                device = by_gi.get(listed["gi"] or 0) or uuid
                uses.append(Use(where, process, device, listed["used_mib"] or 0))
        return uses
