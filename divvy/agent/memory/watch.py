"""Look every few seconds who is above a ``memoryLimit``: say so, and end it where told to."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from time import monotonic

from divvy.agent.api_server.client import ApiServer
from divvy.agent.containers import Process, containers_by_id
from divvy.agent.gpu.hardware import Gpu
from divvy.agent.gpu.holders import by_uuid
from divvy.agent.memory.memory_limit import (
    ClaimLimits,
    Excess,
    Limit,
    Use,
    enforcement,
    excesses,
)
from divvy.agent.nvml.driver import Driver
from divvy.agent.nvml.process import DriverProblem
from divvy.agent.plugin.device_holders import DeviceHolders, HoldersUnknown
from divvy.agent.plugin.inventory import Resource
from divvy.agent.plugin.registration import DevicePlugins
from divvy.agent.processes import find_process, send
from divvy.agent.timers import next_tick
from divvy.kube.backoff import Backoff
from divvy.kube.errors import KubeError

_log = logging.getLogger(__name__)
_LOOK_SECONDS = 5.0
# About five minutes: Events of a pod that ended long ago are not read.
_TRIES = 20
_UNKNOWN = "it is not known who is above a memoryLimit"
_UNTOLD = "the driver does not tell how much memory processes use of GPU"


class MemoryWatch:
    """Watches containers with a limit; needs the host's PIDs and /var/log/containers' names.

    ``plugins`` advertise the limits, ``holders`` say whose they are; ``claimed`` tells both of
    claims, by GPU. ``terminate_client`` ends what a PID has on a GPU by MPS.
    """

    def __init__(
        self,
        driver: Driver,
        plugins: DevicePlugins,
        holders: DeviceHolders,
        api: ApiServer,
        container_logs: Path,
        claimed: Callable[[], Awaitable[Mapping[str, ClaimLimits]]],
        terminate_client: Callable[[str, int], Awaitable[None]],
    ) -> None:
        self._driver = driver
        self._plugins = plugins
        self._holders = holders
        self._api = api
        self._container_logs = container_logs
        self._claimed = claimed
        self._terminate_client = terminate_client
        self._sigterm_times: dict[Process, float] = {}
        self._reports: dict[tuple[str, str, str], asyncio.Task[None]] = {}
        self.excesses: tuple[Excess, ...] = ()
        self.problem = ""
        """Why it is not known who is above a limit, "" if it is."""

    async def run(self) -> None:
        """Look every few seconds; never returns."""
        try:
            await self._look_for_ever()
        finally:
            for report in self._reports.values():
                report.cancel()
            self.excesses = ()  # what was not reported is, when it looks again

    async def _look_for_ever(self) -> None:
        while True:
            await next_tick(_LOOK_SECONDS)
            limited = [r for r in self._plugins.advertised() if r.sharing.memory_mib is not None]
            try:
                claimed = await self._claimed()
                over, self.problem = (
                    await self._excesses(limited, claimed) if limited or claimed else ((), "")
                )
            except HoldersUnknown:
                continue  # told elsewhere; the next look is in a moment
            except OSError as error:
                self.problem = f"{_UNKNOWN}: {error}"
                continue
            known = {excess.key for excess in self.excesses}
            self.excesses = over
            await self._enforce(over, monotonic())
            for excess in over:
                if excess.key not in known:
                    self._report(excess)

    def _report(self, excess: Excess) -> None:
        """Record an Event, without delaying termination when the API server does not respond."""
        if excess.key in self._reports:
            return
        report = asyncio.create_task(self._record(excess))
        self._reports[excess.key] = report
        report.add_done_callback(lambda _: self._reports.pop(excess.key, None))

    async def _record(self, excess: Excess) -> None:
        reason = "GpuMemoryLimitEnforced" if excess.enforced else "GpuMemoryOverLimit"
        backoff = Backoff()
        for _ in range(_TRIES):
            try:
                await self._api.pod_event(excess.pod, excess.pod_uid, reason, excess.sentence)
            except KubeError as error:
                await asyncio.sleep(backoff.failed(error))
            else:
                return
        _log.warning("cannot record an Event of %s: %s", excess.pod, excess.sentence)

    async def _enforce(self, excesses: Iterable[Excess], now: float) -> None:
        """End who is above an enforced limit: SIGTERM, after a grace SIGKILL."""
        above = {
            process: excess.uuid
            for excess in excesses
            if excess.enforced
            for process in excess.processes
        }
        self._sigterm_times, due = enforcement(above, self._sigterm_times, now)
        await asyncio.gather(
            *(self._end(above[process], process, number) for process, number in due)
        )

    async def _end(self, uuid: str, process: Process, number: signal.Signals) -> None:
        # First: a client of MPS that is killed with work in flight takes the others along.
        await self._terminate_client(uuid, process.pid)
        if send(process, number):
            _log.warning("%s to process %s: above its memory limit", number.name, process)

    async def _excesses(
        self, limited: Iterable[Resource], claimed: Mapping[str, ClaimLimits]
    ) -> tuple[tuple[Excess, ...], str]:
        """Return who is above a limit, and why that is not known of all.

        A container of a GPU that does not answer now is above its limit as long as it was, and has
        no processes: nobody is ended by what is not known to be so still.
        """
        limits = {r.name: Limit(r.sharing.memory_mib or 0, r.sharing.is_enforced) for r in limited}
        # Every GPU: a device that is withdrawn, because it waits for its holder, is still held.
        gpus = () if self._driver.snapshot is None else self._driver.snapshot.gpus
        uses: list[Use] = []
        over: list[Excess] = []
        untold: list[str] = []
        for gpu in gpus:
            try:
                of_gpu, is_told = await self._uses(gpu)
            except DriverProblem:  # of this GPU: the others are watched on
                known = (excess for excess in self.excesses if excess.uuid in gpu.uuids)
                over += (replace(excess, processes=()) for excess in known)
                continue
            uses += of_gpu
            untold += [] if is_told else [str(gpu.index)]
        problem = f"{_UNKNOWN}: {_UNTOLD} {', '.join(untold)}" if untold else ""
        if not uses:
            return tuple(sorted(over)), problem
        held = by_uuid(await self._holders.holders())
        containers = containers_by_id(link.name for link in self._container_logs.iterdir())
        over += excesses(uses, containers, held, limits)
        for uuid, by_claims in claimed.items():
            mine = [use for use in uses if use.uuid == uuid]
            over += excesses(mine, containers, {uuid: by_claims.holders}, by_claims.limits)
        return tuple(sorted(over)), problem

    async def _uses(self, gpu: Gpu) -> tuple[list[Use], bool]:
        """Return what processes in containers use of a GPU, and whether the driver tells it all."""
        uses: list[Use] = []
        if not gpu.present:
            return uses, True
        by_gi = {instance.gi: instance.uuid for instance in gpu.instances}
        is_told = True
        for listed in await self._driver.processes(gpu):
            host_process = find_process(listed["pid"] or 0)
            if host_process is None:
                continue
            if (used_mib := listed["used_mib"]) is None:
                is_told = False
                continue
            process, where = host_process
            device = by_gi.get(listed["gi"] or 0) or gpu.uuid
            uses.append(Use(where, process, device, used_mib))
        return uses, is_told
