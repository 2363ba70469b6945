"""``Advertiser``: the devices that the node advertises, and its answers about them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, MutableMapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

from divvy.agent.gpu.desired import DesiredState
from divvy.agent.gpu.device_id import is_client, physical
from divvy.agent.gpu.hardware import Snapshot
from divvy.agent.gpu.health import unhealthy_devices
from divvy.agent.gpu.holders import Holder
from divvy.agent.inject.container_edits import LIMITS, ContainerEdits, file_edits, together
from divvy.agent.inject.device_files import device_files, file_resources
from divvy.agent.inject.injection import Injection
from divvy.agent.inject.problem import InjectionProblem
from divvy.agent.mps.answers import NoAnswer
from divvy.agent.mps.client import PIPES, client_edits
from divvy.agent.mps.desired_daemons import share_of
from divvy.agent.mps.service import Mps
from divvy.agent.mps.supervision import Share
from divvy.agent.nvml.cap_nodes import make_cap_nodes
from divvy.agent.nvml.driver import Driver
from divvy.agent.nvml.health_watch import HealthWatch
from divvy.agent.plugin.allocation import (
    ContainerAllocation,
    Refused,
    allocated_uuids,
    device_shares,
)
from divvy.agent.plugin.container_start import (
    OF_MPS,
    OF_THE_DRIVERS_LIMIT,
    OF_THE_LIMITER,
    containers_with,
    require_no_other_gpu,
)
from divvy.agent.plugin.device_holders import DeviceHolders, HoldersUnknown
from divvy.agent.plugin.inventory import (
    AdvertisedGpu,
    Resource,
    inventory,
    limited_gpus,
    no_gpus,
    undescribed,
    with_clients,
    without_driver_limits,
    without_limiter,
    without_mps,
    without_open_memory,
)
from divvy.agent.plugin.preferred_allocation import preferred_allocation
from divvy.agent.plugin.registration import DevicePlugins
from divvy.agent.settings import Settings
from divvy.agent.timers import next_tick

_INSTALL_SECONDS = 5.0
# So soon after an Allocate the kubelet shows who has the device, as a rule.
_LISTING_SECONDS = 1.0


class Advertiser:
    """Keeps CDI specification and device lists up to date, and answers the kubelet about them."""

    def __init__(
        self,
        settings: Settings,
        driver: Driver,
        health: HealthWatch,
        holders: DeviceHolders,
        mps: Mps,
        on_change: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._driver = driver
        self._health = health
        self._holders = holders
        self._mps = mps
        self._find_files = device_files(settings.device_folder)
        self._desired = DesiredState()
        self._on_change = on_change
        self._tried = asyncio.Event()
        self._look: asyncio.TimerHandle | None = None
        self.injection = Injection(settings)
        # Mounted where a profile has claims.
        registry = settings.registry_folder if settings.registry_folder.is_dir() else None
        self.plugins = DevicePlugins(settings.plugin_folder, self, on_change, registry)

    async def keep_installed(self) -> None:
        """Install what containers need of the image; what fails is retried; never returns.

        In a thread: a program that hangs when it is tried holds up no health report.
        """
        while True:
            if not self.injection.installed:
                changed = await asyncio.to_thread(self.injection.install)
                self._tried.set()
                if changed:
                    self._on_change()
            await next_tick(_INSTALL_SECONDS)

    async def tried(self) -> None:
        """Wait until it is known what containers can be given: before that, nothing is listed."""
        await self._tried.wait()

    async def advertise(
        self,
        desired: DesiredState,
        gpus: Iterable[AdvertisedGpu],
        snapshot: Snapshot | None,
        runtime: str,
        problems: MutableMapping[str, str],
        *,
        ask_kubelet: bool = False,
    ) -> None:
        """Advertise these layouts of GPUs, and the device files that the stack file names.

        Without a ``snapshot`` only the files. What does not work goes into ``problems``. With
        ``ask_kubelet`` it is sent an empty list at least: it is then that it shows what earlier
        lists have led to.
        """
        self._desired = desired
        files = self._files(problems)
        if snapshot is None:
            await self.plugins.advertise(files)
            return
        self.describe(snapshot, runtime, problems)
        unhealthy = unhealthy_devices(snapshot, self._health.health)
        for uuid in undescribed(snapshot, self.injection.described):
            unhealthy.setdefault(uuid, "it is not described in the CDI specification")
        by_node = not self.injection.by_cdi
        resources = tuple(
            replace(resource, by_node=by_node) for resource in inventory(gpus, snapshot, unhealthy)
        )
        problems.pop("limiter", None)
        if any(resource.sharing.by_limiter for resource in resources):
            limiter = self.injection.limiter_problem or self.injection.share_folder.mount()
            if limiter:
                problems["limiter"] = limiter
                resources = tuple(without_limiter(resources, limiter))
        problems.pop("driver limits", None)
        if any(resource.sharing.by_driver for resource in resources):
            limits = (
                desired.driver_limits_problem
                or self.injection.driver_limits_problem
                or self.injection.share_folder.mount()
            )
            if limits:
                problems["driver limits"] = f"enforcement: driver: {limits}"
                resources = tuple(without_driver_limits(resources, limits))
        open_memory = {gpu.uuid: gpu.memory_problem for gpu in snapshot.gpus if gpu.memory_problem}
        limited = limited_gpus(resources)
        reasons = [reason for uuid, reason in open_memory.items() if uuid in limited]
        problems.pop("memory limits", None)
        if reasons:
            problems["memory limits"] = f"no limit of a GPU's memory holds: {reasons[0]}"
            resources = tuple(
                without_open_memory(resources, lambda uuid: open_memory.get(uuid, ""))
            )
        resources = tuple(without_mps(resources, self._mps.problem))
        served = self.plugins.advertised()
        resources = tuple(with_clients(resources, self._holders.last, served))
        if ask_kubelet and not resources and not served:
            resources = (no_gpus(),)
        await self.plugins.advertise((*resources, *files))

    def describe(
        self, snapshot: Snapshot | None, runtime: str, problems: MutableMapping[str, str]
    ) -> None:
        """Bring what containers start with up to date; nothing without a ``snapshot``.

        Also while nothing is advertised: containers that run start again.
        """
        try:
            if snapshot is not None:
                make_cap_nodes(self._settings.driver_root, snapshot.cap_minors)
            problems.pop("capabilities", None)
        except OSError as error:
            problems["capabilities"] = f"MIG device nodes cannot be created: {error}"
        try:
            if snapshot is None:
                self.injection.withdraw(self._driver.problem or "no driver answers")
            else:
                self.injection.renew(snapshot, runtime)
            problems.pop("injection", None)
        except InjectionProblem as problem:
            problems["injection"] = str(problem)

    def _files(self, problems: MutableMapping[str, str]) -> tuple[Resource, ...]:
        """Return the resources of device files; what cannot be looked for stays as it was."""
        served = {resource.name: resource for resource in self.plugins.advertised()}
        files: list[Resource] = []
        problems.pop("device files", None)
        for entry in self._desired.file_devices:
            try:
                files += file_resources([entry], self._find_files)
            except InjectionProblem as problem:
                problems["device files"] = str(problem)
                files += filter(None, [served.get(entry.resource)])
        return tuple(files)

    async def withdraw(
        self, snapshot: Snapshot | None, runtime: str, problems: MutableMapping[str, str]
    ) -> None:
        """Advertise nothing at all."""
        self.describe(snapshot, runtime, problems)
        await self.plugins.advertise(())

    async def refresh_holders(self) -> None:
        """Learn who holds what, where the kubelet may have forgotten it."""
        await self._holders.refresh()

    def preferred_allocation(
        self, resource: Resource, available: Sequence[str], required: Sequence[str], size: int
    ) -> list[str]:
        """Choose devices for the kubelet's GetPreferredAllocation: none that somebody may hold.

        Of too few, also those whose pods are not listed: most likely they have ended.
        """
        suspects = self._holders.suspects
        free = [device_id for device_id in available if device_id not in suspects]
        if len(free) < size:
            free = [device for device in available if self._holders.holder(device) is None]
        snapshot = self._driver.snapshot
        links = {} if snapshot is None else snapshot.links
        policy = self._desired.replica_policy
        return preferred_allocation(resource, free, required, size, links, policy)

    def allocate(self, resource: Resource, device_ids: Sequence[str]) -> ContainerAllocation:
        """Answer an Allocate and remember it until the kubelet shows it."""
        uuids = allocated_uuids(resource, device_ids)
        for device_id in device_ids:
            if (holder := self._holders.holder(device_id)) is not None:
                raise Refused(
                    f"{resource.name}: device {device_id} is still held by {holder.text}, which "
                    "the kubelet has forgotten: delete that pod"
                )
        if resource.kind == "file":
            allocation = ContainerAllocation((), file_edits(resource.files))
        elif resource.sharing.by_driver:
            shares = device_shares(resource, device_ids)
            allocation = self.injection.driver_limited_allocation(device_ids, shares)
        elif resource.sharing.is_prevented:
            shares = device_shares(resource, device_ids)
            allocation = self.injection.limited_allocation(device_ids, shares)
        else:
            allocation = self.injection.allocation(uuids)
        if resource.sharing.by_mps:
            (uuid,) = uuids
            client = self._client(resource, uuid, device_ids)
            allocation = replace(allocation, edits=together(allocation.edits, client))
        self._holders.allocated(resource.name, device_ids)
        self._look_soon()
        return allocation

    def _client(self, resource: Resource, uuid: str, device_ids: Sequence[str]) -> ContainerEdits:
        memory = self._memory(resource, uuid)
        pipes = self._mps.pipes(uuid, self._share(resource, uuid, device_ids).name)
        return client_edits(pipes, memory, resource.sharing.times(len(device_ids)))

    def _share(self, resource: Resource, uuid: str, device_ids: Sequence[str]) -> Share:
        snapshot = self._driver.snapshot
        gpu = None if snapshot is None else snapshot.gpu(uuid)
        if gpu is None:
            raise Refused(f"{resource.name}: {uuid}: the driver does not show it")
        return share_of(device_ids, resource.sharing, gpu.memory_mib)

    async def _require_daemon(
        self, resource: Resource, device_ids: Sequence[str], holders: Iterable[Holder]
    ) -> None:
        """Raise Refused if a container would find no daemon: it would compute without limits.

        After a boot the kubelet starts containers again by what it was answered before it: a
        runtime would make a plain folder of what is not mounted.
        """
        uuid = physical(device_ids[0])
        if problem := self._mps.problem(uuid):
            raise Refused(f"{resource.name}: {uuid}: {problem}; the start will be retried")
        self._memory(resource, uuid)
        self._require_reachable(resource, uuid, device_ids, holders)
        known = {holder.device_id for holder in holders} | self._holders.suspects
        held = {device_id for device_id in known if physical(device_id) == uuid}
        try:
            share = self._share(resource, uuid, device_ids)
            if not resource.sharing.by_mps:
                share = self._mps.as_started(uuid, share)
            await self._mps.prepare(uuid, share, alone=set(device_ids) >= held)
        except NoAnswer as no_answer:
            words = f"its MPS daemon is not ready: {no_answer}; the start will be retried"
            raise Refused(f"{resource.name}: {uuid}: {words}") from no_answer

    def _require_reachable(
        self,
        resource: Resource,
        uuid: str,
        device_ids: Sequence[str],
        holders: Iterable[Holder],
    ) -> None:
        """Raise Refused if a container has the socket of a namespace, and there is none now."""
        mounted = self._holders.mounted(PIPES)
        for container in containers_with(resource.name, device_ids, holders):
            pipes = mounted.get((container.pod_uid, container.container, resource.name))
            if pipes is not None and not self._mps.serves(uuid, Path(pipes)):
                raise Refused(
                    f"{resource.name}: {uuid}: container {container.container} was given a "
                    "namespace of MPS, which the driver that is loaded now does not have: delete "
                    "the pod"
                )

    def _memory(self, resource: Resource, uuid: str) -> Path:
        try:
            return self._mps.memory(uuid)
        except OSError as error:
            problem = f"MPS has no /dev/shm for its clients: {error}"
            raise Refused(f"{resource.name}: {problem}") from error

    def _look_soon(self) -> None:
        """Have somebody see who holds it before a kubelet restarts that has lost its checkpoint."""
        if self._look is None:
            self._look = asyncio.get_running_loop().call_later(_LISTING_SECONDS, self._look_now)

    def _look_now(self) -> None:
        self._look = None
        self._on_change()

    async def start_container(self, resource: Resource, device_ids: Sequence[str]) -> None:
        """Refuse a container that has a limiter or MPS beside another GPU, and one unknown.

        One that got its replicas before its profile changed starts again as it was: their IDs tell
        whether it is a client of MPS.
        """
        sharing = resource.sharing
        by_mps = any(map(is_client, device_ids))
        if not by_mps and not sharing.needs_container and not resource.by_node:
            return
        try:
            holders = await self._holders.containers()
        except HoldersUnknown as unknown:
            raise Refused(
                f"{resource.name}: cannot tell what else the container holds: {unknown}; the "
                "start will be retried"
            ) from unknown
        self._require_own_nodes(resource, device_ids, holders)
        can_lay = sharing.is_prevented and by_mps == sharing.by_mps
        if not can_lay:
            self._require_files(resource, device_ids, holders)
        if by_mps:
            require_no_other_gpu(resource.name, device_ids, holders, (), OF_MPS)
            await self._require_daemon(resource, device_ids, holders)
        elif not sharing.by_mps and sharing.needs_container:
            bare = self._holders.without_limiter()
            why = OF_THE_DRIVERS_LIMIT if sharing.by_driver else OF_THE_LIMITER
            require_no_other_gpu(resource.name, device_ids, holders, bare, why)
        if can_lay:
            self._lay_again(resource, device_ids)

    def _require_own_nodes(
        self, resource: Resource, device_ids: Sequence[str], holders: Iterable[Holder]
    ) -> None:
        """Raise Refused if a device node that a container was given is another GPU's now.

        Without CDI the kubelet keeps it from the first start: since then the driver may have been
        loaded again, and have found its GPUs in another order.
        """
        try:
            given = self._holders.device_nodes()
        except HoldersUnknown as unknown:
            if not resource.by_node:
                return  # by CDI: what it names leads to its own GPU, or nowhere
            raise Refused(
                f"{resource.name}: cannot tell what the container was given: {unknown}; the start "
                "will be retried"
            ) from unknown
        nodes = self.injection.gpu_nodes()
        own = frozenset(chain.from_iterable(nodes.get(physical(id_), ()) for id_ in device_ids))
        foreign = frozenset(chain.from_iterable(nodes.values())) - own
        for container in containers_with(resource.name, device_ids, holders):
            key = (container.pod_uid, container.container, resource.name)
            if wrong := sorted(given.get(key, frozenset()) & foreign):
                raise Refused(
                    f"{resource.name}: {wrong[0]}, which container {container.container} was "
                    "given, is another GPU's now: delete the pod"
                )
        if missing := [id_ for id_ in device_ids if physical(id_) not in nodes]:
            raise Refused(f"{resource.name}: {missing[0]} has no device node on this node now")

    def _require_files(
        self, resource: Resource, device_ids: Sequence[str], holders: Iterable[Holder]
    ) -> None:
        """Raise Refused if the files of a container's share are gone, and its profile is, too.

        A runtime would make folders in their place.
        """
        if self.injection.share_folder.has(device_ids):
            return
        mounted = self._holders.mounted(LIMITS)
        for container in containers_with(resource.name, device_ids, holders):
            if (container.pod_uid, container.container, resource.name) in mounted:
                raise Refused(
                    f"{resource.name}: {device_ids[0]} is shared otherwise now, and the share's "
                    "files are gone since the node was booted: delete the pod"
                )

    def _lay_again(self, resource: Resource, device_ids: Sequence[str]) -> None:
        """Lay the files of a share whose container starts after a boot, which they do not last."""
        if self.injection.share_folder.has(device_ids):
            return
        if not all(device_id in resource.by_id for device_id in device_ids):
            raise Refused(
                f"{resource.name}: {device_ids[0]} is not advertised now, and the share's files "
                "are gone since the node was booted: delete the pod"
            )
        shares = device_shares(resource, device_ids)
        try:
            self.injection.share_folder.lay(device_ids, shares)
        except InjectionProblem as problem:
            raise Refused(str(problem)) from problem
