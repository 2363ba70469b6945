"""A pool on its way from the device plugin to claims and back: python -m tests.agent.pool_walk.

Nodes of ``node_machine`` under one stack file, and pods that come and go in a random order. Each
pod requests one whole GPU by resource name, which nodes of both kinds serve. What a pod waits for
is what is checked: no GPU stays idle beside it for longer than ``change.deadline`` allows.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from dataclasses import replace
from time import monotonic

from divvy.agent.claims.record import ClaimState, HeldClaim, HeldDevice
from divvy.agent.gpu.holders import Holder
from divvy.agent.gpu.owner import Owner
from tests.agent.node_machine import POOL, SETTLED, Broken, Machine

NODES = 3
DEADLINE = 12.0
_GPU = "nvidia.com/gpu"
# Two fences close, one look after the other, and a scheduler may be SETTLED seconds late.
_HAND_OVER = SETTLED + 6.0


class NodeOfPool(Machine):
    """One node of the pool, which pods leave and reach as a scheduler decides."""

    @property
    def idle(self) -> frozenset[str]:
        """Return the idle GPUs."""
        used = {self._gpu_of(holder.device_id) for holder in self.pods.values()}
        return frozenset(self.gpus) - used - self._claimed()

    @property
    def holders(self) -> list[str]:
        """Return the pods of the node."""
        return [*self.pods, *self.allocated]

    def place(self, pod: str) -> bool:
        """Give a pod a GPU of the device plugin, or a claim to one; tell whether there is one."""
        listed = [d for r in self.kubelet_resources if r.name == _GPU for d in r.devices]
        free = [device for device in listed if device.gpu in self.idle]
        if free:
            device = self.random.choice(free)
            self.pods[pod] = Holder(pod, "main", _GPU, device.id, pod)
            return True
        if listed:
            # Where the node advertises the resource, its pods do not become claims.
            return False
        slices = self.slices[-1]
        for uuid, offered in slices.offered.items():
            if uuid in slices.tainted or uuid not in self.idle:
                continue
            device = next(device for device in offered.gpu.devices if device.whole)
            held = HeldDevice("gpu", POOL, device, offered.sharing)
            self.allocated[pod] = HeldClaim(pod, "team", pod, (held,), ((pod, pod),))
            return True
        return False

    def end(self, pod: str) -> None:
        """End a pod."""
        self.pods.pop(pod, None)
        self.allocated.pop(pod, None)
        left = {uid: claim for uid, claim in self.record.claims.items() if uid != pod}
        self._keep(left)

    def second(self) -> None:
        """Let a second pass: whatever is sent arrives, whatever is begun ends."""
        self.now += 1.0
        parts = [self._prepare_all, self.look, self.publish, self.retire]
        self.random.shuffle(parts)
        for part in parts:
            part()
            while self.sent:
                self.take_list()
            while self.execution:
                self.go_on()
        self.check()

    @property
    def has_moved(self) -> bool:
        """Return whether each GPU belongs to whom the stack file gives it."""
        owners = [decision.ownership for decision in self.decider.decisions.values()]
        return bool(owners) and all(owner.owner is owner.target for owner in owners)

    @property
    def by_claims(self) -> bool:
        """Return whether claims own every GPU."""
        decided = self.decider.decisions.values()
        return all(decision.ownership.owner is Owner.CLAIMS for decision in decided)

    def _prepare_all(self) -> None:
        new = {uid: claim for uid, claim in self.allocated.items() if uid not in self.record.claims}
        done = {
            uid: replace(claim, state=ClaimState.PREPARE_COMPLETED) for uid, claim in new.items()
        }
        self._keep({**self.record.claims, **done})

    def _keep(self, claims: dict[str, HeldClaim]) -> None:
        self.record = replace(self.record, claims=claims)


class Pool:
    """The nodes, and for how many seconds a GPU has been idle beside each pod that waits."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.nodes = [NodeOfPool(self.random.randrange(1 << 30)) for _ in range(NODES)]
        self.waiting: dict[str, float] = {}
        self.counts: Counter[str] = Counter()
        self.longest = 0.0
        self._numbers = iter(range(sys.maxsize))

    def configure(self, profile: str, policy: str) -> None:
        """Give every node the same stack file at once, as ``divvy up`` does."""
        for node in self.nodes:
            node.profile = profile
            node.change = {"policy": policy, "deadline": f"{DEADLINE:.0f}s"}

    def second(self, *, arrivals: bool) -> None:
        """Let a second pass in which pods come, end, and are placed."""
        for node in self.random.sample(self.nodes, NODES):
            node.second()
            for pod in node.holders:
                if self.random.random() < 0.08:
                    node.end(pod)
        if arrivals and self.random.random() < 0.4:
            self.waiting[f"pod-{next(self._numbers)}"] = 0.0
            self.counts["pods"] += 1
        self._place()

    def _place(self) -> None:
        """Place who waits, the oldest first; raises Broken if one waits beside an idle GPU."""
        for pod in list(self.waiting):
            if any(node.place(pod) for node in self.random.sample(self.nodes, NODES)):
                del self.waiting[pod]
        idle = sum(len(node.idle) for node in self.nodes)
        for pod in list(self.waiting)[:idle]:
            self.waiting[pod] += 1.0
            self.longest = max(self.longest, self.waiting[pod])

    def move(self, profile: str, policy: str) -> None:
        """Give the nodes another profile; raises Broken if they do not get there."""
        self.configure(profile, policy)
        for _ in range(self.random.randrange(20, 60)):
            self.second(arrivals=True)
        # No more pods come: whoever waits is served, and the last node moves when the last ends.
        for _ in range(200):
            self.second(arrivals=False)
            if not self.waiting and all(node.has_moved for node in self.nodes):
                break
        else:
            lines = [
                f"{decision.ownership.line}: {decision.state} {decision.reason}"
                for node in self.nodes
                for decision in node.decider.decisions.values()
            ]
            raise Broken("\n".join([f"{len(self.waiting)} pods wait", *lines]))
        claims = profile != "whole"
        if not all(node.by_claims is claims for node in self.nodes):
            raise Broken(f"a node is not where {profile} has it")
        self.counts["moves"] += 1


def walk_pool(seed: int) -> Pool:
    """Take a pool from the device plugin to claims and back; raises Broken."""
    pool = Pool(seed)
    policy = pool.random.choice(("wait", "never"))
    try:
        for profile in ("whole", "on-demand", "whole"):
            pool.move(profile, policy)
    except Broken as broken:
        raise Broken(f"seed {seed}, {policy}: {broken}") from broken
    allowed = _HAND_OVER + (DEADLINE if policy == "wait" else 0.0)
    if pool.longest > allowed:
        raise Broken(
            f"seed {seed}, {policy}: a pod waited {pool.longest:.0f} s beside an idle GPU, not "
            f"{allowed:.0f}"
        )
    return pool


if __name__ == "__main__":
    first, number = map(int, sys.argv[1:])
    began = monotonic()
    pools = []
    for chosen in range(first, first + number):
        try:
            pools.append(walk_pool(chosen))
        except Broken as problem:
            print(problem)
    placed = sum(pool.counts["pods"] for pool in pools)
    print(
        f"{len(pools)} of {number} orders, {placed} pods, the longest wait beside an idle GPU "
        f"{max((pool.longest for pool in pools), default=0):.0f} s, {monotonic() - began:.0f} s"
    )
