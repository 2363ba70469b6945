"""The agent: bring what is offered to what the stack file says, and tell how far it is."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from time import monotonic
from typing import Any

import grpc

from divvy.agent import last_good
from divvy.agent.allocation import Grant, granted_uuids
from divvy.agent.cluster import ClusterLink, NodeView
from divvy.agent.coexistence import programs_beside
from divvy.agent.device_files import device_files, file_resources
from divvy.agent.driver import Driver
from divvy.agent.edits import file_edits
from divvy.agent.hardware import Snapshot
from divvy.agent.health import unhealthy_devices
from divvy.agent.health_watch import HealthWatch
from divvy.agent.holders import Held, Ledger, PodResources, by_uuid, on_gpu
from divvy.agent.injection import Injection
from divvy.agent.inventory import Resource, inventory
from divvy.agent.kubelet import Kubelet
from divvy.agent.last_good import LastGood
from divvy.agent.memory_watch import MemoryWatch
from divvy.agent.partition import Recut, try_recut
from divvy.agent.partitioner import make_cap_nodes
from divvy.agent.preference import preferred
from divvy.agent.recutting import Recutting
from divvy.agent.settings import Settings
from divvy.agent.state_clock import StateClock
from divvy.agent.status import NodeStatus, gpu_states, healthy_counts
from divvy.agent.telling import Teller
from divvy.agent.turn import Decision, Facts, Turn, decide
from divvy.agent.wish import Wish, form_wish
from divvy.model import generation

_log = logging.getLogger(__name__)
_TURN_SECONDS = 0.1
_WAIT_SECONDS = 1.0
_IDLE_SECONDS = 30.0
# How long a start waits for the API's word before the last good state counts as the newest.
_HEARING_SECONDS = 10.0


class Agent:
    """One node's agent; ``run`` returns only by cancellation."""

    def __init__(self, settings: Settings, cluster: ClusterLink) -> None:
        self._settings = settings
        self._cluster = cluster
        self._memory = last_good.load(settings.state_folder)
        self._config = self._memory.config
        self._node = NodeView("", self._memory.labels, {}, self._memory.runtime)
        self._wish = Wish()
        self._ledger = Ledger()
        self._turns: dict[str, Turn] = {}
        self._wake = asyncio.Event()
        self._started = monotonic()
        self._heard: set[str] = set()
        self.pod_resources = PodResources(settings.pod_resources_socket)
        self._driver = Driver(settings.driver_root, self._memory.gpus, self._wake.set)
        self._watch = HealthWatch(self._driver, self._wake.set)
        self._driver.on_xid = self._watch.xid_arrived
        self._injection = Injection(settings)
        self._recutting = Recutting(self._driver, cluster)
        self._teller = Teller(cluster)
        self.kubelet = Kubelet(settings.plugin_folder, self, self._wake.set)
        self.memory_watch = MemoryWatch(
            self._driver, self.kubelet, self.pod_resources, cluster, settings.container_logs
        )
        self._find_files = device_files(settings.device_folder)
        self._state_clock = StateClock()
        self.status: NodeStatus | None = None

    @property
    def driver(self) -> Driver:
        """Return the driver's watcher (the metrics read through it)."""
        return self._driver

    def state_seconds(self, now: float) -> Mapping[tuple[str, str], float]:
        """Return how long each GPU has been in each state, by (UUID, state)."""
        return self._state_clock.seconds(now)

    async def run(self) -> None:
        """Do everything at once until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._cluster.watch_node(self._node_seen))
                tasks.create_task(self._cluster.watch_config(self._config_seen))
                tasks.create_task(self._driver.run())
                tasks.create_task(self.kubelet.watch())
                tasks.create_task(self._teller.run())
                tasks.create_task(self._watch.run())
                tasks.create_task(self.memory_watch.run())
                tasks.create_task(self._reconcile_for_ever())
        finally:
            await self.kubelet.stop()
            await self._driver.stop()

    def prefer(
        self, resource: Resource, available: Sequence[str], required: Sequence[str], size: int
    ) -> list[str]:
        """Choose devices for the kubelet's GetPreferredAllocation."""
        snapshot = self._driver.snapshot
        links = {} if snapshot is None else snapshot.links
        return preferred(resource, available, required, size, links, self._wish.replica_policy)

    def grant(self, resource: Resource, device_ids: Sequence[str]) -> Grant:
        """Grant an Allocate and remember it until PodResources lists it."""
        uuids = granted_uuids(resource, device_ids)
        if resource.kind == "file":
            granted = Grant((), file_edits(resource.files))
        else:
            granted = self._injection.grant(uuids)
        self._ledger.record(resource.name, device_ids, monotonic())
        return granted

    def state(self) -> dict[str, Any]:
        """Return what it knows and intends, as values, for a person who looks for a reason."""
        return {
            "status": self.status,
            "wish": self._wish,
            "memory": self._memory,
            "node": self._node,
            "heard": self._heard,
            "driver": {"problem": self._driver.problem, "snapshot": self._driver.snapshot},
            "health": self._watch.health.faults,
            "turns": self._turns,
            "failed": self._recutting.failed,
            "granted": self._ledger.grants,
            "injection": {"cdi": self._injection.by_cdi, "problem": self._injection.problem},
            "kubelet": {
                "registered": self.kubelet.registered,
                "rivals": self.kubelet.rivals,
                "resources": self.kubelet.published(),
            },
            "memoryLimit": self.memory_watch.excesses,
            "monotonic": monotonic(),
        }

    def _heard_of_api(self) -> bool:
        """Tell whether the wish is the newest there is: a stale one must not re-cut a GPU."""
        late = monotonic() - self._started > _HEARING_SECONDS
        return late or self._heard >= {"node", "configuration"}

    def _node_seen(self, node: NodeView) -> None:
        self._heard.add("node")
        if node != self._node:
            self._node = node
            self._wake.set()

    def _config_seen(self, text: str | None) -> None:
        if "configuration" not in self._heard:
            self._heard.add("configuration")
            self._wake.set()
        if text is not None and text != self._config:
            self._config = text
            self._wake.set()

    async def _reconcile_for_ever(self) -> None:
        while True:
            self._wake.clear()
            pause = await self._reconcile()
            try:
                async with asyncio.timeout(pause):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def _reconcile(self) -> float:
        """Take one step and return how long the next may wait."""
        snapshot = self._driver.snapshot
        if snapshot is None and not self._driver.problem:
            return _IDLE_SECONDS  # the first look at the driver wakes it up
        self._wish = form_wish(
            self._config, self._settings.node, self._node, snapshot, self._memory
        )
        self._watch.rules = self._wish.health
        others = await programs_beside(self.kubelet.rivals, self._node, self.pod_resources)
        if others:
            await self.kubelet.publish(())
            self._tell(snapshot, (), {}, others)
            return _IDLE_SECONDS
        no_driver = self._driver.problem or self._wish.driver_problem(snapshot)
        problem = no_driver or self._wish.problem or self._injection.problem
        if snapshot is None or no_driver:
            files = self._files()
            await self.kubelet.publish(files)
            self._tell(snapshot, files, {}, problem)
            return _IDLE_SECONDS
        held, allocatable = await self._holders()
        decisions: dict[str, Decision] = {}
        for wish in self._wish.node.gpus:
            gpu = snapshot.gpu(wish.uuid)
            if gpu is None or gpu.lost:
                decisions[wish.uuid] = Decision(self._memory.applied.get(wish.uuid, wish))
                continue
            plan = try_recut(gpu, wish.mig, held or {})
            busy = await self._recutting.busy(gpu, plan, held or {})
            applied = self._memory.applied.get(gpu.uuid)
            right = isinstance(plan, Recut) and plan.nothing
            if not right and (held is None or not self._heard_of_api()):
                # Nobody can say who holds what, or whether this is still the wish.
                silent = "the kubelet" if held is None else "the API"
                decisions[gpu.uuid] = Decision(
                    applied or wish, state="Waiting", reason=f"{silent} does not answer"
                )
                continue
            facts = Facts(wish, applied, gpu, plan, on_gpu(gpu, held or {}), busy, allocatable)
            turn = self._turns.get(gpu.uuid)
            decisions[gpu.uuid] = decide(facts, turn, self._wish.policy, monotonic())
        await self._publish(snapshot, decisions)
        recut_any = await self._recutting.execute(snapshot, self._wish.node.gpus, decisions)
        self._remember(snapshot, decisions)
        self._tell(snapshot, self.kubelet.published(), decisions, problem)
        if recut_any:
            self._wake.set()
        turning = list(self._turns.values())
        if any(not turn.blocked for turn in turning):
            waiting = all(decision.state != "Changing" for decision in decisions.values())
            return _WAIT_SECONDS if waiting else _TURN_SECONDS
        soon = turning or held is None or self._recutting.failed or not self._heard_of_api()
        return _WAIT_SECONDS if soon else _IDLE_SECONDS

    def _files(self) -> tuple[Resource, ...]:
        return file_resources(self._wish.file_devices, self._find_files)

    async def _holders(self) -> tuple[Held | None, frozenset[str]]:
        try:
            listed = await self.pod_resources.holders()
            allocatable = await self.pod_resources.allocatable()
        except grpc.RpcError:
            return None, frozenset()
        granted = self._ledger.open_grants(listed, monotonic())
        return by_uuid((*listed, *granted)), allocatable

    async def _publish(self, snapshot: Snapshot, decisions: Mapping[str, Decision]) -> None:
        offered = replace(
            self._wish.node, gpus=tuple(decision.offer for decision in decisions.values())
        )
        withheld = frozenset().union(*(decision.withheld for decision in decisions.values()))
        unhealthy = unhealthy_devices(snapshot, self._watch.health)
        for decision in decisions.values():
            self._turns.pop(decision.offer.uuid, None)
            if decision.turn is not None:
                self._turns[decision.offer.uuid] = decision.turn
        make_cap_nodes(self._settings.driver_root)
        self._injection.renew(snapshot, self._node.runtime)
        gpus = inventory(offered, snapshot, unhealthy, withheld)
        await self.kubelet.publish((*gpus, *self._files()))

    def _remember(self, snapshot: Snapshot, decisions: Mapping[str, Decision]) -> None:
        applied = dict(self._memory.applied)
        for uuid, decision in decisions.items():
            if decision.state == "Ready":
                applied[uuid] = decision.offer
        memory = LastGood(
            config=self._wish.config,
            labels=dict(self._node.labels),
            profile=self._wish.profile,
            assignment=self._wish.assignment,
            applied=applied,
            gpus=snapshot.gpus,
            runtime=self._node.runtime,
        )
        if memory != self._memory:
            last_good.save(self._settings.state_folder, memory)
            self._memory = memory

    def _tell(
        self,
        snapshot: Snapshot | None,
        resources: Sequence[Resource],
        decisions: Mapping[str, Decision],
        problem: str,
    ) -> None:
        failed = {uuid: failure.reason for uuid, failure in self._recutting.failed.items()}
        self.status = NodeStatus(
            generation=generation(self._wish.config),
            pool=self._wish.node.pool,
            profile=self._wish.profile,
            source=self._wish.node.source,
            problem=problem,
            driver="" if snapshot is None else snapshot.driver_version,
            simulated=snapshot is not None and snapshot.simulated,
            gpus=gpu_states(snapshot, decisions, failed, self._watch.health),
            resources=healthy_counts(resources),
        )
        self._state_clock.observe(self.status.gpus, monotonic())
        self._teller.tell(self._node, self.status, snapshot, resources, self._wish.strategy)
