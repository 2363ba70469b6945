"""``Claims``: offers this node's GPUs to claims, serves the kubelet, and publishes the slices."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace

import grpc
from prometheus_client import Histogram

from divvy.agent.api_server.claims_api import ClaimsApi
from divvy.agent.claims.claim_shares import claim_id
from divvy.agent.claims.claim_status import ClaimsStatus, claims_status
from divvy.agent.claims.claim_users import (
    Containers,
    claim_limits,
    claim_pods,
    named_holders,
    with_current_pods,
)
from divvy.agent.claims.claims_file import ClaimsFile
from divvy.agent.claims.device_attributes import gpu_attributes
from divvy.agent.claims.device_faults import device_faults, taints
from divvy.agent.claims.offers import missing_shares
from divvy.agent.claims.preparation import Preparation
from divvy.agent.claims.record import ClaimRecord
from divvy.agent.claims.retirement import Retirement
from divvy.agent.claims.server import ClaimServer, DeviceHealth
from divvy.agent.claims.slice_publisher import SlicePublisher
from divvy.agent.gpu.desired import DesiredState
from divvy.agent.gpu.hardware import Snapshot
from divvy.agent.gpu.holders import Holder
from divvy.agent.gpu.owner import (
    ClaimsView,
    Ownership,
    next_offered,
    released,
    retiring,
)
from divvy.agent.inject.injection import Injection
from divvy.agent.kubelet.pod_resources import PodResources
from divvy.agent.memory.memory_limit import ClaimLimits
from divvy.agent.nvml.driver import Driver
from divvy.agent.nvml.health_watch import HealthWatch
from divvy.agent.plugin.device_holders import HoldersUnknown
from divvy.agent.settings import Settings
from divvy.model.api_names import claims_pool
from divvy.model.slice_specs import slice_specs

_NEVER = object()
# A share takes milliseconds, a MIG device some hundred; what waits for another pod up to 40 s.
_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0)


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
        self._own_pod = settings.own_pod
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
        self._node_uid = ""
        self._unusable: str | None = None  # until the first look
        self._owners: Mapping[str, Ownership] = {}
        self._has_claims = False
        self._missing_shares: Mapping[str, str] = {}
        self._retirement = Retirement(
            self._api,
            self._publisher,
            self._pool,
            lambda: self.record,
            lambda: self._has_claims,
            on_change,
        )
        self._faults: Mapping[str, str] = {}
        self._listed: Containers = {}
        self._active: Collection[str] = frozenset()
        self._is_published = bool(self._store.record.offered)
        self._refreshed: object = _NEVER
        self._refresh_problem = ""
        self._save_problem = ""

    @property
    def record(self) -> ClaimRecord:
        """Return what is offered and what is held."""
        return self._store.record

    @property
    def view(self) -> ClaimsView:
        """Return what is offered and held, and which GPUs the scheduler no longer allocates."""
        return ClaimsView(
            self._store.held,
            self._retirement.unallocated,
            self._retirement.unknown,
            cdi=self._injection.by_cdi,
        )

    async def users(self) -> tuple[ClaimRecord, tuple[Holder, ...]]:
        """Return what is held, and who holds each claim, as the kubelet told last."""
        with suppress(HoldersUnknown):
            await self._look()
        containers, active = self._listed, self._active
        current = with_current_pods(self._store.held, containers, active)
        return current, named_holders(current, containers)

    async def limits(self) -> Mapping[str, ClaimLimits]:
        """Return what containers may use of each GPU by claims, by the GPU's UUID.

        Raises HoldersUnknown: who uses them is not nobody while the kubelet does not tell.
        """
        await self._look()
        return claim_limits(self.record, self._listed)

    async def _look(self) -> None:
        """Have the kubelet tell which containers have claims; raises HoldersUnknown."""
        if not self._store.held.claims:
            self._listed, self._active = {}, frozenset()
            return
        try:
            listed, active = await self._pod_resources.claim_containers()
        except grpc.RpcError as error:
            raise HoldersUnknown("the kubelet does not tell who has claims") from error
        if self._own_pod not in active:
            # Pods that come from files it lists at once.
            raise HoldersUnknown("the kubelet has no pods of the API yet, as after its start")
        self._listed, self._active = listed, active

    @property
    def share_pods(self) -> Mapping[str, tuple[Holder, ...]]:
        """Map each share's file name to the pods that use it."""
        known = claim_pods(self._store.held, self._listed)
        if not self._store.damage:
            return known
        return {**{claim_id(uid): () for uid in self._preparation.written()}, **known}

    @property
    def limiters(self) -> frozenset[str] | None:
        """Return the versions of the limiter that claims have, None if that is not known."""
        if self._store.damage:
            return None
        return frozenset(claim.limiter for claim in self.record.claims.values())

    @property
    def problem(self) -> str:
        """Return what keeps claims from being served, "" if nothing does."""
        ours = (self._save_problem, self._refresh_problem, self._preparation.problem)
        problems = (self._store.damage, *ours, self._server.problem)
        return next(filter(None, problems), "") or self._publisher.problem

    def status(self, snapshot: Snapshot | None) -> Mapping[str, ClaimsStatus]:
        """Return the state of every GPU that claims have or should have, by UUID."""
        registered = self._server.registered
        return claims_status(self.record, self._owners, snapshot, registered, self._missing_shares)

    def consider(
        self,
        desired: DesiredState,
        snapshot: Snapshot,
        owners: Mapping[str, Ownership],
        node_uid: str,
    ) -> None:
        """Offer what was decided: ``owners`` say whose each GPU is."""
        self._node_uid, self._unusable = node_uid, ""
        if desired.config is not None:
            self._has_claims = desired.has_claims
            self._missing_shares = missing_shares(desired, snapshot)
            self._offer(owners)
        self._refresh()
        self._render()

    def suspend(
        self, desired: DesiredState, reason: str, node_uid: str, *, withdraw: bool = False
    ) -> None:
        """Let nothing further be allocated: no GPU of the node can be used, or others use them.

        With ``withdraw`` the GPUs leave the slices as claims give them back. Containers that have
        some start again as long as the driver describes them.
        """
        self._node_uid, self._unusable = node_uid or self._node_uid, reason
        if desired.config is not None:
            self._has_claims = desired.has_claims
        if withdraw:
            self._offer(released(self.view))
        self._refresh()
        self._render()

    async def serve(self) -> None:
        """Serve the kubelet; never returns."""
        try:
            await self._server.run()
        finally:
            await self._server.stop()

    async def publish(self) -> None:
        """Keep the slices published; never returns."""
        await self._publisher.run()

    async def retire(self) -> None:
        """Find out which retiring GPUs have no allocation; never returns."""
        await self._retirement.run()

    def _offer(self, owners: Mapping[str, Ownership]) -> None:
        """Offer what the owners say; where nothing can be saved, all stays, tainted."""
        self._owners = owners
        try:
            self._store.save(replace(self.record, offered=next_offered(owners, self.record)))
            self._save_problem = ""
        except OSError as error:
            self._save_problem = f"the driver's state cannot be saved: {error}"
        # Without its node's UID nothing is published: no scheduler hears of a taint.
        leaving = retiring(owners, self.record) if self._node_uid else frozenset[str]()
        self._retirement.begin(leaving)

    def _refresh(self) -> None:
        """Write the CDI specifications again where they, or what they are made of, have changed.

        Also where one could not be written, or somebody has damaged it: its containers start again
        without a Prepare.
        """
        self._preparation.look_again()
        snapshot = None if self._driver.problem else self._driver.snapshot
        description = None if snapshot is None else self._injection.described_as(snapshot)
        if (description, self._preparation.files()) != self._refreshed or self._refresh_problem:
            self._refresh_problem = self._preparation.refresh()
            self._refreshed = description, self._preparation.files()

    def _prepared(self, seconds: float) -> None:
        self.prepare_seconds.labels(self._node).observe(seconds)

    def _registration_changed(self) -> None:
        self._render()
        self._on_change()  # the node's status says it

    def _record_changed(self) -> None:
        if self._unusable is not None:
            self._render()
        if self._retirement.retiring:
            self._retirement.look_soon()
            self._on_change()

    def _render(self) -> None:
        """Tell the API and the kubelet how devices are now."""
        record, snapshot, unusable = self.record, self._driver.snapshot, self._unusable
        self._server.serving = bool(record.offered or record.claims or not self._publisher.current)
        if unusable is None:
            return
        described = self._injection.described
        faults = device_faults(record, snapshot, self._health.health, described, unusable)
        if faults != self._faults:
            self._faults = faults
            self._server.tell_health()
        if not self._node_uid:
            return
        # A pod that is allocated a device before the kubelet knows the driver waits for a minute.
        self._is_published = bool(record.offered) and (
            self._is_published or self._server.registered
        )
        if self._is_published or not record.offered:
            tainted = taints(record, snapshot, faults, self._retirement.retiring)
            attributes = gpu_attributes(snapshot)
            specs = slice_specs(
                self._node,
                record.offered.values(),
                tainted,
                record.tasks(),
                record.allocated_to_shares(),
                attributes,
            )
            self._publisher.publish(specs, self._node_uid)

    def _device_health(self) -> Iterable[DeviceHealth]:
        return [
            DeviceHealth(device.name, self._faults.get(device.name, ""))
            for gpu in self.record.offered.values()
            for device in gpu.gpu.devices
        ]


def prepare_seconds() -> Histogram:
    """Return what counts how long preparations take; it starts at 0 with the agent."""
    return Histogram(
        "divvy_claims_prepare_seconds",
        "Time until a claim was prepared.",
        ["node"],
        registry=None,
        buckets=_BUCKETS,
    )
