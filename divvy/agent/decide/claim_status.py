"""How GPUs that are served by claims are, as the node's status tells it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from divvy.agent.decide.claim_mig import foreign_reason, mig_layout
from divvy.agent.decide.claim_record import ClaimRecord, OfferedGpu
from divvy.agent.decide.hardware import Snapshot
from divvy.model.contract import State

_MAX_NAMES = 10


@dataclass(frozen=True)
class ClaimsStatus:
    """State of one GPU, why, and the MIG instances that exist (None: MIG is off)."""

    state: State
    reason: str
    layout: Mapping[str, int] | None


def claims_status(
    record: ClaimRecord,
    wanted: Mapping[str, OfferedGpu],
    retiring: Collection[str],
    snapshot: Snapshot | None,
    registered: bool,
    too_small: Mapping[str, str],
) -> dict[str, ClaimsStatus]:
    """Return the state of every GPU that claims should have, by UUID.

    ``too_small`` says of a GPU what it lacks of its profile, which is no fault of the node.
    """
    found = {}
    for uuid in wanted:
        gpu = None if snapshot is None else snapshot.gpu(uuid)
        layout = None if gpu is None else mig_layout(gpu)
        state, reason = State.READY, ""
        if uuid not in record.offered:
            state, reason = State.CHANGING, "waiting for the kubelet to withdraw the old devices"
        elif not registered:
            state, reason = State.CHANGING, "the kubelet has not registered the claims driver yet"
        elif gpu is not None and (foreign := foreign_reason(gpu, record)):
            state, reason = State.DEGRADED, foreign
        elif uuid in retiring:
            claims = [claim.text for claim in record.of_gpu(uuid)]
            more = [f"{len(claims) - _MAX_NAMES} more"] if len(claims) > _MAX_NAMES else []
            held = ", ".join((*claims[:_MAX_NAMES], *more))
            state = State.WAITING
            reason = f"held by {held}" if held else "waiting for claims that were just allocated"
        reason = "; ".join(filter(None, (reason, too_small.get(uuid, ""))))
        found[uuid] = ClaimsStatus(state, reason, layout)
    return found
