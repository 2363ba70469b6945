"""Prepare claims and give them back: whatever happens in between, the next call goes on.

What is about to be done is written down before it is done. A preparation that meets what is not
given back yet, or a GPU that is at work, waits: the kubelet repeats one that failed only after a
minute.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, repeat
from time import monotonic
from weakref import WeakValueDictionary

from divvy.agent.api_server.claims_api import ClaimsApi
from divvy.agent.claims.claim_shares import claim_id, claim_shares, is_limited
from divvy.agent.claims.claims_file import ClaimsFile
from divvy.agent.claims.conflicts import in_the_way
from divvy.agent.claims.copies import copied_claims, remove_copy, write_copy
from divvy.agent.claims.instance_plan import ForeignInstance, device_uuid, plan_device, plan_return
from divvy.agent.claims.record import (
    BadAllocation,
    ClaimState,
    HeldClaim,
    HeldDevice,
    held_claim,
    require_offered,
)
from divvy.agent.gpu.hardware import Gpu, Snapshot
from divvy.agent.gpu.mig_plan import MigPlan
from divvy.agent.inject.claim_cdi import (
    keep_described,
    remove_claim,
    specification_files,
    write_claim,
    written_claims,
)
from divvy.agent.inject.container_edits import Mount
from divvy.agent.inject.injection import Injection
from divvy.agent.inject.problem import InjectionProblem, NotWritten
from divvy.agent.nvml.cap_nodes import make_cap_nodes
from divvy.agent.nvml.driver import Driver, boot_id, loaded_module
from divvy.agent.nvml.mig_apply import apply_plan
from divvy.agent.nvml.process import DriverProblem
from divvy.agent.settings import Settings
from divvy.atomic_file import replace_file
from divvy.kube.async_client import raising_unreachable
from divvy.kube.errors import KubeError, Unreachable
from divvy.model.api_names import DOMAIN, claims_pool

_log = logging.getLogger(__name__)
# The kubelet gives up a call after 45 s, and repeats a failed one after 60 to 90.
WAIT_SECONDS = 40.0
_ASKED_AGAIN_SECONDS = 120.0
_KNOWN_SECONDS = 2.0
_SLOW_SECONDS = 5.0
_PAUSES = (0.2, 0.5, 1.0, 2.0, 4.0)


class ClaimProblem(Exception):
    """A claim cannot be prepared or given back; the text reaches the pod's events."""


class Preparation:
    """Prepares claims, one call for a claim at a time, and one change of a GPU at a time."""

    def __init__(
        self,
        settings: Settings,
        store: ClaimsFile,
        api: ClaimsApi,
        driver: Driver,
        injection: Injection,
        wait_seconds: float = WAIT_SECONDS,
    ) -> None:
        self._settings = settings
        self._store = store
        self._api = api
        self._driver = driver
        self._injection = injection
        self._wait_seconds = wait_seconds
        self._boot = boot_id(settings.driver_root)
        self._claims: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._gpus: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._unwanted: set[str] = set()
        # UID of a claim → why its files cannot be written, and when that was seen (monotonic).
        self._unwritten: dict[str, tuple[str, float]] = {}
        self._released = asyncio.Event()
        # So the next call does not begin with a time in which the server does not answer.
        self._is_api_slow = False

    async def prepare(self, namespace: str, name: str, uid: str) -> HeldClaim:
        """Return the claim as it is prepared; raises ClaimProblem."""
        self._require_record()
        deadline = monotonic() + self._wait_seconds
        async with _lock(self._claims, uid):
            try:
                with self._noting_unwritten(uid):
                    claim = await self._load_allocation(namespace, name, uid, deadline)
                    for at in range(len(claim.devices)):
                        claim = await self._create_instance(claim, at, deadline)
                    claim = await self._write_cdi_spec(claim, deadline)
                    if not claim.is_prepared:
                        claim = self._save(replace(claim, state=ClaimState.PREPARE_COMPLETED))
            except (BadAllocation, InjectionProblem) as problem:
                raise ClaimProblem(str(problem)) from problem
            except OSError as error:
                raise ClaimProblem(f"the driver's state cannot be saved: {error}") from error
            return claim

    async def unprepare(self, uid: str) -> None:
        """Give back whatever a claim has; one that is not known has nothing. Raises ClaimProblem.

        A preparation of the claim that still waits is given up.
        """
        self._require_record()
        deadline = monotonic() + self._wait_seconds
        self._unwanted.add(uid)
        self._wake_waiting()
        try:
            async with _lock(self._claims, uid):
                with self._noting_unwritten(uid):
                    await self._release(uid, deadline)
        except OSError as error:
            raise ClaimProblem(f"the driver's state cannot be saved: {error}") from error
        except InjectionProblem as problem:
            raise ClaimProblem(str(problem)) from problem
        finally:
            self._unwanted.discard(uid)

    @property
    def problem(self) -> str:
        """Return why the files of a claim cannot be written, "" if those of all can."""
        why, _ = next(iter(self._unwritten.values()), ("", 0.0))
        return why and f"a claim cannot be prepared or released: {why}"

    @contextlib.contextmanager
    def _noting_unwritten(self, uid: str) -> Iterator[None]:
        """Note why a claim's files cannot be written, for the node's status, until they can."""
        try:
            yield
        except (NotWritten, OSError) as error:
            self._unwritten[uid] = str(error), monotonic()
            raise
        self._unwritten.pop(uid, None)

    def look_again(self) -> None:
        """Take the problem back of claims that are not asked for again, once files can be written.

        The pod of a claim that could not be prepared may be gone. Until then a write of the claim's
        own files has to succeed: what is in their way may be no disk without room.
        """
        old = monotonic() - _ASKED_AGAIN_SECONDS
        left = {
            uid: (why, at)
            for uid, (why, at) in self._unwritten.items()
            if uid in self._claims or at > old
        }
        if left == self._unwritten or self._store.damage:
            return
        # Of an ending that no container runtime reads; what is left of it goes with the agent.
        probe = self._settings.cdi_folder / f"{DOMAIN}-probe"
        with contextlib.suppress(OSError):
            self._store.rewrite()
            replace_file(probe, b"writable", 0o600)
            probe.unlink()
            self._unwritten = left

    def written(self) -> frozenset[str]:
        """Return the UIDs of the claims that have a CDI specification."""
        return frozenset(written_claims(self._settings.cdi_folder))

    def files(self) -> object:
        """Return which claims are prepared, and which files describe some, to be compared."""
        claims = self._store.record.claims.values()
        prepared = frozenset(claim.uid for claim in claims if claim.is_prepared)
        return prepared, specification_files(self._settings.cdi_folder)

    def _require_record(self) -> None:
        if self._store.damage:
            raise ClaimProblem(self._store.damage)

    def refresh(self) -> str:
        """Write the CDI specifications of all prepared claims, and remove all others.

        A claim that is not prepared has one if its preparation could not be saved: no container
        starts by it, and the kubelet asks again.

        Also those of claims that cannot be described now. A GPU may be lost in a reload of the
        driver, and another one take its device node: a container that starts again by the
        specification from before would compute on a GPU that another claim has. It is written again
        once the device is back, under whichever node. Return which could not be written or removed,
        "" if none: its containers would start as they were.
        """
        if self._store.damage:
            return ""
        claims, folder = self._store.record.claims, self._settings.cdi_folder
        problem = ""
        for claim in claims.values():
            if claim.is_prepared:
                problem = self._refresh_claim(claim) or problem
        for uid in {*written_claims(folder), *copied_claims(folder)}:
            try:
                if uid not in claims or not claims[uid].is_prepared:
                    remove_claim(folder, uid)
                if uid not in claims:
                    remove_copy(folder, uid)
            except (InjectionProblem, OSError) as error:
                problem = str(error)
        return problem

    def _refresh_claim(self, claim: HeldClaim) -> str:
        try:
            self._write(claim)
        except (InjectionProblem, BadAllocation, OSError) as error:
            problem = str(error) if isinstance(error, NotWritten | OSError) else ""
            snapshot = None if self._driver.problem else self._driver.snapshot
            uuids = {} if snapshot is None else _present(claim, snapshot)
            devices = {} if snapshot is None else self._injection.device_edits(snapshot)
            try:
                keep_described(self._settings.cdi_folder, claim, uuids, devices)
            except InjectionProblem as remaining:
                problem = str(remaining)
            return problem and f"{claim.text}: {problem}"
        return ""

    async def _load_allocation(
        self, namespace: str, name: str, uid: str, deadline: float
    ) -> HeldClaim:
        """Return the claim with what it is allocated, once other claims have released that."""
        known = self._store.record.claims.get(uid)
        if known is not None and known.is_prepared:
            claim = await self._reload_allocation(known)
            if _devices(known) == _devices(claim):
                return known
            # The node was away, its pod was deleted by force, and the claim has been allocated
            # other devices for the next pod. The kubelet never asked to give the first ones back:
            # they belong to another claim.
            await self._release(uid, deadline)
        else:
            claim = await self._read_allocation(namespace, name, uid, deadline)
            if known is not None:
                if _allocation(known) == _allocation(claim):
                    return known
                await self._release(uid, deadline)
        while others := in_the_way(
            claim, self._store.record.claims.values(), self._store.record.offered
        ):
            if self._is_over(uid, deadline):
                raise ClaimProblem(
                    f"{claim.devices[0].device.name} is still held by {others[0].text}, which has "
                    "not been released on this node yet"
                )
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, deadline - monotonic())):
                    await self._released.wait()
        # Until now the record did not have it: a GPU of it may have gone to the device plugin.
        require_offered(claim, self._store.record.offered)
        return self._save(self._with_limiter(claim))

    async def _reload_allocation(self, known: HeldClaim) -> HeldClaim:
        """Return a prepared claim as the API has it; as it is known if that cannot be read.

        Its containers run, or start again: an API server that is away must not delay them.
        """
        try:
            async with asyncio.timeout(_KNOWN_SECONDS):
                return await self._read(known.namespace, known.name, known.uid) or known
        except (KubeError, TimeoutError, BadAllocation):
            return known

    async def _read_allocation(
        self, namespace: str, name: str, uid: str, deadline: float
    ) -> HeldClaim:
        pauses = _pauses(deadline)
        while True:
            began = monotonic()
            patience = max(1.0, deadline - began) if self._is_api_slow else None
            try:
                claim = await self._read(namespace, name, uid, patience)
            except KubeError as error:
                if self._is_over(uid, deadline):
                    raise ClaimProblem(f"the claim cannot be read: {error}") from error
                self._is_api_slow |= isinstance(error, Unreachable) and error.waited
                await asyncio.sleep(next(pauses))
                continue
            self._is_api_slow &= monotonic() - began > _SLOW_SECONDS
            if claim is None:
                raise ClaimProblem(f"claim {namespace}/{name} does not exist")
            return claim

    async def _read(
        self, namespace: str, name: str, uid: str, patience: float | None = None
    ) -> HeldClaim | None:
        """Return what a claim is allocated on this node, None if the claim does not exist.

        Raises what KubeError lists, also if the answer is not a ResourceClaim, and BadAllocation.
        """
        claim = await self._api.claim(namespace, name, patience)
        if claim is None:
            return None
        pool, offered = claims_pool(self._settings.node), self._store.record.offered
        with raising_unreachable():
            return held_claim(claim, uid, pool, offered)

    async def _create_instance(self, claim: HeldClaim, at: int, deadline: float) -> HeldClaim:
        """Bring one device about; what does not work now is tried again until the deadline."""
        pauses = _pauses(deadline)
        looked = False
        while True:
            held = claim.devices[at]
            try:
                async with _lock(self._gpus, held.uuid):
                    plan = plan_device(self._gpu(held), held, self._store.record)
                    if plan.create and (not held.has_instance or held.boot != self._boot):
                        claim = self._save(_with_instance(claim, at, self._boot))
                    await self._apply(held, plan)
                    return claim
            except ForeignInstance as problem:
                if looked:
                    raise ClaimProblem(str(problem)) from problem
                looked = True  # they may be gone since the last look
            except (DriverProblem, OSError) as problem:
                if self._is_over(claim.uid, deadline):
                    raise ClaimProblem(f"GPU {held.uuid}: {problem}") from problem
                await asyncio.sleep(next(pauses))
            with contextlib.suppress(DriverProblem):
                await self._driver.rescan()

    async def _apply(self, held: HeldDevice, plan: MigPlan) -> None:
        if plan.nothing:
            return
        await apply_plan(self._driver, self._gpu(held), plan)
        await self._driver.rescan()
        snapshot = self._driver.snapshot
        if snapshot is not None:
            make_cap_nodes(self._settings.driver_root, snapshot.cap_minors)

    def _gpu(self, held: HeldDevice) -> Gpu:
        snapshot = self._driver.snapshot
        gpu = None if snapshot is None else snapshot.gpu(held.uuid)
        # While the driver is away, the snapshot is the last one.
        if self._driver.problem or gpu is None or not gpu.present:
            raise DriverProblem(self._driver.problem or "the GPU does not answer")
        return gpu

    async def _write_cdi_spec(self, claim: HeldClaim, deadline: float) -> HeldClaim:
        """Write what containers are given as soon as that can be."""
        pauses = _pauses(deadline)
        while True:
            try:
                with self._noting_unwritten(claim.uid):
                    claim = self._save(self._with_limiter(claim))
                    self._write(claim)
            except (InjectionProblem, OSError) as problem:
                if self._is_over(claim.uid, deadline):
                    raise ClaimProblem(str(problem)) from problem
                await asyncio.sleep(next(pauses))
            else:
                return claim

    def _with_limiter(self, claim: HeldClaim) -> HeldClaim:
        """Note the limiter that the claim's files are for.

        A container that starts again needs it, also after an update of the agent.
        """
        if claim.limiter or not any(map(is_limited, claim.devices)):
            return claim
        return replace(claim, limiter=self._injection.limiter)

    def _write(self, claim: HeldClaim) -> None:
        """Lay the files of a share and write the CDI specification."""
        injection, snapshot = self._injection, self._driver.snapshot
        if self._driver.problem:
            raise InjectionProblem(self._driver.problem)
        if snapshot is None or not injection.by_cdi:
            raise InjectionProblem("this node's container runtime does not resolve CDI names")
        # The snapshot may be newer than what was described last.
        edits = injection.claim_edits(snapshot)
        uuids = _present(claim, snapshot)
        for held in claim.devices:
            if held.device.name not in uuids:
                raise InjectionProblem(f"{held.device.name} does not currently exist")
        shares = claim_shares(claim, uuids)
        mounts: tuple[Mount, ...] = ()
        if shares:
            folder, whose = injection.share_folder, [claim_id(claim.uid)]
            mounts = folder.laid(whose, shares) or folder.lay(whose, shares)
        write_copy(self._settings.cdi_folder, claim, self._store.record)
        write_claim(self._settings.cdi_folder, claim, uuids, mounts, edits)

    async def _release(self, uid: str, deadline: float) -> None:
        remove_claim(self._settings.cdi_folder, uid)
        claim = self._store.record.claims.get(uid)
        if claim is None:
            return
        # From here on containers cannot start: an agent that dies now, and is asked to prepare the
        # claim before it is asked to release it, prepares it from the start.
        if claim.is_prepared:
            self._save(replace(claim, state=ClaimState.PREPARE_STARTED))
        for held in claim.devices:
            if held.has_instance:
                await self._destroy_instance(held, deadline)
        self._injection.share_folder.remove([claim_id(uid)])
        # Before the record: a copy of a claim that is not in it says that the record is older.
        remove_copy(self._settings.cdi_folder, uid)
        self._store.drop(uid)
        self._wake_waiting()

    async def _destroy_instance(self, held: HeldDevice, deadline: float) -> None:
        """Destroy the instance of a device; processes that are ending may still have it open."""
        pauses = _pauses(deadline)
        while True:
            if self._is_lost(held, deadline) or self._went_with_driver(held):
                return
            try:
                async with _lock(self._gpus, held.uuid):
                    await self._apply(held, plan_return(self._gpu(held), held))
            except (DriverProblem, OSError) as problem:
                if monotonic() > deadline:
                    raise ClaimProblem(f"GPU {held.uuid}: {problem}") from problem
                await asyncio.sleep(next(pauses))
            else:
                return
            with contextlib.suppress(DriverProblem):
                await self._driver.rescan()

    def _is_lost(self, held: HeldDevice, deadline: float) -> bool:
        snapshot = self._driver.snapshot
        gpu = None if snapshot is None else snapshot.gpu(held.uuid)
        if snapshot is None or gpu is not None:
            return gpu is not None and gpu.lost
        # To an agent that has just started, a GPU that does not answer yet has no UUID.
        return not snapshot.unreadable or monotonic() > deadline

    def _went_with_driver(self, held: HeldDevice) -> bool:
        """Return whether an instance went with the driver, which is not there to be asked.

        A node that boots without its driver has no instances; an installer of the driver that
        waits until all claims are released would never come to install it.
        """
        if self._driver.snapshot is not None and not self._driver.problem:
            return False
        booted = bool(held.boot and self._boot) and held.boot != self._boot
        return booted or loaded_module(self._settings.driver_root) == ""

    def _save(self, claim: HeldClaim) -> HeldClaim:
        self._store.put(claim)
        return claim

    def _is_over(self, uid: str, deadline: float) -> bool:
        return uid in self._unwanted or monotonic() > deadline

    def _wake_waiting(self) -> None:
        returned, self._released = self._released, asyncio.Event()
        returned.set()


def _lock(locks: WeakValueDictionary[str, asyncio.Lock], key: str) -> asyncio.Lock:
    lock = locks.get(key)
    if lock is None:
        lock = locks[key] = asyncio.Lock()
    return lock


def _present(claim: HeldClaim, snapshot: Snapshot) -> dict[str, str]:
    """Return the UUIDs of a claim's devices that exist now, by the devices' names."""
    uuids = {}
    for held in claim.devices:
        gpu = snapshot.gpu(held.uuid)
        uuid = None if gpu is None else device_uuid(gpu, held)
        if uuid is not None:
            uuids[held.device.name] = uuid
    return uuids


def _with_instance(claim: HeldClaim, at: int, boot: str) -> HeldClaim:
    devices = list(claim.devices)
    devices[at] = replace(devices[at], has_instance=True, boot=boot)
    return replace(claim, devices=tuple(devices))


def _devices(claim: HeldClaim) -> list[tuple[str, str, str]]:
    """Return which devices the scheduler chose; a new allocation of a share has another ID."""
    return sorted((held.device.name, held.request, held.share_id) for held in claim.devices)


def _allocation(claim: HeldClaim) -> list[tuple[str, str, str, int, int]]:
    """Return what the scheduler decided: a claim may get the same device in another size."""
    return sorted(
        (held.device.name, held.request, held.share_id, held.memory_mib, held.cores)
        for held in claim.devices
    )


def _pauses(deadline: float) -> Iterator[float]:
    """Yield the pauses between tries, in seconds.

    None goes beyond the deadline: whoever called would no longer hear why it failed.
    """
    for seconds in chain(_PAUSES, repeat(_PAUSES[-1])):
        yield min(seconds, max(0.0, deadline - monotonic()))
