"""Carry out what was decided about GPUs: evict who is in the way, re-cut, remember failures."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import monotonic

from divvy.agent.cluster import ClusterLink
from divvy.agent.driver import Driver
from divvy.agent.hardware import Gpu, Snapshot
from divvy.agent.holders import Holder
from divvy.agent.nvml.process import DriverProblem
from divvy.agent.partition import CannotPartition, Recut, recut
from divvy.agent.partitioner import execute
from divvy.agent.turn import Decision
from divvy.model import DesiredGpu

_log = logging.getLogger(__name__)
_RETRY_SECONDS = 10.0


@dataclass(frozen=True)
class Failure:
    """A re-cut that the driver refused: which, why and when."""

    plan: Recut
    reason: str
    when: float

    def recent(self, now: float) -> bool:
        """Tell whether it is too early to try the same again."""
        return now - self.when < _RETRY_SECONDS


class Recutting:
    """Knows which GPUs failed to be re-cut (UUID → failure)."""

    def __init__(self, driver: Driver, cluster: ClusterLink) -> None:
        self._driver = driver
        self._cluster = cluster
        self.failed: dict[str, Failure] = {}

    async def busy(
        self, gpu: Gpu, plan: Recut | CannotPartition, held: Mapping[str, tuple[Holder, ...]]
    ) -> frozenset[str]:
        """Return UUIDs to be re-cut that have processes although no pod holds them."""
        if isinstance(plan, CannotPartition) or not plan.idle:
            return frozenset()
        try:
            processes = await self._driver.processes(gpu.uuid)
        except DriverProblem:
            return frozenset()
        by_gi = {instance.gi: instance.uuid for instance in gpu.instances}
        used = {by_gi.get(process["gi"] or 0) or gpu.uuid for process in processes}
        return frozenset(uuid for uuid in used if uuid not in held)

    async def execute(
        self, snapshot: Snapshot, wishes: Sequence[DesiredGpu], decisions: Mapping[str, Decision]
    ) -> bool:
        """Carry out what was decided; True where anything may have changed."""
        done = False
        for uuid, decision in decisions.items():
            for pod in decision.evict:
                refusal = await self._cluster.evict(pod)
                _log.info("evicting %s: %s", pod, refusal or "accepted")
            gpu = snapshot.gpu(uuid)
            wish = next(wish for wish in wishes if wish.uuid == uuid)
            if not decision.recut or gpu is None:
                continue
            plan = recut(gpu, wish.mig)
            failure = self.failed.get(uuid)
            if failure is not None and failure.plan == plan and failure.recent(monotonic()):
                continue
            try:
                await execute(self._driver, gpu, plan)
                self.failed.pop(uuid, None)
            except DriverProblem as problem:
                _log.error("GPU %s: %s", gpu.index, problem)
                self.failed[uuid] = Failure(plan, str(problem), monotonic())
            done = True
        if done:
            try:
                await self._driver.rescan()
            except DriverProblem as problem:
                _log.error("rescan failed: %s", problem)
        return done
