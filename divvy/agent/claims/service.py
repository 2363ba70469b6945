"""Claims on this node: what is offered to them, what they hold, and what the API is told of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import grpc

from divvy.agent.api_server.claims import ClaimsApi
from divvy.agent.claims.checkpoint_file import ClaimsFile
from divvy.agent.claims.metrics import prepare_seconds
from divvy.agent.claims.preparation import Preparation
from divvy.agent.claims.retirement import Retirement
from divvy.agent.claims.server import ClaimServer, DeviceHealth
from divvy.agent.claims.slices import SlicePublisher
from divvy.agent.decide.claim_faults import device_faults, taints
from divvy.agent.decide.claim_holders import (
    ClaimLimits,
    Containers,
    claim_limits,
    claim_pods,
    named_holders,
)
from divvy.agent.decide.claim_offers import (
    claim_holders,
    next_offers,
    plugin_is_done,
    too_small,
    wanted_offers,
)
from divvy.agent.decide.claim_record import ClaimRecord, OfferedGpu
from divvy.agent.decide.claim_share import claim_id
from divvy.agent.decide.claim_slices import slice_specs
from divvy.agent.decide.claim_status import ClaimsStatus, claims_status
from divvy.agent.decide.desired import DesiredState
from divvy.agent.decide.hardware import Snapshot
from divvy.agent.decide.holders import Held, Holder
from divvy.agent.decide.reconciliation import KubeletView
from divvy.agent.decide.transition import Decision
from divvy.agent.inject.injection import Injection
from divvy.agent.kubelet.pod_resources import PodResources
from divvy.agent.nvml.driver import Driver
from divvy.agent.nvml.health_watch import HealthWatch
from divvy.agent.settings import Settings
from divvy.model.contract import claims_pool


class Claims:
    """The driver of claims; calls ``on_change`` where something of it waits for the agent."""

    def __init__(
        self,
        settings: Settings,
        driver: Driver,
        health: HealthWatch,
        injection: Injection,
        pod_resources: PodResources,
        on_change: Callable[[], None],
    ) -> None:
        self._node = settings.node
        self._pool = claims_pool(settings.node)
        self._driver = driver
        self._health = health
        self._injection = injection
        self._pod_resources = pod_resources
        self._on_change = on_change
        self._store = ClaimsFile(settings.state_folder, settings.cdi_folder, self._record_changed)
        self._api = ClaimsApi(settings.node, settings.watch_seconds)
        self._publisher = SlicePublisher(self._api, settings.node, on_change)
        self._preparation = Preparation(settings, self._store, self._api, driver, injection)
        self._server = ClaimServer(
            settings.claims_folder,
            settings.registry_folder,
            self._pool,
            self._preparation,
            self._device_health,
            self._registration_changed,
            self._prepared,
        )
        self.prepare_seconds = prepare_seconds()
        self._owner = ""
        self._away: str | None = None  # until the first look
        self._wanted: Mapping[str, OfferedGpu] = {}
        self._too_small: Mapping[str, str] = {}
        self._retirement = Retirement(
            self._api,
            self._publisher,
            self._pool,
            lambda: self.record,
            lambda: bool(self._wanted),
            on_change,
        )
        self._faults: Mapping[str, str] = {}
        self._begun = bool(self._store.record.offered)
        self._refreshed: object = None
        self._save_problem = ""

    @property
    def record(self) -> ClaimRecord:
        """Return what is offered and what is held."""
        return self._store.record

    @property
    def holders(self) -> Held:
        """Return who holds GPUs by claims: while anybody may, the device plugin has none of it."""
        return claim_holders(self._store.held)

    async def named_holders(self) -> tuple[Holder, ...]:
        """Return who holds each claim, with containers as far as the kubelet tells them."""
        return named_holders(self._store.held, await self._containers())

    async def limits(self) -> Mapping[str, ClaimLimits]:
        """Return what containers may use of each GPU by claims, by the GPU's UUID."""
        return claim_limits(self.record, await self._containers())

    async def _containers(self) -> Containers:
        if not self._store.held.claims:
            return {}
        try:
            return await self._pod_resources.claim_containers()
        except grpc.RpcError:
            return {}  # the kubelet is restarting

    @property
    def share_pods(self) -> Mapping[str, tuple[Holder, ...]]:
        """Return whose claims' shares are, by the names under which they have files."""
        known = claim_pods(self._store.held)
        if not self._store.damage:
            return known
        return {**{claim_id(uid): () for uid in self._preparation.written()}, **known}

    @property
    def limiters(self) -> frozenset[str] | None:
        """Return the versions of the limiter that claims have, None where that is not known."""
        if self._store.damage:
            return None
        return frozenset(claim.limiter for claim in self.record.claims.values())

    @property
    def problem(self) -> str:
        """Say what keeps claims from being served, "" where nothing does."""
        problems = (self._store.damage, self._save_problem, self._server.problem)
        return next(filter(None, problems), "") or self._publisher.problem

    def status(self, snapshot: Snapshot | None) -> Mapping[str, ClaimsStatus]:
        """Return the state of every GPU that claims have or should have, by UUID."""
        registered = self._server.registered
        return claims_status(
            self.record,
            self._wanted,
            self._retirement.retiring,
            snapshot,
            registered,
            self._too_small,
        )

    def waited_for(self, desired: DesiredState) -> bool:
        """Return whether a GPU that should be offered is not yet: the device plugin may have it."""
        offered = self.record.offered
        return any(gpu.claims and gpu.uuid not in offered for gpu in desired.node.gpus)

    def consider(
        self,
        desired: DesiredState,
        snapshot: Snapshot,
        kubelet: KubeletView | str,
        decided: Mapping[str, Decision],
        owner: str,
    ) -> None:
        """Offer what is desired now, as far as nobody has what it would replace."""
        self._owner, self._away = owner, ""
        if desired.config is not None:
            self._wanted = wanted_offers(desired, snapshot, self.record.offered)
            self._too_small = too_small(desired, snapshot)
            done = plugin_is_done(desired, snapshot, kubelet, decided)
            self._offer(add=done and self._injection.by_cdi)
        self._refresh(snapshot)
        self._render()

    def suspend(self, reason: str, owner: str, *, withdraw: bool = False) -> None:
        """Let nothing further be allocated: no GPU of the node can be used, or others use them.

        With ``withdraw`` the GPUs leave the slices as claims give them back.
        """
        self._owner, self._away = owner or self._owner, reason
        if withdraw:
            self._wanted = {}
            self._offer(add=False)
        self._render()

    async def serve(self) -> None:
        """Serve the kubelet, for ever."""
        try:
            await self._server.run()
        finally:
            await self._server.stop()

    async def publish(self) -> None:
        """Keep the slices, for ever."""
        await self._publisher.run()

    async def retire(self) -> None:
        """Find out which GPUs whose profile has changed nobody was allocated, for ever."""
        await self._retirement.run()

    def _offer(self, *, add: bool) -> None:
        record = self.record
        offers = next_offers(record.offered, self._wanted, self._retirement.free, add)
        try:
            self._store.save(replace(record, offered=offers.offered))
            self._save_problem = ""
        except OSError as error:
            self._save_problem = f"the driver's state cannot be saved: {error}"
            # What is offered stays as it is, and so do the taints.
            offers = next_offers(record.offered, self._wanted, (), add=False)
        self._retirement.begin(offers.retiring & self.record.offered.keys())

    def _refresh(self, snapshot: Snapshot) -> None:
        """Write the CDI specifications again where what they are made of has changed."""
        made_of = self._injection.described_as(snapshot)
        if made_of != self._refreshed:
            self._refreshed = made_of
            self._preparation.refresh()

    def _prepared(self, seconds: float) -> None:
        self.prepare_seconds.labels(self._node).observe(seconds)

    def _registration_changed(self) -> None:
        self._render()
        self._on_change()  # the node's status says it

    def _record_changed(self) -> None:
        if self._away is not None:
            self._render()
        if self._retirement.retiring:
            self._retirement.look_soon()
            self._on_change()

    def _render(self) -> None:
        """Tell the API and the kubelet how devices are now."""
        record, snapshot, away = self.record, self._driver.snapshot, self._away
        self._server.serving = bool(record.offered or record.claims or not self._publisher.current)
        if away is None or not self._owner:
            return
        described = self._injection.described
        faults = device_faults(record, snapshot, self._health.health, described, away)
        if faults != self._faults:
            self._faults = faults
            self._server.tell_health()
        # A pod that is allocated a device before the kubelet knows the driver waits for a minute.
        self._begun = bool(record.offered) and (self._begun or self._server.registered)
        if self._begun or not record.offered:
            tainted = taints(record, snapshot, faults, self._retirement.retiring)
            specs = slice_specs(self._node, record.offered.values(), tainted, record.tasks())
            self._publisher.publish(specs, self._owner)

    def _device_health(self) -> Iterable[DeviceHealth]:
        return [
            DeviceHealth(device.name, self._faults.get(device.name, ""))
            for gpu in self.record.offered.values()
            for device in gpu.gpu.devices
        ]
