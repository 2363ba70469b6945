"""A node whose driver loses and renumbers GPUs: python -m tests.agent.reload_machine SEED STEPS.

The node of ``node_machine``, with the real code between its driver and a container: what
``Driver`` makes of NVML's answers, ``Injection``, ``Claims`` and ``Preparation`` with their files
in a folder. A driver is loaded again with some of its GPUs in another order, a GPU is taken away
and comes back under a number that another one had, no driver is loaded at all, disks are full, and
claims are what only a hostile hand would write. What a specification leads to is compared with the
numbers that the GPUs have.
"""

from __future__ import annotations

import asyncio
import copy
import errno
import json
import logging
import os
import traceback
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

from divvy.agent.claims.claim_shares import is_limited
from divvy.agent.claims.conflicts import in_the_way
from divvy.agent.claims.preparation import ClaimProblem
from divvy.agent.claims.record import ClaimRecord, HeldClaim
from divvy.agent.claims.service import Claims
from divvy.agent.gpu.hardware import MigInstance, Snapshot
from divvy.agent.gpu.health import Health, unhealthy_devices
from divvy.agent.inject.claim_cdi import cdi_name, claim_file
from divvy.agent.inject.container_edits import LIMITS, Mount
from divvy.agent.inject.injection import Injection
from divvy.agent.inject.limiter import LIBRARIES
from divvy.agent.inject.problem import InjectionProblem
from divvy.agent.inject.share_folder import ShareFolder
from divvy.agent.nvml.driver import Driver
from divvy.agent.nvml.health_watch import HealthWatch
from divvy.agent.nvml.process import DriverProblem
from divvy.agent.plugin.allocation import Refused, allocated_uuids, device_shares
from divvy.agent.plugin.inventory import inventory, undescribed
from divvy.agent.settings import Settings, settings_from
from divvy.model import model_of_product
from divvy.model.api_names import CLAIM_CDI_KIND, CLAIMS_DRIVER
from divvy.model.sharing import parse_limits
from tests.agent.node_machine import (
    NODE,
    POOL,
    PROFILES,
    Broken,
    Killed,
    Machine,
    Published,
    _ids,
    main,
    walk_machine,
)

_VERSION = "550.163.01"
_RUNTIME = "containerd://2.3.0"
_LOST = 15
_LIMITED = {"replicas": 2, "memoryLimit": {"limit": "auto", "action": "prevent"}}


class Nvml:
    """NVML as one process sees it: the GPUs that the driver had when it began, by their numbers."""

    unended = 0

    def __init__(self, node: ReloadedNode) -> None:
        self._node = node
        self.running = False
        self.known: list[tuple[str, int]] = []  # UUID, and which time it was found

    def hanging_since(self) -> None:
        """No call hangs."""

    async def start(self) -> str:
        if not self._node.loaded:
            raise DriverProblem("no driver is loaded", 9)
        minors = self._node.minors
        self.known = [(u, self._node.found[u]) for u in sorted(minors, key=minors.__getitem__)]
        self.running = True
        return _VERSION

    async def stop(self) -> None:
        self.running = False

    def shows(self, uuid: str) -> bool:
        """Return whether this process can talk to a GPU."""
        node = self._node
        return (
            self.running and uuid in node.minors and (uuid, node.found[uuid]) in self.known
        ) and uuid not in node.faulty

    async def call(self, name: str, lane: str = "", deadline: float = 0, **args: Any) -> Any:
        node = self._node
        if not self.running:
            raise DriverProblem("no process runs", 1)
        if name == "driver":
            version = {"driver_version": _VERSION, "cuda_version": [12, 4], "simulated": True}
            return {"count": len(self.known), **version}
        if name == "links":
            return []
        if "index" in args:
            uuid = self.known[args["index"]][0]
        else:
            addresses = {gpu.pci_bus_id: uuid for uuid, gpu in node.gpus.items()}
            uuid = addresses[args["bus_id"]]
        if not self.shows(uuid):
            lost = uuid not in node.faulty
            raise DriverProblem(
                "the GPU is lost" if lost else "unknown error", _LOST if lost else 999
            )
        if name == "watch":
            return None
        if name == "describe":
            index = [known for known, _ in self.known].index(uuid)
            return asdict(replace(node.gpus[uuid], index=index, minor=node.minors[uuid]))
        if node.random.random() < 0.1:
            raise Killed
        return node.changed_by_claims(name, uuid, args)


class PlainShareFolder(ShareFolder):
    """The files of shares in a plain folder: no file system is mounted."""

    def _mount(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)


class ApiClient:
    """Answers with the ResourceClaim that the walk has at hand."""

    def __init__(self) -> None:
        self.answer: Any = None

    async def request(self, *_: str, **__: object) -> Any:
        return self.answer


class ReloadedNode(Machine):
    """The node; ``minors`` is the truth: which device node each GPU has that the driver has now."""

    gpu_count = 3
    profiles: Mapping[str, Any] = {
        "limited": {"timeSlicing": _LIMITED},
        **{name: PROFILES[name] for name in ("whole", "mig", "by-size", "on-demand")},
    }

    def __init__(self, seed: int, folder: Path) -> None:
        self.settings = _settings(folder)
        self.folder = folder
        self.loop = asyncio.new_event_loop()
        self.api = ApiClient()
        self.loaded = True
        self.run_full = False
        # Since the driver changed, no agent has looked to the end.
        self.is_stale = True
        # Destroyed since the last look: nobody has it, and a specification may still name it.
        self.destroyed: set[str] = set()
        self.minors = {f"GPU-{index}": index for index in range(self.gpu_count)}
        self.found = dict.fromkeys(self.minors, 0)
        # Claims that are being released: no container starts with one.
        self.ending: set[str] = set()
        # Pod → what it was given: CDI names, and the file of its limits.
        self.given: dict[str, tuple[tuple[str, ...], Path | None]] = {}
        self.claims: Claims | None = None
        super().__init__(seed)
        self.profile = self.random.choice(list(self.profiles))

    def fsync(self, opened: int) -> None:
        """Take the place of os.fsync: no disk is written, and a full one says so."""
        path = Path(f"/proc/self/fd/{opened}").readlink()
        on_state = path.is_relative_to(self.settings.state_folder)
        if self.disk.full if on_state else self.run_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(work)

    # -- the agent ---------------------------------------------------------------------------

    @property
    def record(self) -> ClaimRecord:
        """Return what the driver's checkpoint has."""
        return ClaimRecord() if self.claims is None else self.claims.record

    @record.setter
    def record(self, record: ClaimRecord) -> None:
        """The real code keeps it; what an agent that starts reads is equal."""
        assert record == self.record

    def _start(self) -> None:
        self.driver = Driver(self.settings.driver_root, (), lambda: None)
        self.nvml = Nvml(self)
        self.driver._nvml = self.nvml  # type: ignore[assignment]
        self.injection = Injection(self.settings)
        self.injection.share_folder = PlainShareFolder(self.settings.share_folder)
        self.injection.install()
        unused: Any = None
        where = "divvy.agent.api_server.claims_api"
        with (
            mock.patch(f"{where}.AsyncClient", return_value=self.api),
            mock.patch(f"{where}.access_from"),
        ):
            self.claims = Claims(
                self.settings,
                self.driver,
                HealthWatch(Health(), lambda: None),
                self.injection,
                unused,
                lambda: None,
            )
        self.claims._preparation._wait_seconds = 0.0
        self.claims._server.registered = True  # else nothing is published
        self.problems: dict[str, str] = {}
        super()._start()

    def scan(self) -> None:
        """Look at the GPUs, as ``Driver.run`` does again and again."""
        if not self.alive:
            return

        async def scan() -> None:
            try:
                await self.driver._follow_module()
                await self.driver.rescan()
            except DriverProblem as problem:
                self.driver._fail(str(problem))
                await self.nvml.stop()

        self._run(scan())

    def _snapshot(self) -> Snapshot:
        assert self.driver.snapshot is not None
        return self.driver.snapshot

    def look(self, dies_at: int = -1) -> None:
        """Reconcile once, as ``Agent._reconcile`` does, with a look at the driver before."""
        parts: list[Callable[[], None]] = [self.scan, self._reconcile_driver]
        for at, part in enumerate(parts):
            part()
            self.check()
            if at == dies_at:
                raise Killed
        if not self.driver.problem:
            for at, part in enumerate((self._list, self._offer, self._apply), start=2):
                part()
                self.check()
                if at == dies_at:
                    raise Killed
        self.is_stale = False
        self.destroyed.clear()
        self.check()
        self._check_described()

    def _reconcile_driver(self) -> None:
        """Decide and describe, or withdraw everything where no driver answers."""
        assert self.claims is not None
        if self.driver.problem or self.driver.snapshot is None:
            self._describe(None)
            self.decider.forget()
            self.listed = ()
            self.sent.append(())
            self.claims.suspend(self.desired, self.driver.problem, "uid")
            return
        self._decide()
        self._describe(self._snapshot())

    def _describe(self, seen: Snapshot | None) -> None:
        self.problems.clear()
        try:
            if seen is None:
                self.injection.withdraw(self.driver.problem)
            else:
                self.injection.renew(seen, _RUNTIME)
        except InjectionProblem as problem:
            self.problems["injection"] = str(problem)

    def _list(self) -> None:
        seen = self._snapshot()
        unhealthy = unhealthy_devices(seen, Health())
        for uuid in undescribed(seen, self.injection.described):
            unhealthy.setdefault(uuid, "it is not described in the CDI specification")
        advertised = [decision.advertise for decision in self.decider.decisions.values()]
        listed = inventory(advertised, seen, unhealthy)
        if _ids(listed) != _ids(self.listed):
            self.sent.append(listed)
        self.listed = listed

    def _offer(self) -> None:
        assert self.claims is not None
        before = self.record.offered.keys()
        self.claims.consider(self.desired, self._snapshot(), self.decider.owners, "uid")
        others = {self._gpu_of(holder.device_id) for holder in self.pods.values()}
        others -= {
            u for u, decision in self.decider.decisions.items() if decision.excluded_from_move
        }
        if self.record.offered.keys() - before and others & self.gpus.keys():
            raise Broken("a GPU is offered to claims while the node has pods")
        leaving = self.claims._retirement.retiring
        if leaving != self.retiring:
            self.tainted_since = None
        self.retiring, self.unallocated = leaving, self.unallocated & leaving

    def publish(self) -> None:
        """Write the slices as the agent would have them."""
        if not self.alive or self.api_away:
            return
        assert self.claims is not None
        specs: Mapping[str, Any] = self.claims._publisher._wanted
        devices = [device for spec in specs.values() for device in spec.get("devices", ())]
        names = {device["name"] for device in devices if not device.get("taints")}
        sound = {
            uuid: gpu
            for uuid, gpu in self.record.offered.items()
            if any(device["name"] in names for device in devices_of(gpu))
        }
        tainted = frozenset(self.record.offered.keys() - sound.keys())
        self.slices.append(Published(self.now, self.record.offered, tainted))

    # -- the hardware ------------------------------------------------------------------------

    def _destroy(self, uuid: str, instance: MigInstance) -> None:
        super()._destroy(uuid, instance)
        self.destroyed.update(instance.uuids)

    def _set_mode(self, uuid: str, *, enabled: bool) -> None:
        instances = self.gpus[uuid].instances
        super()._set_mode(uuid, enabled=enabled)
        self.destroyed.update(*(instance.uuids for instance in instances))

    def changed_by_claims(self, name: str, uuid: str, args: Mapping[str, Any]) -> dict[str, Any]:
        """Make a change that ``apply_plan`` asks NVML for; raises DriverProblem."""
        gpu = self.gpus[uuid]
        if name == "set_mig_mode":
            if uuid in self.busy:
                raise DriverProblem("in use", 19)
            self._set_mode(uuid, enabled=args["enabled"])
            return {"current": args["enabled"], "pending": args["enabled"]}
        if name == "create_instance":
            model = model_of_product(gpu.product, gpu.memory_mib)
            assert model is not None
            assert model.mig is not None
            profiles = model.mig.profiles
            (profile,) = (p.name for p in profiles if p.nvml_profile == args["nvml_profile"])
            self._create(uuid, profile, args["start"], args["size"])
            return {}
        (instance,) = (i for i in gpu.instances if i.gi == args["gi"])
        if name == "destroy_instance":
            self._destroy(uuid, instance)
        else:
            self._complete(uuid, instance)
        return {}

    def go_on(self) -> None:
        """Make the next change of a plan under way; it fails on a GPU that does not answer."""
        gone = [uuid for uuid in self.execution if not self.nvml.shows(uuid)]
        for uuid in gone:
            del self.execution[uuid]
        super().go_on()

    def reload(self) -> None:
        """Load the driver again, with some of the GPUs in another order, or not at all."""
        if self.busy:
            return  # it is in use
        count = self.random.choice((0, 1, 2, 2, 3, 3, 3))
        self._load(self.random.sample(sorted(self.gpus), count))

    def _load(self, order: list[str]) -> None:
        self._take_away(*self.minors)
        self.loaded = bool(order)
        self.minors = {uuid: minor for minor, uuid in enumerate(order)}
        self.nvml.running = False
        module = self.settings.driver_root / "proc/driver/nvidia/version"
        module.unlink(missing_ok=True)
        if self.loaded:
            module.write_text(f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {_VERSION}  x\n")
        self.log.append(f"  {self.minors}")
        self.counts["reloads"] += 1

    def _take_away(self, *uuids: str) -> None:
        """Take GPUs from the driver, with the MIG instances that it has of them."""
        self.is_stale = True
        for uuid in uuids:
            self.execution.pop(uuid, None)
            self.busy.discard(uuid)
            self.went |= {i.uuid for i in self.gpus[uuid].instances if i.uuid}
            self.went |= {
                claim.uid
                for claim in self.record.of_gpu(uuid)
                if any(held.device.profile is not None for held in claim.devices)
            }
            self.gpus[uuid] = replace(self.gpus[uuid], instances=())
            self.found[uuid] += 1
            self.minors.pop(uuid, None)

    def plug(self) -> None:
        """Take a GPU away while the others work, or give it back under a number that is free."""
        uuid = self.random.choice(sorted(self.gpus))
        if uuid in self.minors:
            self._take_away(uuid)
        elif self.loaded:
            free = set(range(self.gpu_count)) - set(self.minors.values())
            self.minors[uuid] = self.random.choice(sorted(free))
            self.is_stale = True
        self.log.append(f"  {self.minors}")
        self.counts["plugs"] += 1

    # -- the kubelet, the scheduler, and claims ----------------------------------------------

    def admit(self) -> None:
        """Allocate a device to a new pod, and answer as the agent does."""
        before = set(self.pods)
        super().admit()
        for name in self.pods.keys() - before:
            holder = self.pods[name]
            (resource,) = (r for r in self.listed if r.name == holder.resource)
            ids = [holder.device_id]
            try:
                uuids = allocated_uuids(resource, ids)
                allocation = (
                    self.injection.limited_allocation(ids, device_shares(resource, ids))
                    if resource.sharing.is_prevented
                    else self.injection.allocation(uuids)
                )
            except Refused:
                del self.pods[name]
                self.counts["refused"] += 1
                continue
            names = allocation.cdi_names
            limits = _limits(allocation.edits.mounts)
            if (limits is not None) != resource.sharing.is_prevented:
                raise Broken(f"{name} has limits: {limits}, of {resource.name}")
            self.given[name] = names, limits

    def allocate(self) -> None:
        """Allocate a device, now and then one of each of two GPUs."""
        before = set(self.allocated)
        super().allocate()
        for uid in self.allocated.keys() - before:
            claim = self.allocated[uid]
            view = self.slices[-1]
            others = view.offered.keys() - view.tainted - {*claim.gpus}
            if not others or self.random.random() < 0.6:
                continue
            offered = view.offered[self.random.choice(sorted(others))]
            second = self._held_device(offered, self.random.choice(offered.gpu.devices))
            both = replace(claim, devices=(*claim.devices, replace(second, request="second")))
            rest = [other for other in self.allocated.values() if other.uid != uid]
            if not in_the_way(both, rest, view.offered) and not self._pods_on(offered.uuid):
                self.allocated[uid] = both

    def prepare(self) -> None:
        """Prepare an allocated claim, or once more one that is prepared, as kubelets do."""
        if not self.allocated or not self.alive:
            return
        claim = self.random.choice(list(self.allocated.values()))
        self.api.answer = raw_claim(claim)
        if self._prepared(claim):
            self.counts["prepared"] += 1

    def prepare_hostile(self) -> None:
        """Prepare a claim whose object somebody has written who means harm."""
        if not self.alive or not self.record.offered:
            return
        offered = self.random.choice(list(self.record.offered.values()))
        held = self._held_device(offered, self.random.choice(offered.gpu.devices))
        number = next(self._numbers)
        claim = HeldClaim(f"h{number}", "team", f"h{number}", (held,), ((f"p{number}", "u"),))
        self.api.answer = hostile(self.random, raw_claim(claim))
        self.log.append(f"  {str(self.api.answer)[:400]}")
        if self._prepared(claim):
            self.counts["hostile prepared"] += 1
        else:
            self.counts["hostile refused"] += 1

    def _prepared(self, claim: HeldClaim) -> bool:
        assert self.claims is not None
        preparation = self.claims._preparation
        try:
            held = self._run(preparation.prepare(claim.namespace, claim.name, claim.uid))
        except ClaimProblem as problem:
            self.log.append(f"  {str(problem)[:200]}")
            return False
        finally:
            self.api.answer = None
        self.ending.discard(claim.uid)
        if not self.is_stale:  # else it was prepared by what the agent saw before
            self.went.discard(claim.uid)
        others = [other for other in self.record.claims.values() if other.uid != claim.uid]
        if conflicts := in_the_way(held, others, self.record.offered):
            raise Broken(f"{claim.text} is prepared beside {conflicts[0].text}")
        for uuid in held.gpus:
            if holders := self._pods_on(uuid):
                raise Broken(f"{claim.text} is prepared, and {holders[0].pod} has {uuid}")
        return True

    def unprepare(self) -> None:
        """Release a claim; one that cannot be now is released later."""
        if not self.record.claims or not self.alive:
            return
        assert self.claims is not None
        claim = self.random.choice(list(self.record.claims.values()))
        try:
            self._run(self.claims._preparation.unprepare(claim.uid))
        except ClaimProblem:
            self.ending.add(claim.uid)
            return
        self.allocated.pop(claim.uid, None)
        if (self.settings.cdi_folder / claim_file(claim.uid)).exists():
            raise Broken(f"{claim.text} is released and described")

    # -- what is promised --------------------------------------------------------------------

    def check(self) -> None:
        """Raise Broken also if a specification or a limit is of another device than it names."""
        super().check()
        if self.is_stale:
            return  # no agent can have seen it
        for path in sorted(self.settings.cdi_folder.glob("*.json")):
            spec = json.loads(path.read_text())
            for device in spec.get("devices", ()):
                edits, name = device["containerEdits"], device["name"]
                nodes = {node["hostPath"] for node in edits["deviceNodes"]}
                truth = self._nodes_of(spec["kind"], name)
                if nodes != truth and name not in self.destroyed:
                    raise Broken(f"{path.name} gives {name} {nodes}, it has {truth or 'none'}")
        self._check_limits()

    def _nodes_of(self, kind: str, name: str) -> set[str]:
        """Return the device nodes that a device of a specification has in truth."""
        if kind != CLAIM_CDI_KIND:
            return self._nodes(name)
        uid, device, uuid, *_ = name.split("_")
        if uuid.startswith("MIG-"):
            return self._nodes(uuid)
        claim = self.record.claims.get(uid)
        held = () if claim is None else claim.devices
        profile, placement = next(
            ((h.device.profile, h.device.placement) for h in held if h.device.name == device),
            (None, None),
        )
        if profile is None:
            return self._nodes(uuid)
        instances = (i.uuid for i in self.gpus[uuid].instances if i.start == placement)
        return self._nodes(next(filter(None, instances), ""))

    def _nodes(self, uuid: str) -> set[str]:
        for parent, gpu in self.gpus.items():
            if parent in self.minors:
                node = f"/dev/nvidia{self.minors[parent]}"
                if uuid == parent:
                    return {node}
                for instance in gpu.instances:
                    if instance.uuid == uuid:
                        caps = (instance.gi_cap, instance.ci_cap)
                        return {node, *(f"/dev/nvidia-caps/nvidia-cap{cap}" for cap in caps)}
        return set()

    def _check_limits(self) -> None:
        """Each limit names its device, and no other."""
        for name, (names, limits) in list(self.given.items()):
            if name not in self.pods:
                del self.given[name]
                continue
            device = self.pods[name].device_id.split("::")[0]
            named = {cdi.rpartition("=")[2] for cdi in names}
            if limits is not None:
                named |= {share.uuid for share in parse_limits(limits.read_text())}
            if named != {device}:
                raise Broken(f"{name} has {device}, and was given or is limited on {named}")
        for claim in self.record.claims.values():
            path = self.settings.cdi_folder / claim_file(claim.uid)
            if not path.exists() or not any(map(is_limited, claim.devices)):
                continue
            for device in json.loads(path.read_text()).get("devices", ()):
                mounts = device["containerEdits"]["mounts"]
                files = [m["hostPath"] for m in mounts if m["containerPath"] == LIMITS]
                if not files:
                    raise Broken(f"{device['name']} of {claim.text} is not limited")
                limited = {s.uuid for s in parse_limits(Path(files[0]).read_text())}
                truth = {
                    uuid
                    for held in claim.devices
                    for uuid in (
                        {held.uuid}
                        if held.device.profile is None
                        else {
                            i.uuid
                            for i in self.gpus[held.uuid].instances
                            if i.start == held.device.placement
                        }
                    )
                }
                if limited != truth:
                    raise Broken(f"{claim.text} has {truth}, and is limited on {limited}")

    def _check_described(self) -> None:
        """After a look, what is there is described; or the agent says what keeps it from that."""
        assert self.claims is not None
        problem = self.problems.get("injection") or self.claims.problem
        if self.driver.problem or problem:
            if not self.run_full and not self.driver.problem and not self.disk.full:
                raise Broken(f"nothing is wrong, and yet: {problem}")
            return
        for claim in self.record.claims.values():
            if not claim.is_prepared or not all(map(self.nvml.shows, claim.gpus)):
                continue
            path = self.settings.cdi_folder / claim_file(claim.uid)
            if not path.exists():
                if claim.uid not in self.went | self.ending:
                    raise Broken(f"{claim.text} is prepared on {claim.gpus}, and not described")
                continue
            described = {d["name"] for d in json.loads(path.read_text()).get("devices", ())}
            if missing := {cdi_name(claim, held) for held in claim.devices} - described:
                raise Broken(f"{missing} are not described")

    # -- the walk ----------------------------------------------------------------------------

    def actions(self) -> list[tuple[float, str, Callable[[], None]]]:
        """Return what can happen here, too: claims more often, other profiles less."""
        return [
            *((1 if name == "profile" else n, name, act) for n, name, act in super().actions()),
            (8, "publish more", self.publish),
            (4, "retire more", self.retire),
            (8, "allocate more", self.allocate),
            (10, "prepare again", self.prepare),
            (4, "hostile claim", self.prepare_hostile),
            (4, "scan", self.scan),
            (3, "reload", self.reload),
            (2, "plug", self.plug),
            (2, "/run", self._toggle_run),
            (1, "damage", self._damage),
        ]

    def _damage(self) -> None:
        """Somebody else damages a specification, or removes it."""
        for path in sorted(self.settings.cdi_folder.glob("*.json")):
            if self.random.random() < 0.3:
                text = path.read_bytes()
                how = self.random.choice((None, b"", b"{}", b"[", text[: len(text) // 2]))
                path.unlink()
                if how is not None:
                    path.write_bytes(how)
                self.is_stale = True
                self.log.append(f"  {path.name}: {how!r:.60}")

    def _toggle_process(self) -> None:
        if self.busy or self.random.random() < 0.3:
            super()._toggle_process()

    def _toggle_fault(self) -> None:
        """A GPU ceases to answer, or all answer again."""
        if self.faulty:
            self.faulty.clear()
        else:
            super()._toggle_fault()

    def _toggle_run(self) -> None:
        """The file system of specifications and shares is full, or no more."""
        self.run_full = not self.run_full and self.random.random() < 0.5

    def settle(self) -> None:
        """Bring all GPUs back as well."""
        self.run_full = False
        self.faulty.clear()
        if not all(map(self.nvml.shows, self.gpus)):
            self._load(self.random.sample(sorted(self.gpus), self.gpu_count))
        if not self.alive:
            self._start()
        super().settle()
        self.went.clear()
        left = list(self.settings.cdi_folder.glob("*-claim-*"))
        left += [p for p in self.settings.share_folder.glob("shares/*") if "claim" in p.name]
        if left:
            raise Broken(f"of claims that were released there are {left}")


def devices_of(gpu: Any) -> list[dict[str, Any]]:
    """Return the devices of an offered GPU by name alone."""
    return [{"name": device.name} for device in gpu.gpu.devices]


def raw_claim(claim: HeldClaim) -> dict[str, Any]:
    """Return a ResourceClaim as the API server has it."""
    results = [
        {
            "request": held.request,
            "driver": CLAIMS_DRIVER,
            "pool": held.pool,
            "device": held.device.name,
            **({"shareID": held.share_id} if held.share_id else {}),
            **(
                {"consumedCapacity": {"memory": f"{held.memory_mib}Mi", "cores": str(held.cores)}}
                if held.device.share is not None
                else {}
            ),
        }
        for held in claim.devices
    ]
    pods = [{"resource": "pods", "name": name, "uid": uid} for name, uid in claim.pods]
    return {
        "metadata": {"name": claim.name, "namespace": claim.namespace, "uid": claim.uid},
        "spec": {"devices": {"requests": []}},
        "status": {"allocation": {"devices": {"results": results}}, "reservedFor": pods},
    }


_NESTED: Any = json.loads("[" * 400 + "]" * 400)
_ODD: tuple[Any, ...] = (
    None, "", "x", 0, -1, 1 << 70, 1e308, True, [], {}, [None], {"": None}, _NESTED,
    "../../../etc", "a/b/c", "a\nb", "\x00", "é" * 300, "GPU-1", "-1", "1e99999", "9" * 5000, "1n",
    "gpu-1-share", "node/divvy", "divvy.gpu", "0Mi", "99999999Ti",
)  # fmt: skip


def hostile(random: Random, claim: dict[str, Any]) -> Any:
    """Return a claim in which some values are what they should not be, or are missing."""
    changed: Any = copy.deepcopy(claim)
    for _ in range(random.choice((0, 1, 1, 1, 2, 3))):
        places = list(_places(changed))
        if not places:
            return changed
        owner, key = random.choice(places)
        way = random.random()
        if way < 0.15:
            del owner[key]
        elif way < 0.3 and isinstance(owner, list):
            owner.append(copy.deepcopy(owner[key]))
        else:
            owner[key] = copy.deepcopy(random.choice(_ODD))
    return changed


def _places(value: Any, depth: int = 0) -> Iterator[tuple[Any, Any]]:
    if depth > 8:
        return
    keys: Any = value if isinstance(value, dict) else range(len(value))
    for key in list(keys):
        yield value, key
        if isinstance(value[key], dict | list):
            yield from _places(value[key], depth + 1)


def _limits(mounts: tuple[Mount, ...]) -> Path | None:
    return next((Path(mount.host) for mount in mounts if mount.path == LIMITS), None)


def _settings(folder: Path) -> Settings:
    libraries = folder / "root/usr/lib64"
    libraries.mkdir(parents=True)
    for name in (f"libcuda.so.{_VERSION}", f"libnvidia-ml.so.{_VERSION}", "libnvidia-ml.so.1"):
        (libraries / name).touch()
    for place in ("root/proc/driver/nvidia", "limiter", "state", "cdi", "tenants"):
        (folder / place).mkdir(parents=True)
    module = folder / "root/proc/driver/nvidia/version"
    module.write_text(f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {_VERSION}  x\n")
    for name in LIBRARIES:
        (folder / "limiter" / name).write_text(name)
    places = {
        "DIVVY_DRIVER_ROOT": "root",
        "DIVVY_CDI_FOLDER": "cdi",
        "DIVVY_STATE_FOLDER": "state",
        "DIVVY_CONTAINERD_FOLDER": "containerd",
        "DIVVY_HOOK": "no-hook",
        "DIVVY_LIMITER": "limiter",
        "DIVVY_SHARE_FOLDER": "tenants",
    }
    paths = {name: str(folder / place) for name, place in places.items()}
    assert f"{NODE}/divvy" == POOL
    return settings_from(
        {"NODE_NAME": NODE, "NAMESPACE": "divvy-system", "POD_NAME": "divvy-agent-x", **paths}
    )


@contextmanager
def reloaded_node(seed: int) -> Iterator[ReloadedNode]:
    """Give a node with its files in a folder of its own."""
    with TemporaryDirectory() as folder:
        node: ReloadedNode | None = None

        def fsync(opened: int) -> None:
            if node is not None:
                node.fsync(opened)

        logging.disable()
        # A claim that nobody asks for again keeps its problem for minutes, of which this has none.
        at_once = mock.patch("divvy.agent.claims.preparation._ASKED_AGAIN_SECONDS", 0.0)
        with mock.patch("os.fsync", fsync), at_once:
            node = ReloadedNode(seed, Path(folder))
            try:
                yield node
            finally:
                node.loop.close()
                logging.disable(logging.NOTSET)


def walk(seed: int, steps: int) -> Counter[str]:
    """Walk so many steps; raises Broken, with the last steps."""
    with reloaded_node(seed) as node:
        try:
            return walk_machine(node, seed, steps)
        except Broken:
            raise
        except Exception as error:
            last = "\n".join(node.log[-40:])
            raise Broken(f"seed {seed}: {error!r}\n{last}\n{traceback.format_exc()}") from error


if __name__ == "__main__":
    main(walk)
