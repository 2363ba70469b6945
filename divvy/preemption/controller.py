"""The loop of the controller: does for pods that wait what has been decided."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from typing import Any

from divvy.kube.errors import ApiError, KubeError
from divvy.model import InvalidCluster, NewerSchema
from divvy.plan.live_claims import UnreadableClaims
from divvy.plan.preemption import Decision, PodName, decide, is_refused
from divvy.preemption.client import Api

_log = logging.getLogger(__name__)
# A pod that the scheduler has refused twice in this time is not about to be scheduled, and a
# scheduler that preempts for claims itself has begun to.
_LOOK_SECONDS = 2.0
_MAX_PAUSE_SECONDS = 30.0
_HANGING_SECONDS = 120.0
# What was read is too old for more decisions.
_DECIDING_SECONDS = 30.0


class Controller:
    """Evicts pods of a lower priority for pods that wait for claims."""

    def __init__(self, api: Api, look_seconds: float = _LOOK_SECONDS) -> None:
        self._api = api
        self._look_seconds = look_seconds
        self._alive = time.monotonic()
        self._refused: frozenset[str] = frozenset()
        self._next, self._pause = 0.0, look_seconds
        self._reported: Mapping[str, str] = {}

    @property
    def hanging(self) -> bool:
        """Return whether the loop has not come around for long."""
        return time.monotonic() - self._alive > _HANGING_SECONDS

    async def run(self) -> None:
        """Work forever."""
        reported = ""
        while True:
            self._alive = time.monotonic()
            try:
                await self.look()
                reported = ""
            except (KubeError, InvalidCluster, NewerSchema, UnreadableClaims, KeyError) as error:
                if str(error) != reported:
                    reported = str(error)
                    _log.warning("no pod can be preempted now: %s", reported)
            await asyncio.sleep(self._look_seconds)

    async def look(self) -> None:
        """Decide for the pods that were refused at the look before already.

        While the same pods wait and no pod can go for them, the cluster is read less often.
        """
        refused = frozenset(_uid(pod) for pod in await self._api.waiting() if is_refused(pod))
        before, self._refused = self._refused, refused
        if refused != before:
            self._next, self._pause = 0.0, self._look_seconds
        due = refused & before
        if not due or time.monotonic() < self._next:
            return
        observed, cluster = await self._api.observed(), await self._api.cluster()
        # Pages are served meanwhile.
        decisions = await asyncio.to_thread(decide, cluster, observed, _DECIDING_SECONDS)
        self._report(decisions)
        for decision in decisions:
            if decision.victims and decision.pod.uid in due:
                try:
                    await self._preempt(decision)
                except ApiError as refusal:
                    _log.warning("%s: no pod is preempted: %s", decision.pod, refusal)
                else:
                    self._pause = self._look_seconds
        self._next = time.monotonic() + self._pause
        self._pause = min(2 * self._pause, _MAX_PAUSE_SECONDS)

    def _report(self, decisions: tuple[Decision, ...]) -> None:
        reasons = {decision.pod.uid: decision.reason for decision in decisions}
        for decision in decisions:
            if decision.reason and self._reported.get(decision.pod.uid) != decision.reason:
                _log.info("%s: no pod is preempted: %s", decision.pod, decision.reason)
        self._reported = reasons

    async def _preempt(self, decision: Decision) -> None:
        """Evict all victims, or none if one may not be evicted or the pod no longer waits."""
        pod, node, priority = decision.pod, decision.node, decision.priority
        if pod.uid not in {
            _uid(waiting_pod)
            for waiting_pod in await self._api.waiting()
            if is_refused(waiting_pod)
        }:
            return
        for victim in decision.victims:
            await self._api.evict(victim, dry_run=True)
        for victim in decision.victims:
            await self._api.evict(victim, dry_run=False)
            # By its UID alone, as the scheduler has it: the pod may be another tenant's.
            message = (
                f"Preempted by pod {pod.uid} of priority {priority} on node {node}, to free what "
                "its claims need"
            )
            await self._event(victim, "Preempted", message)
        number = len(decision.victims)
        message = (
            f"{number} pod{'' if number == 1 else 's'} of a lower priority on node {node} "
            f"{'was' if number == 1 else 'were'} evicted to free what its claims need"
        )
        await self._event(pod, "Preempting", message)
        _log.info("%s: evicted %s", pod, ", ".join(map(str, decision.victims)))

    async def _event(self, pod: PodName, reason: str, message: str) -> None:
        """Record an Event; a namespace that is being deleted takes none."""
        try:
            await self._api.event(pod, "Normal", reason, message)
        except ApiError as refusal:
            _log.info("%s: no Event: %s", pod, refusal)


def _uid(pod: Mapping[str, Any]) -> str:
    return str(pod["metadata"]["uid"])
