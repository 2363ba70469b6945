"""The node's status of GPUs that are served by claims."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from divvy.agent.claims.instance_plan import foreign_reason
from divvy.agent.claims.record import ClaimRecord
from divvy.agent.gpu.hardware import Snapshot
from divvy.agent.gpu.mig_plan import mig_layout
from divvy.agent.gpu.owner import Owner, Ownership
from divvy.model.api_names import State


@dataclass(frozen=True)
class ClaimsStatus:
    """State of one GPU, why, and the MIG instances that exist (None: MIG is off)."""

    state: State
    reason: str
    layout: Mapping[str, int] | None


def claims_status(
    record: ClaimRecord,
    owners: Mapping[str, Ownership],
    snapshot: Snapshot | None,
    registered: bool,
    missing_shares: Mapping[str, str],
) -> dict[str, ClaimsStatus]:
    """Return the state of every GPU that claims should have, by UUID.

    ``missing_shares`` says why a GPU offers no shares although its profile has them.
    """
    states = {}
    for uuid, ownership in owners.items():
        if ownership.target is not Owner.CLAIMS:
            continue
        gpu = None if snapshot is None else snapshot.gpu(uuid)
        state, reason = State.READY, ""
        if ownership.owner is not Owner.CLAIMS:
            state, reason = State.CHANGING, ownership.waits_for
        elif not registered:
            state, reason = State.CHANGING, "the kubelet has not registered the claims driver yet"
        elif gpu is not None and (foreign := foreign_reason(gpu, record)):
            state, reason = State.DEGRADED, foreign
        elif ownership.retiring:
            state, reason = State.WAITING, ownership.waits_for
        reason = "; ".join(filter(None, (reason, missing_shares.get(uuid, ""))))
        states[uuid] = ClaimsStatus(state, reason, None if gpu is None else mig_layout(gpu))
    return states
