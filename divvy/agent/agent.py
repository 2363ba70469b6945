"""The agent: bring what is advertised to what the stack file says, and report how far it is."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from time import monotonic
from typing import Any

from divvy.agent.api_server.client import ApiServer
from divvy.agent.api_server.node_status import NodeStatusWriter
from divvy.agent.checkpoint_file import CheckpointFile
from divvy.agent.claims.service import Claims
from divvy.agent.debouncer import Debouncer
from divvy.agent.decision_record import DecisionRecord
from divvy.agent.gpu.coexistence import feature_discovery_beside, others_at_work
from divvy.agent.gpu.desired import DesiredState, desired_state
from divvy.agent.gpu.hardware import Snapshot
from divvy.agent.gpu.health import restored
from divvy.agent.gpu.node import NodeView
from divvy.agent.gpu.reconcile_interval import IDLE_SECONDS, pause
from divvy.agent.gpu.reconciliation import Observation
from divvy.agent.gpu.status import NodeStatus, gpu_states, healthy_counts
from divvy.agent.kubelet.pod_resources import PodResources
from divvy.agent.memory.shares import ShareAccounts
from divvy.agent.memory.watch import MemoryWatch
from divvy.agent.mps.service import Mps
from divvy.agent.nvml.driver import Driver, boot_id
from divvy.agent.nvml.health_watch import HealthWatch
from divvy.agent.observe import Observer
from divvy.agent.plugin.advertise import Advertiser
from divvy.agent.plugin.device_holders import DeviceHolders
from divvy.agent.reconfigure import Reconfigurer
from divvy.agent.settings import Settings
from divvy.agent.state_clock import StateClock
from divvy.agent.supervised_tasks import Loops
from divvy.model import generation
from divvy.model.api_names import CONFORMANCE_SUCCESS, VERIFY_ANNOTATION

_log = logging.getLogger(__name__)
_RESEND_SECONDS = 5.0
_ALL_WRITTEN_SECONDS = 60.0
# Without a reconciliation for so long, something in the agent hangs.
_HANGING_SECONDS = 120.0
# A rollout of rights takes seconds; what is refused for longer is a fault.
_REFUSED_SECONDS = 60.0
# The image's build writes it: a digest of the sources, absent outside an image.
_BUILT_FROM = Path(__file__).with_name("BUILT_FROM")
_SHORT_BUILD = 12


class Agent:
    """One node's agent; ``run`` returns only by cancellation."""

    def __init__(self, settings: Settings, api: ApiServer) -> None:
        self._settings = settings
        self._api = api
        self._debouncer = Debouncer()
        self._boot = boot_id(settings.driver_root)
        self._problems: dict[str, str] = {}
        checkpoint_file = CheckpointFile(settings.state_folder)
        self._record = DecisionRecord(checkpoint_file, self._boot, self._problems)
        saved = checkpoint_file.saved
        self._config = saved.config
        self._node = NodeView("", saved.labels, {}, saved.runtime)
        self._desired = DesiredState()
        self._loops = Loops(self._debouncer.trigger)
        self._resent = 0.0
        self._kubelet_unknown = False
        self._began = self._reconciled = monotonic()
        health = restored(saved.faults, saved.last_seen, self._boot)
        self._health = HealthWatch(health, self._on_health)
        self._health_changed = asyncio.Event()
        self._advertising = asyncio.Lock()
        self.driver = Driver(
            settings.driver_root,
            saved.gpus,
            on_change=self._debouncer.trigger,
            on_xid=self._health.on_xid,
            on_scan=self._health.on_scan,
        )
        pod_resources = PodResources(settings.pod_resources_socket)
        self.holders = DeviceHolders(
            pod_resources,
            settings.plugin_folder,
            settings.own_pod,
            saved.remembered(self._boot),
        )
        self.mps = Mps(
            settings.driver_root,
            settings.state_folder,
            settings.mps_folder,
            self.driver,
            self._on_health,
        )
        self._advertiser = Advertiser(
            settings, self.driver, self._health, self.holders, self.mps, self._debouncer.trigger
        )
        self.plugins = self._advertiser.plugins
        self._reconfigurer = Reconfigurer(self.driver, api, self._debouncer.trigger)
        self.claims = Claims(
            settings,
            self.driver,
            self._health,
            self._advertiser.injection,
            pod_resources,
            self._debouncer.trigger,
        )
        self._observer = Observer(
            api,
            self.driver,
            self.plugins,
            self.holders,
            self._reconfigurer,
            lambda: self.claims.view,
            lambda: self.mps.gpus,
            self.mps.servers,
        )
        self._status_writer = NodeStatusWriter(api)
        self._state_clock = StateClock()
        self.container_logs = settings.container_logs
        self.memory_watch = MemoryWatch(
            self.driver,
            self.plugins,
            self.holders,
            api,
            settings.container_logs,
            self.claims.limits,
            self.mps.terminate,
        )
        self.share_accounts = ShareAccounts(
            self.driver,
            self.holders,
            self._advertiser.injection.share_folder,
            settings.container_logs,
            lambda: self.claims.share_pods,
        )
        self._build = _BUILT_FROM.read_text()[:_SHORT_BUILD] if _BUILT_FROM.exists() else ""
        self.status: NodeStatus | None = None

    @property
    def conformance_success(self) -> float | None:
        """Return when `divvy verify` last found nothing wrong here, as it noted on the node."""
        noted = self._node.annotations.get(CONFORMANCE_SUCCESS, "")
        return float(noted) if noted.isdecimal() else None

    def state_seconds(self, now: float) -> Mapping[tuple[str, str], float]:
        """Return how long each GPU has been in each state, by (UUID, state)."""
        return self._state_clock.seconds(now)

    def hanging(self) -> str:
        """Return a message if reconciliation does not go on, else ""."""
        seconds = monotonic() - self._reconciled
        return (
            f"reconciliation has been stuck for {seconds:.0f} s"
            if seconds > _HANGING_SECONDS
            else ""
        )

    def refused(self) -> str:
        """Return what the API server refuses for longer than a rollout of rights takes, else ""."""
        return self._api.refused(_REFUSED_SECONDS)

    def state(self) -> dict[str, Any]:
        """Return what it knows and intends, as values, for a person who looks for a reason."""
        injection = self._advertiser.injection
        return {
            "status": self.status,
            "desired": self._desired,
            "checkpoint": self._record.checkpoint,
            "node": self._node,
            "apiInTouch": self._api.in_touch,
            "driver": {"problem": self.driver.problem, "snapshot": self.driver.snapshot},
            "health": self._health.health.faults,
            "owners": {uuid: owner.line for uuid, owner in self._record.owners.items()},
            "decisions": self._record.decisions,
            "applying": self._reconfigurer.applying,
            "failures": self._reconfigurer.failures,
            "allocated": self.holders.ledger.allocations,
            "injection": {"cdi": injection.by_cdi, "problem": injection.problem},
            "kubelet": {
                "registered": self.plugins.registered,
                "current": self.plugins.current,
                "rivals": self.plugins.rivals,
                "resources": self.plugins.advertised(),
            },
            "memoryLimit": self.memory_watch.excesses,
            "mps": self.mps.figures,
            "claims": self.claims.record,
            "problems": self._problems,
            "loops": self._loops.problems,
            "monotonic": monotonic(),
        }

    async def run(self) -> None:
        """Do everything at once until cancelled."""
        loops: dict[str, Callable[[], Awaitable[None]]] = {
            "the watch of the node": lambda: self._api.watch_node(self._on_node),
            "the watch of the configuration": lambda: self._api.watch_config(self._on_config),
            "the driver's watch": self.driver.run,
            "registration": self.plugins.watch,
            "the node's status": self._status_writer.write,
            "the node's Events": self._status_writer.record,
            "the memory watch": self.memory_watch.run,
            "the accounts of shares": self.share_accounts.run,
            "the installation": self._advertiser.keep_installed,
            "the driver of claims": self.claims.serve,
            "the slices": self.claims.publish,
            "the retirement of claimed GPUs": self.claims.retire,
            "the MPS daemons": self.mps.run,
            "reconciliation": self._reconcile_for_ever,
            "the health of devices": self._advertise_health,
        }
        try:
            async with asyncio.TaskGroup() as tasks:
                for name, loop in loops.items():
                    tasks.create_task(self._loops.keep_up(name, loop))
        finally:
            await self._reconfigurer.stop()
            await self.plugins.stop()
            await self.mps.stop()
            await self.driver.stop()

    def _on_node(self, node: NodeView) -> None:
        beside = feature_discovery_beside(node.labels)
        if beside and beside != feature_discovery_beside(self._node.labels):
            _log.warning("%s", beside)
        self._node = node
        self._debouncer.trigger()

    def _on_config(self, text: str | None) -> None:
        if text is not None:
            self._config = text
        self._debouncer.trigger(immediate=True)

    async def _reconcile_for_ever(self) -> None:
        await self._advertiser.tried()
        if self._loops.problems:
            # It may be this loop's own: the same error would keep it from being told again.
            self._report(self.driver.snapshot)
        while True:
            self._debouncer.clear()
            longest = await self._reconcile()
            self._reconciled = monotonic()
            self._loops.is_well("reconciliation")
            await self._debouncer.wait(longest)

    async def _reconcile(self) -> float:
        """Observe, decide, advertise, apply, report; return how long the next may wait."""
        snapshot = self.driver.snapshot
        self._desire(snapshot)
        if snapshot is None and not self.driver.problem:
            return IDLE_SECONDS  # the first look at the driver wakes it up
        if others := others_at_work(self.plugins.rivals, self._node.annotations):
            await self._advertiser.withdraw(
                None if self.driver.problem else snapshot, self._node.runtime, self._problems
            )
            self.claims.suspend(self._desired, others, self._node.uid, withdraw=True)
            self._report(snapshot, others)
            return IDLE_SECONDS
        no_driver = self.driver.problem or self._desired.driver_problem(snapshot)
        if snapshot is None or no_driver:
            self._advertiser.describe(
                None if self.driver.problem else snapshot, self._node.runtime, self._problems
            )
            await self._advertise(None)
            self.claims.suspend(self._desired, no_driver, self._node.uid)
            self._report(snapshot, no_driver)
            return IDLE_SECONDS
        observed = await self._observer.observe(self._desired, snapshot, self._node)
        self._kubelet_unknown = isinstance(observed.kubelet, str)
        now = monotonic()
        if self._decide(observed, now):
            self._forget_replaced()
        self._want_daemons(observed)
        await self._advertise(snapshot)
        self.claims.consider(self._desired, snapshot, self._record.owners, self._node.uid)
        self._reconfigurer.execute(snapshot, self._record.decisions)
        self._report(snapshot)
        self._refresh_holders(observed, now)
        self._remove_limiters()
        return pause(
            self._record.decisions.values(),
            observed,
            monotonic() - self.plugins.listed,
            applying=bool(self._reconfigurer.applying),
            well=not self._problems and not self._loops.problems and not self.claims.problem,
        )

    def _desire(self, snapshot: Snapshot | None) -> None:
        injection, runtime = self._advertiser.injection, self._node.runtime
        capabilities = (
            None if snapshot is None else injection.capabilities(snapshot.driver_version, runtime)
        )
        self._desired = desired_state(
            self._config,
            self._settings.node,
            self._node,
            snapshot,
            self._record.checkpoint,
            self._boot,
            capabilities,
        )
        self._health.rules = self._desired.health
        self.driver.scan_seconds = self._health.scan_seconds

    def _decide(self, observed: Observation, now: float) -> bool:
        return self._record.decide(
            self._desired,
            observed,
            self._node,
            self._health.health,
            self.holders.remembered,
            now,
        )

    def _want_daemons(self, observed: Observation) -> None:
        if self._desired.config is None:
            return  # nothing is known of what should be: clients keep their daemons
        held = None if isinstance(observed.kubelet, str) else observed.kubelet.held
        self.mps.consider(self._record.decisions, observed.snapshot, held)

    def _forget_replaced(self) -> None:
        """Forget GPUs once it is saved which others have their indices."""
        if self._desired.replaced:
            _log.warning("replaced GPUs are forgotten: %s", ", ".join(self._desired.replaced))
            self.driver.forget(self._desired.replaced)

    def _on_health(self) -> None:
        self._health_changed.set()
        self._debouncer.trigger()

    async def _advertise_health(self) -> None:
        """Advertise another health at once: a look at the kubelet may take its time."""
        while True:
            await self._health_changed.wait()
            self._health_changed.clear()
            self._record.save_health(self._health.health)
            if self._record.decisions and self.driver.snapshot is not None:
                await self._advertise(self.driver.snapshot)

    def _asks_kubelet(self) -> bool:
        """Return whether a list must go to the kubelet, even an empty one.

        It writes its checkpoint when one arrives: GPUs wait for that on their way to claims, and
        back where this agent does not know yet who holds what.
        """
        unknown = self._kubelet_unknown and not any(g.claims for g in self._desired.node.gpus)
        return unknown or any(owner.asks_kubelet for owner in self._record.owners.values())

    async def _advertise(self, snapshot: Snapshot | None) -> None:
        async with self._advertising:
            # In here: what was decided last is what is advertised last.
            gpus = [decision.advertise for decision in self._record.decisions.values()]
            await self._advertiser.advertise(
                self._desired,
                gpus,
                snapshot,
                self._node.runtime,
                self._problems,
                ask_kubelet=self._asks_kubelet(),
            )

    def _report(self, snapshot: Snapshot | None, unusable: str = "") -> None:
        """Report the state of the node; ``unusable`` is why no GPU of it is advertised."""
        if unusable:
            self._record.forget()
        problems = (
            unusable,
            self._desired.problem,
            *(() if snapshot is None else snapshot.unreadable),
            self._advertiser.injection.problem,
            self.plugins.problem,
            self.claims.problem,
            self._record.problem,
            self.memory_watch.problem,
            *self._problems.values(),
            *self._loops.problems,
        )
        resources = self.plugins.advertised()
        self.status = NodeStatus(
            generation=generation(self._desired.config),
            pool=self._desired.node.pool,
            profile=self._desired.profile,
            source=self._desired.node.source,
            problem="; ".join(filter(None, problems)),
            driver="" if snapshot is None else snapshot.driver_version,
            simulated=snapshot is not None and snapshot.simulated,
            gpus=gpu_states(
                snapshot,
                self._record.decisions,
                self._health.health,
                self.claims.status(snapshot),
                self.holders.forgotten,
                self.mps.problem,
                self.mps.full,
            ),
            resources=healthy_counts(resources),
            build=self._build,
            echo=self._node.annotations.get(VERIFY_ANNOTATION, ""),
        )
        self._state_clock.observe(self.status.gpus, monotonic())
        self._status_writer.update(
            self._node, self.status, snapshot, resources, self._desired.strategy
        )

    def _remove_limiters(self) -> None:
        """Remove limiters that are in no container's hands; all are known a while after a start.

        What the agent before this one answered last, the kubelet has written down by then.
        """
        injection = self._advertiser.injection
        written = monotonic() - self._began > _ALL_WRITTEN_SECONDS
        if self._kubelet_unknown or not written or not injection.earlier_limiters:
            return
        plugin, claims = self.holders.limiters(), self.claims.limiters
        if plugin is not None and claims is not None:
            injection.remove_limiters(plugin | claims)

    def _refresh_holders(self, observed: Observation, now: float) -> None:
        """Let the kubelet write its checkpoint now and then, where a change waits for it."""
        unknown = isinstance(observed.kubelet, str)
        waiting = unknown or any(
            decision.in_the_way for decision in self._record.decisions.values()
        )
        if waiting and now - self._resent > _RESEND_SECONDS:
            # It writes when a list arrives: without pods that have ended, whole where it was not.
            self._resent = now
            self.plugins.resend()
