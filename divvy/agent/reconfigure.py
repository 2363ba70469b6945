"""Carry out what was decided about GPUs, each in a task of its own: nothing else waits for it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from time import monotonic

from divvy.agent.api_server.client import ApiServer
from divvy.agent.gpu.hardware import Gpu, Snapshot
from divvy.agent.gpu.mig_plan import MigPlan
from divvy.agent.gpu.transition import Decision, Failure
from divvy.agent.nvml.driver import Driver
from divvy.agent.nvml.mig_apply import apply_plan
from divvy.agent.nvml.process import DriverProblem

_log = logging.getLogger(__name__)
_EVICTION_SECONDS = 10.0
# How long what has changed of one GPU may wait for the plans of others: a look shows them all.
_TOGETHER_SECONDS = 0.2


class Reconfigurer:
    """Applies plans and evicts pods in the background; calls ``on_end`` after each plan.

    ``failures`` are the last refusals of the driver, by GPU.
    """

    def __init__(self, driver: Driver, api: ApiServer, on_end: Callable[[], None]) -> None:
        self._driver = driver
        self._api = api
        self._on_end = on_end
        self._applying: dict[str, asyncio.Task[None]] = {}
        self._evicting: dict[str, asyncio.Task[None]] = {}
        self._at_work: set[str] = set()
        self._all_ended = asyncio.Event()
        self.failures: dict[str, Failure] = {}

    @property
    def applying(self) -> frozenset[str]:
        """Return the GPUs whose plan is being executed."""
        return frozenset(self._applying)

    def execute(self, snapshot: Snapshot, decided: Mapping[str, Decision]) -> None:
        """Begin what was decided; returns at once."""
        for uuid, decision in decided.items():
            for pod, pod_uid in decision.evict:
                if pod_uid not in self._evicting:
                    self._evicting[pod_uid] = asyncio.create_task(self._evict(pod, pod_uid))
            gpu = snapshot.gpu(uuid)
            if decision.apply is not None and gpu is not None and uuid not in self._applying:
                self._at_work.add(uuid)
                self._all_ended.clear()
                task = asyncio.create_task(self._apply(gpu, decision.apply))
                self._applying[uuid] = task

    async def stop(self) -> None:
        """Give up what is under way: the next agent goes on from what it finds."""
        tasks = [*self._applying.values(), *self._evicting.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _apply(self, gpu: Gpu, plan: MigPlan) -> None:
        try:
            await apply_plan(self._driver, gpu, plan)
            self.failures.pop(gpu.uuid, None)
        except DriverProblem as problem:
            _log.error("GPU %s: %s", gpu.index, problem)
            self.failures[gpu.uuid] = Failure(plan, str(problem), monotonic())
        except Exception as error:
            _log.exception("GPU %s: repartitioning failed", gpu.index)
            reason = f"{type(error).__name__}: {error}"
            self.failures[gpu.uuid] = Failure(plan, reason, monotonic())
        await self._ended(gpu.uuid)
        try:
            await self._driver.rescan()
        except DriverProblem as problem:
            _log.error("rescan failed: %s", problem)
        finally:
            self._applying.pop(gpu.uuid, None)
            self._on_end()

    async def _ended(self, uuid: str) -> None:
        """Wait a moment until the plans of the other GPUs have ended too."""
        self._at_work.discard(uuid)
        if not self._at_work:
            self._all_ended.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_TOGETHER_SECONDS):
                await self._all_ended.wait()

    async def _evict(self, pod: str, uid: str) -> None:
        try:
            refusal = await self._api.evict(pod, uid)
            _log.info("evicting %s: %s", pod, refusal or "accepted")
            await asyncio.sleep(_EVICTION_SECONDS)
        finally:
            self._evicting.pop(uid, None)
