"""The users of claims: the containers that the kubelet lists with each claim."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from divvy.agent.claims.claim_shares import is_limited
from divvy.agent.claims.offers import CLAIM_ID
from divvy.agent.claims.record import ClaimRecord, HeldClaim
from divvy.agent.gpu.holders import Holder
from divvy.agent.memory.memory_limit import ClaimLimits, Limit

# (namespace, claim) → (namespace/pod, container)
Containers = Mapping[tuple[str, str], Iterable[tuple[str, str]]]
_SOURCE = "the size of its share"


def with_current_pods(
    record: ClaimRecord, containers: Containers, active: Collection[str]
) -> ClaimRecord:
    """Return the record with the pods that use each claim now; ``active`` are all of the node.

    A claim is prepared once, for the first of its pods. Others start later, and may stay longer.
    """
    claims = {}
    for claim in record.claims.values():
        uids = {f"{claim.namespace}/{pod}": uid for pod, uid in claim.pods}
        users = {pod for pod, _ in containers.get((claim.namespace, claim.name), ())}
        users |= uids.keys() & set(active)
        pods = tuple((user.partition("/")[2], uids.get(user, "")) for user in sorted(users))
        claims[claim.uid] = replace(claim, pods=pods or claim.pods)
    return replace(record, claims=claims)


def named_holders(record: ClaimRecord, containers: Containers) -> tuple[Holder, ...]:
    """Return who holds each claim, by the claim's ID; a container is "" if none is known.

    If several containers of a pod have a claim, all of them are named.
    """
    holders = []
    for claim in record.claims.values():
        used = list(containers.get((claim.namespace, claim.name), ()))
        for pod, uid in claim.pods:
            name = f"{claim.namespace}/{pod}"
            mine = ", ".join(sorted({container for where, container in used if where == name}))
            holders.append(Holder(name, mine, "", f"{CLAIM_ID}{claim.uid}", uid))
    return tuple(holders)


def claim_pods(record: ClaimRecord, containers: Containers) -> dict[str, tuple[Holder, ...]]:
    """Return every pod that may use a claim, by the claim's ID; no containers."""
    pods = {}
    for claim in record.claims.values():
        uids = {pod: "" for pod, _ in containers.get((claim.namespace, claim.name), ())}
        uids |= {f"{claim.namespace}/{pod}": uid for pod, uid in claim.pods}
        claim_id = f"{CLAIM_ID}{claim.uid}"
        pods[claim_id] = tuple(
            Holder(pod, "", "", claim_id, uid) for pod, uid in sorted(uids.items())
        )
    return pods


def claim_limits(record: ClaimRecord, containers: Containers) -> dict[str, ClaimLimits]:
    """Return what containers may use of each GPU by claims that are less than the GPU."""
    limits: dict[str, ClaimLimits] = {}
    for claim in record.claims.values():
        for uuid, mib in _sizes(claim).items():
            known = limits.get(uuid, ClaimLimits((), {}))
            holders = tuple(
                Holder(pod, container, claim.text, f"{CLAIM_ID}{claim.uid}")
                for pod, container in containers.get((claim.namespace, claim.name), ())
            )
            limits[uuid] = ClaimLimits(
                (*known.holders, *holders),
                {**known.limits, claim.text: Limit(mib, source=_SOURCE)},
            )
    return limits


def _sizes(claim: HeldClaim) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for held in claim.devices:
        if is_limited(held):
            sizes[held.uuid] = sizes.get(held.uuid, 0) + held.memory_mib
    return sizes
