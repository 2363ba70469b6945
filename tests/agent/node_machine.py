"""One node as a state machine, in this process: python -m tests.agent.node_machine SEED STEPS.

The agent's decisions (``DecisionRecord``, ``hand_over``, the plans of claims) meet a kubelet, a
scheduler, a driver and a disk that are values, each as late as it may be: the kubelet takes a list
when it likes, a scheduler allocates by slices that are three seconds old, plans end step by step,
and the agent dies between any two of its own steps. What is checked is told by ``Broken``.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Any

from divvy.agent.claims.conflicts import in_the_way
from divvy.agent.claims.instance_plan import (
    ForeignInstance,
    foreign_instances,
    instance_of,
    plan_device,
    plan_return,
)
from divvy.agent.claims.record import (
    ClaimRecord,
    ClaimState,
    HeldClaim,
    HeldDevice,
    decoded,
    encoded,
)
from divvy.agent.decision_record import DecisionRecord
from divvy.agent.gpu.checkpoint import Checkpoint, misleading
from divvy.agent.gpu.desired import DesiredState, desired_state
from divvy.agent.gpu.hardware import Gpu, MigInstance, Snapshot
from divvy.agent.gpu.health import Health
from divvy.agent.gpu.holders import Holder, Remembered, by_uuid
from divvy.agent.gpu.mig_plan import MigPlan
from divvy.agent.gpu.node import NodeView
from divvy.agent.gpu.owner import (
    ClaimsView,
    KubeletView,
    Owner,
    Ownership,
    next_offered,
    retiring,
)
from divvy.agent.gpu.reconciliation import Observation, differing
from divvy.agent.plugin.inventory import Device, Resource, inventory
from divvy.model import canonical_json, model_of_product
from divvy.model.api_names import State
from divvy.model.claim_devices import LEAST_STEPS, ClaimDevice
from divvy.model.offered_gpu import OfferedGpu
from tests.agent.devices import gpu, snapshot

NODE, POOL, BOOT = "node", "node/divvy", "boot"
GPUS = 2
# A scheduler that has not heard of a taint may allocate for so long: Retirement waits for it.
SETTLED = 3.0
# Of the times at which the API server, the kubelet or the disk could fail, so many they do.
_TROUBLE = 0.25
_DEATHS = 0.05
PROFILES: Mapping[str, Any] = {
    "whole": {},
    "replicas": {"timeSlicing": {"replicas": 3}},
    "same-name": {"timeSlicing": {"replicas": 2, "renameByDefault": False}},
    "mig": {"mig": {"3g.20gb": 1, "1g.5gb": 3}},
    "one-mig": [{"devices": [0], "mig": {"2g.10gb": 3}}],
    "by-size": {"claims": {"shares": {}}},
    "on-demand": {"claims": {"shares": {}, "mig": ["1g.5gb", "2g.10gb", "3g.20gb"]}},
    "claims-mig": {"claims": {"mig": ["1g.5gb", "3g.20gb"]}},
}
SILENT = "device holders cannot be determined: the kubelet does not answer"


class Broken(AssertionError):
    """A promise is not kept."""


class Killed(Exception):
    """The agent dies here."""


class Disk:
    """The agent's checkpoint, as its file would be read; ``full``: nothing can be saved."""

    def __init__(self) -> None:
        self.saved = Checkpoint()
        self.full = False
        self.problem = ""

    def save(self, checkpoint: Checkpoint) -> None:
        if self.full and checkpoint != self.saved:
            raise OSError("no space left on device")
        self.saved = checkpoint


@dataclass(frozen=True)
class Published:
    """The slices of a moment: what is offered, and which GPUs are tainted."""

    when: float
    offered: Mapping[str, OfferedGpu] = field(default_factory=dict)
    tainted: frozenset[str] = frozenset()


@dataclass
class Execution:
    """A plan under way: the changes of the hardware that are still to be made."""

    uuid: str
    steps: list[Callable[[], None]]


class Machine:
    """A node, its kubelet, a scheduler and the agent; ``step`` does one thing at random."""

    gpu_count = GPUS
    profiles = PROFILES

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now = 0.0
        self.counts: Counter[str] = Counter()
        self.log: list[str] = []
        self._numbers = iter(range(1, sys.maxsize))
        # The hardware.
        self.gpus: dict[str, Gpu] = {f"GPU-{index}": gpu(index) for index in range(self.gpu_count)}
        self.busy: set[str] = set()
        self.faulty: set[str] = set()
        self.orphans: set[int] = set()
        # MIG devices, and claims on such, that went with a driver: nobody took them from a holder.
        self.went: set[str] = set()
        # The kubelet.
        self.kubelet_resources: tuple[Resource, ...] = ()
        self.pods: dict[str, Holder] = {}
        self.kubelet_answers = True
        # The API server: claims by UID, and the slices of the last seconds, the newest last.
        self.api_away = False
        self.allocated: dict[str, HeldClaim] = {}
        self.slices = [Published(-SETTLED)]
        # The agent's disk.
        self.disk = Disk()
        self.record = ClaimRecord()
        self.profile = "whole"
        self.change: Mapping[str, Any] = {}
        self._start()

    # -- the agent ---------------------------------------------------------------------------

    def _start(self) -> None:
        """Begin with what is on the disk alone."""
        self.alive = True
        self.decider = DecisionRecord(self.disk, BOOT, {})  # type: ignore[arg-type]
        self.desired = DesiredState()
        self.listed: tuple[Resource, ...] = ()
        # An agent that starts registers its resources again, and lists what it has decided so far.
        self.sent: list[tuple[Resource, ...]] = [()]
        self.execution: dict[str, Execution] = {}
        self.retiring: frozenset[str] = frozenset()
        self.tainted_since: float | None = None
        self.unallocated: frozenset[str] = frozenset()
        self.record = decoded(encoded(self.record))
        self.waits: Counter[str] = Counter()

    def _snapshot(self) -> Snapshot:
        return snapshot(
            *(
                replace(gpu, fault="it does not answer" if uuid in self.faulty else "")
                for uuid, gpu in self.gpus.items()
            )
        )

    def look(self, dies_at: int = -1) -> None:
        """Reconcile once, as ``Agent._reconcile`` does; the agent may die after any part."""
        parts = [self._decide, self._list, self._offer, self._apply]
        for at, part in enumerate(parts):
            part()
            self.check()
            if at == dies_at:
                raise Killed

    def _decide(self) -> None:
        seen = self._snapshot()
        config = {
            "profiles": {"p": self.profiles[self.profile]},
            "pools": {"all": {"profile": "p"}},
            "change": self.change,
        }
        node = NodeView("uid", {}, {})
        saved = self.decider.checkpoint
        self.desired = desired_state(canonical_json(config), NODE, node, seen, saved, BOOT)
        assert not self.desired.problem
        claims = ClaimsView(self.record, self.unallocated)
        kubelet: KubeletView | str = SILENT
        if self.kubelet_answers:
            ids = frozenset(device.id for _, device in _healthy(self.kubelet_resources))
            kubelet = KubeletView(by_uuid(self.pods.values()), ids, not self.sent)
        held = {} if isinstance(kubelet, str) else kubelet.held
        busy = {
            decision.uuid: frozenset({decision.uuid} & self.busy) - held.keys()
            for decision in differing(self.desired, seen, claims)
        }
        observed = Observation(
            seen,
            kubelet,
            api_in_touch=not self.api_away,
            busy=busy,
            applying=frozenset(self.execution),
            claims=claims,
        )
        self.decider.decide(self.desired, observed, node, Health(), Remembered(), self.now)
        self._check_reasons(observed)

    def _list(self) -> None:
        advertised = [decision.advertise for decision in self.decider.decisions.values()]
        unhealthy = dict.fromkeys(self.faulty, "it does not answer")
        listed = inventory(advertised, self._snapshot(), unhealthy)
        if _ids(listed) != _ids(self.listed):
            self.sent.append(listed)
        self.listed = listed

    def _offer(self) -> None:
        owners = self.decider.owners
        if not self.disk.full:
            before = self.record.offered.keys()
            self.record = replace(self.record, offered=next_offered(owners, self.record))
            decided = self.decider.decisions
            excluded_from_move = {
                uuid for uuid, decision in decided.items() if decision.excluded_from_move
            }
            others = {
                self._gpu_of(holder.device_id) for holder in self.pods.values()
            } - excluded_from_move
            if self.record.offered.keys() - before and (others or _healthy(self.kubelet_resources)):
                raise Broken("a GPU is offered to claims while the node has devices or pods")
        leaving = retiring(owners, self.record)
        if leaving != self.retiring:
            self.tainted_since = None
        self.retiring, self.unallocated = leaving, self.unallocated & leaving

    def _apply(self) -> None:
        for uuid, decision in self.decider.decisions.items():
            if decision.apply is not None and uuid not in self.execution:
                self._check_plan(uuid, decision.apply)
                self.execution[uuid] = Execution(uuid, self._changes(decision.apply))

    def retire(self) -> None:
        """Look who was allocated a GPU that retires, as ``Retirement.run`` does."""
        if self.api_away or not self.alive:
            return
        newest = self.slices[-1]
        if (
            not self.retiring
            or not newest.tainted >= self.retiring
            or (newest.offered != self.record.offered)
        ):
            self.tainted_since = None
            return
        if self.tainted_since is None:
            self.tainted_since = self.now
        if self.now - self.tainted_since < SETTLED:
            return
        names = {h.device.name for claim in self.allocated.values() for h in claim.devices}
        self.unallocated = frozenset(
            uuid
            for uuid in self.retiring
            if names.isdisjoint(d.name for d in self.record.offered[uuid].gpu.devices)
        )

    def publish(self) -> None:
        """Write the slices, if the API server can be reached."""
        if self.alive and not self.api_away:
            foreign = {u for u, g in self.gpus.items() if foreign_instances(g, self.record)}
            tainted = self.retiring | foreign | self.faulty
            self.slices.append(Published(self.now, self.record.offered, tainted))

    # -- the hardware ------------------------------------------------------------------------

    def _changes(self, plan: MigPlan) -> list[Callable[[], None]]:
        uuid = plan.gpu
        steps: list[Callable[[], None]] = [
            lambda instance=instance: self._destroy(uuid, instance)  # type: ignore[misc]
            for instance in plan.destroy
        ]
        if plan.mode is not None:
            steps.append(lambda: self._set_mode(uuid, enabled=plan.mode is True))
        steps += [lambda i=i: self._complete(uuid, i) for i in plan.complete]  # type: ignore[misc]
        steps += [
            lambda place=place: self._create(  # type: ignore[misc]
                uuid, place.profile, place.start, place.size
            )
            for place in plan.create
        ]
        return steps

    def _destroy(self, uuid: str, instance: MigInstance) -> None:
        holders = [h for h in self.pods.values() if h.device_id.split("::")[0] == instance.uuid]
        if holders:
            raise Broken(f"{instance.uuid}, held by {holders[0].pod}, is destroyed")
        for claim in self.record.claims.values():
            for held in claim.devices:
                mine = held.uuid == uuid and instance_of(self.gpus[uuid], held) == instance
                if mine and claim.is_prepared and held.has_instance:
                    raise Broken(f"{instance.uuid}, held by {claim.text}, is destroyed")
        left = tuple(other for other in self.gpus[uuid].instances if other != instance)
        self.gpus[uuid] = replace(self.gpus[uuid], instances=left)

    def _set_mode(self, uuid: str, *, enabled: bool) -> None:
        if holders := self._pods_on(uuid):
            raise Broken(f"{uuid}, held by {holders[0].pod}, changes its MIG mode")
        for claim in self.record.of_gpu(uuid):
            if claim.is_prepared:
                raise Broken(f"{uuid}, held by {claim.text}, changes its MIG mode")
        if uuid in self.busy:
            raise Broken(f"{uuid}, which a process uses, changes its MIG mode")
        self.gpus[uuid] = replace(
            self.gpus[uuid], mig_mode=enabled, mig_pending=enabled, instances=()
        )

    def _create(self, uuid: str, profile: str, start: int, size: int) -> None:
        number = next(self._numbers)
        model = model_of_product(self.gpus[uuid].product, self.gpus[uuid].memory_mib)
        assert model is not None
        assert model.mig is not None
        known = model.mig.profile(profile)
        assert known is not None
        mine = range(start, start + size)
        for instance in self.gpus[uuid].instances:
            if not set(mine).isdisjoint(range(instance.start, instance.start + instance.size)):
                raise Broken(f"{profile} at {start} of {uuid} overlaps {instance.uuid}")
        created = MigInstance(
            number,
            known.profile_id,
            start,
            size,
            ci=0,
            uuid=f"MIG-{number}",
            gi_cap=2 * number,
            ci_cap=2 * number + 1,
        )
        instances = (*self.gpus[uuid].instances, created)
        self.gpus[uuid] = replace(self.gpus[uuid], instances=instances)

    def _complete(self, uuid: str, instance: MigInstance) -> None:
        done = replace(instance, ci=0, uuid=f"MIG-{next(self._numbers)}")
        instances = tuple(
            done if other == instance else other for other in self.gpus[uuid].instances
        )
        self.gpus[uuid] = replace(self.gpus[uuid], instances=instances)

    def go_on(self) -> None:
        """Make the next change of a plan under way."""
        if not self.execution:
            return
        execution = self.random.choice(list(self.execution.values()))
        if execution.steps:
            execution.steps.pop(0)()
        if not execution.steps:
            del self.execution[execution.uuid]

    # -- the kubelet -------------------------------------------------------------------------

    def take_list(self) -> None:
        """Take the next list that the agent has sent."""
        if self.alive and self.sent:
            self.kubelet_resources = self.sent.pop(0)

    def admit(self) -> None:
        """Allocate a device to a new pod; the agent refuses what it lists no more."""
        if not self.alive:
            return
        used = {holder.device_id for holder in self.pods.values()}
        known = {(resource.name, device.id) for resource, device in _healthy(self.listed)}
        free = [
            (resource, device)
            for resource, device in _healthy(self.kubelet_resources)
            if device.id not in used and (resource.name, device.id) in known
        ]
        if not free:
            return
        resource, device = self.random.choice(free)
        if device.gpu in self._claimed():
            raise Broken(f"{device.id} is allocated to a pod, and claims have {device.gpu}")
        for other in self.pods.values():
            if self._gpu_of(other.device_id) == device.gpu:
                self._check_beside(other, resource.name, device.id)
        name = f"team/pod-{next(self._numbers)}"
        self.pods[name] = Holder(name, "main", resource.name, device.id, name)
        self.counts["pods"] += 1

    def _check_beside(self, other: Holder, resource: str, device_id: str) -> None:
        """Two pods share a GPU as replicas of one device, or with a MIG device each."""
        mine, theirs = device_id.split("::")[0], other.device_id.split("::")[0]
        replicas = mine == theirs and "::" in device_id and "::" in other.device_id
        instances = mine != theirs and mine.startswith("MIG") and theirs.startswith("MIG")
        if not (replicas and resource == other.resource) and not instances:
            raise Broken(f"{device_id} is given out beside {other.device_id}, held by {other.pod}")

    def end_pod(self) -> None:
        """End a pod."""
        if self.pods:
            del self.pods[self.random.choice(list(self.pods))]

    # -- the scheduler, and claims -----------------------------------------------------------

    def allocate(self) -> None:
        """Allocate a device by slices that may be three seconds old."""
        at = len(self.slices) - 1
        while at > 0 and self.slices[at].when > self.now - SETTLED and self.random.random() < 0.5:
            at -= 1
        view = self.slices[at]
        offers = [gpu for uuid, gpu in view.offered.items() if uuid not in view.tainted]
        if not offers:
            return
        offered = self.random.choice(offers)
        held = self._held_device(offered, self.random.choice(offered.gpu.devices))
        number = next(self._numbers)
        claim = HeldClaim(f"c{number}", "team", f"c{number}", (held,), ((f"p{number}", "u"),))
        # What it sees of claims is newer than what it sees of slices: it writes them itself.
        if in_the_way(claim, self.allocated.values(), view.offered):
            return
        if holders := self._pods_on(offered.uuid):
            raise Broken(f"{held.device.name} is allocated, and {holders[0].pod} has the GPU")
        listed = {d.gpu for r in (*self.listed, *self.kubelet_resources) for d in r.devices}
        if self.alive and offered.uuid in {d.gpu for r in self.listed for d in r.devices}:
            raise Broken(f"{held.device.name} is allocated while the device plugin lists {listed}")
        self.allocated[claim.uid] = claim
        self.counts["claims"] += 1

    def _held_device(self, offered: OfferedGpu, device: ClaimDevice) -> HeldDevice:
        memory, cores, share_id = device.memory_mib, 100, ""
        if device.share is not None:
            parts = self.random.randint(1, 4)
            memory = max(LEAST_STEPS * device.share.step_mib, device.share.memory_mib // parts)
            cores, share_id = 100 // parts, str(next(self._numbers))
        sharing = replace(offered.sharing, memory_mib=memory, weight=cores)
        return HeldDevice("gpu", POOL, device, sharing, share_id)

    def prepare(self) -> None:
        """Prepare an allocated claim; the agent may die in the middle."""
        waiting = [c for uid, c in self.allocated.items() if not self._is_prepared(uid)]
        if not waiting or self.api_away or not self.alive or self.disk.full:
            return
        claim = self.random.choice(waiting)
        names = {d.name for offered in self.record.offered.values() for d in offered.gpu.devices}
        if not all(held.device.name in names for held in claim.devices):
            raise Broken(f"{claim.devices[0].device.name} is allocated and not offered any more")
        if in_the_way(claim, self.record.claims.values(), self.record.offered):
            return
        known = self.record.claims.get(claim.uid, claim)
        self._put(known)
        (held,) = known.devices
        if holders := self._pods_on(held.uuid):
            raise Broken(f"{claim.text} is prepared, and {holders[0].pod} has the GPU")
        if held.uuid in self.faulty:
            return  # the driver does not answer, and the kubelet asks again
        try:
            plan = plan_device(self.gpus[held.uuid], held, self.record)
        except ForeignInstance as problem:
            foreign = foreign_instances(self.gpus[held.uuid], self.record)
            if {instance.gi for instance in foreign} <= self.orphans:
                return  # the GPU is tainted, and the node's status says so
            raise Broken(f"{claim.text}: {problem}") from problem
        if plan.create and not held.has_instance:
            self._put(replace(known, devices=(replace(held, has_instance=True),)))
            if self.random.random() < 0.2:
                raise Killed
        if plan.mode is not None and held.uuid in self.busy:
            return  # the driver refuses, and the kubelet asks again
        for change in self._changes(plan):
            change()
            if self.random.random() < 0.1:
                raise Killed
        known = self.record.claims[claim.uid]
        self._put(replace(known, state=ClaimState.PREPARE_COMPLETED))
        self.counts["prepared"] += 1

    def unprepare(self) -> None:
        """Release a claim of a pod that ends; it may have been deleted by force before."""
        held = list(self.record.claims.values())
        if not held or not self.alive or self.disk.full:
            return
        claim = self.random.choice(held)
        self._put(replace(claim, state=ClaimState.PREPARE_STARTED))
        for device in claim.devices:
            for change in self._changes(plan_return(self.gpus[device.uuid], device)):
                change()
                if self.random.random() < 0.2:
                    raise Killed
        left = {uid: other for uid, other in self.record.claims.items() if uid != claim.uid}
        self.record = replace(self.record, claims=left)
        self.allocated.pop(claim.uid, None)

    def forget_claim(self) -> None:
        """Delete a claim: one that was not prepared, or by force."""
        if self.allocated:
            del self.allocated[self.random.choice(list(self.allocated))]

    def _put(self, claim: HeldClaim) -> None:
        self.record = replace(self.record, claims={**self.record.claims, claim.uid: claim})

    def _is_prepared(self, uid: str) -> bool:
        return uid in self.record.claims and self.record.claims[uid].is_prepared

    # -- what is promised --------------------------------------------------------------------

    def _claimed(self) -> set[str]:
        """Return the GPUs that a claim was allocated, or has something of."""
        claims = (*self.allocated.values(), *self.record.claims.values())
        return {uuid for claim in claims for uuid in claim.gpus}

    def _gpu_of(self, device_id: str) -> str:
        physical = device_id.split("::")[0]
        owners = (u for u, g in self.gpus.items() if any(i.uuid == physical for i in g.instances))
        return next(owners, physical)

    def _pods_on(self, uuid: str) -> list[Holder]:
        return [h for h in self.pods.values() if self._gpu_of(h.device_id) == uuid]

    def check(self) -> None:
        """Raise Broken if something held is not there, or a GPU is known to both allocators."""
        for holder in self.pods.values():
            uuid = self._gpu_of(holder.device_id)
            if uuid in self.went:
                continue
            if uuid not in self.gpus:
                raise Broken(f"{holder.device_id}, held by {holder.pod}, is not there")
            if not holder.device_id.startswith("MIG") and self.gpus[uuid].mig_mode:
                raise Broken(f"{uuid}, held by {holder.pod}, is in MIG mode")
        for claim in self.record.claims.values():
            for held in claim.devices if claim.is_prepared and claim.uid not in self.went else ():
                on = self.gpus[held.uuid]
                is_there = (
                    not on.mig_mode
                    if held.device.profile is None
                    else (instance_of(on, held) is not None)
                )
                if not is_there:
                    raise Broken(f"{held.device.name}, held by {claim.text}, is not there")
        listed = {device.gpu for resource in self.listed for device in resource.devices}
        listed |= {device.gpu for resource in self.kubelet_resources for device in resource.devices}
        if both := listed & (self.record.offered.keys() | self._claimed()):
            raise Broken(f"{', '.join(sorted(both))}: listed, and offered to claims or allocated")

    def _check_plan(self, uuid: str, plan: MigPlan) -> None:
        if uuid in self._claimed() or uuid in self.record.offered:
            raise Broken(f"{uuid} is repartitioned, and claims have it or may get it: {plan}")
        gpus = {device.id.split("::")[0] for r in self.kubelet_resources for device in r.devices}
        idle = set(plan.idle)
        if uuid in idle:
            idle |= {instance.uuid for instance in self.gpus[uuid].instances if instance.uuid}
        if both := gpus & idle:
            raise Broken(f"{both} is repartitioned while the kubelet may allocate it")
        if self.api_away:
            raise Broken(f"{uuid} is repartitioned while the API server is away")
        if uuid in misleading(self.disk.saved, self.decider.decisions):
            raise Broken(f"{uuid} is repartitioned, and the disk does not say so")

    def _check_reasons(self, observed: Observation) -> None:
        """Each GPU that is not as it should be says why, at the second look at the latest."""
        for uuid, decision in self.decider.decisions.items():
            owner = decision.ownership
            if decision.state is not State.READY and not decision.reason:
                raise Broken(f"{uuid} is {decision.state} without a reason")
            settled = owner.owner is owner.target and not owner.retiring
            if settled or owner.waits_for or decision.reason:
                self.waits[uuid] = 0
                continue
            self.waits[uuid] += 1
            if self.waits[uuid] > 1:
                raise Broken(f"{uuid} belongs to {owner.owner}, not to {owner.target}: no reason")
        for uuid, owner in self.decider.owners.items():
            self._check_owner(uuid, owner, observed)

    def _check_owner(self, uuid: str, owner: Ownership, observed: Observation) -> None:
        if owner.owner is not Owner.CLAIMS and (
            uuid in self._claimed() and uuid in observed.claims.record.offered
        ):
            raise Broken(f"{uuid} belongs to {owner.owner}, and a claim has it")
        if owner.owner is not Owner.PLUGIN and self._pods_on(uuid):
            raise Broken(f"{uuid} belongs to {owner.owner}, and a pod has it")

    # -- the walk ----------------------------------------------------------------------------

    def step(self) -> None:
        """Do one thing."""
        self.now += self.random.choice((0.0, 0.1, 0.5, 1.0, 4.0))
        actions = self.actions()
        weights = [weight for weight, _, _ in actions]
        _, name, action = self.random.choices(actions, weights)[0]
        self.log = [*self.log[-60:], f"{self.now:.1f} {name}"]
        try:
            action()
        except Killed:
            self._kill()
        self.check()

    def actions(self) -> list[tuple[float, str, Callable[[], None]]]:
        """Return what can happen: weight, name, what it does."""
        return [
            (24, "look", self._look),
            (8, "publish", self.publish),
            (6, "retire", self.retire),
            (8, "take list", self.take_list),
            (8, "go on", self.go_on),
            (8, "admit", self.admit),
            (3, "end pod", self.end_pod),
            (8, "allocate", self.allocate),
            (6, "prepare", self.prepare),
            (3, "unprepare", self.unprepare),
            (2, "forget claim", self.forget_claim),
            (3, "profile", self._change_profile),
            (0.5, "kill", self._kill),
            (2, "API server", self._toggle_api),
            (2, "kubelet", self._toggle_kubelet),
            (2, "disk", self._toggle_disk),
            (2, "process", self._toggle_process),
            (2, "fault", self._toggle_fault),
        ]

    def _look(self) -> None:
        if not self.alive:
            self._start()
        self.look(self.random.randrange(4) if self.random.random() < _DEATHS else -1)
        self.counts["looks"] += 1

    def _kill(self) -> None:
        """The agent dies; a change of the driver that is under way is made or not."""
        self.counts["kills"] += 1
        self.alive = False
        self.execution = {}
        self.listed, self.sent = (), []
        if self.random.random() < _DEATHS:
            # A user has removed it. What the device plugin made is no longer known.
            self.disk.saved = Checkpoint()
            self.orphans = {instance.gi for gpu in self.gpus.values() for instance in gpu.instances}

    def _change_profile(self) -> None:
        self.profile = self.random.choice(list(self.profiles))
        policy, deadline = self.random.choice(("wait", "never")), self.random.choice((10, 600))
        self.change = {"policy": policy, "deadline": f"{deadline}s"}
        self.log.append(f"  {self.profile}, {self.change}")
        self.counts["profiles"] += 1

    def _toggle_api(self) -> None:
        self.api_away = not self.api_away and self.random.random() < _TROUBLE

    def _toggle_kubelet(self) -> None:
        self.kubelet_answers = not self.kubelet_answers or self.random.random() > _TROUBLE

    def _toggle_disk(self) -> None:
        self.disk.full = not self.disk.full and self.random.random() < _TROUBLE

    def _toggle_process(self) -> None:
        """A process outside pods begins, or ends, to use a GPU that is not in MIG mode."""
        uuid = self.random.choice(list(self.gpus))
        if uuid in self.busy:
            self.busy.remove(uuid)
        elif not self.gpus[uuid].mig_mode and uuid not in self.execution:
            self.busy.add(uuid)

    def _toggle_fault(self) -> None:
        """A GPU ceases to answer, or answers again."""
        self.faulty ^= {self.random.choice(list(self.gpus))}

    def settle(self) -> None:
        """End everything and wait: each GPU belongs to whom it should, as it should."""
        self.api_away, self.kubelet_answers, self.disk.full = False, True, False
        self.busy.clear()
        self.faulty.clear()
        self.pods.clear()
        self.allocated.clear()
        for _ in range(40):
            self.now += 2.0
            if not self.alive:
                self._start()
            self.look()
            while self.sent:
                self.take_list()
            self.publish()
            self.retire()
            while self.execution:
                self.go_on()
            while self.record.claims:
                try:
                    self.unprepare()
                except Killed:
                    self._kill()
                    break
        for uuid, decision in self.decider.decisions.items():
            owner = decision.ownership
            if owner.owner is not owner.target or decision.state is not State.READY:
                raise Broken(f"{uuid} does not get there: {owner.line}, {decision.reason}")
            # What an agent that has lost its state finds may be a claim's: it stays.
            parts = [p for p in self.gpus[uuid].instances if p.gi not in self.orphans]
            if owner.owner is Owner.CLAIMS and parts:
                raise Broken(f"{parts[0].uuid} of the device plugin stays, and claims have {uuid}")
        self.counts["settled"] += 1


def walk(seed: int, steps: int) -> Counter[str]:
    """Walk so many steps; raises Broken, with the last steps."""
    return walk_machine(Machine(seed), seed, steps)


def walk_machine(machine: Machine, seed: int, steps: int) -> Counter[str]:
    """Walk a machine so many steps; raises Broken, with the last steps."""
    try:
        for number in range(1, steps + 1):
            machine.step()
            if number % 250 == 0:
                machine.settle()
    except Broken as broken:
        last = "\n".join(machine.log[-40:])
        raise Broken(f"seed {seed}, step {number}: {broken}\n{last}") from broken
    return machine.counts


def main(take: Callable[[int, int], Counter[str]]) -> None:
    """Take the walk that the command line names, and print what it met."""
    chosen, length = map(int, sys.argv[1:])
    began = monotonic()
    try:
        counts = take(chosen, length)
    except Broken as problem:
        sys.exit(str(problem))
    listed = ", ".join(f"{number} {name}" for name, number in sorted(counts.items()))
    print(f"seed {chosen}: {length} steps, {listed}, {monotonic() - began:.0f} s: nothing broken")


def _ids(resources: tuple[Resource, ...]) -> set[tuple[str, str, bool]]:
    return {(r.name, d.id, d.unhealthy is None) for r in resources for d in r.devices}


def _healthy(resources: tuple[Resource, ...]) -> list[tuple[Resource, Device]]:
    return [(r, d) for r in resources for d in r.devices if d.unhealthy is None]


if __name__ == "__main__":
    main(walk)
