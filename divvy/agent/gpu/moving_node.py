"""``MovingNode``: the GPUs of a node that go from the device plugin to claims, together."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from divvy.agent.gpu.change_policy import Policy
from divvy.agent.gpu.checkpoint import Checkpoint
from divvy.agent.gpu.hardware import Snapshot
from divvy.agent.gpu.holders import Held, on_gpu
from divvy.agent.gpu.move_to_claims import MoveToClaims, continued
from divvy.agent.gpu.owner import ClaimsView
from divvy.agent.gpu.transition import Facts, cannot_change, holders_in_the_way, moves_to_claims
from divvy.model import DesiredGpu


@dataclass(frozen=True)
class MovingNode:
    """The GPUs of a node that claims should have and have not yet.

    ``holders`` are of each, by UUID; ``gone`` those of the ones that do not answer, and that the
    device plugin advertised last. ``committed``: the node cannot go back to the device plugin.
    ``troubled`` may never get to claims.
    """

    holders: Mapping[str, Held]
    gone: Mapping[str, Held]
    troubled: frozenset[str]
    committed: bool


def moving_node(
    layouts: Iterable[DesiredGpu],
    snapshot: Snapshot,
    claims: ClaimsView,
    applying: Collection[str],
    checkpoint: Checkpoint,
    open_facts: Mapping[str, Facts],
    kubelet: Held,
) -> MovingNode:
    """Return what of a node claims should have and have not yet.

    ``applying`` are GPUs whose plan is being executed; ``open_facts`` those that can be decided
    about, by UUID; ``kubelet`` are the holders that the kubelet knows.
    """
    holders: dict[str, Held] = {}
    gone: dict[str, Held] = {}
    troubled = set()
    known, has_moved = False, False
    for layout in layouts:
        uuid = layout.uuid
        gpu, applied = snapshot.gpu(uuid), checkpoint.applied.get(uuid)
        if layout.claims is None or gpu is None:
            continue
        was_plugins = applied is not None and applied.claims is None
        has_moved |= claims.has(uuid) or (applied is not None and not was_plugins)
        if claims.has(uuid):
            continue
        known |= was_plugins
        facts = open_facts.get(uuid)
        on_it = on_gpu(gpu, kubelet)
        holders[uuid] = on_it if facts is None else holders_in_the_way(facts)
        if not gpu.present and uuid not in applying:
            gone[uuid] = on_it
        if not gpu.present or uuid in applying or (facts and cannot_change(facts)):
            troubled.add(uuid)
    committed = has_moved or not known
    if committed:
        troubled |= {uuid for uuid, held in holders.items() if held}
    return MovingNode(holders, gone, frozenset(troubled), committed)


def move_of(
    node: MovingNode,
    before: MoveToClaims | None,
    policy: Policy,
    now: float,
    *,
    holders_known: bool,
) -> MoveToClaims | None:
    """Return the move of the node to claims, None if nothing of it moves.

    ``before`` is what it was at the last look.
    """
    if not node.holders:
        return None
    troubled = node.troubled
    if before is not None and not holders_known:
        # Whoever holds them may still do so.
        troubled |= before.troubled.keys() & node.holders.keys()
    return continued(before, policy, troubled, now)


def moving_together(
    by_uuid: Mapping[str, Facts],
    node: MovingNode,
    move: MoveToClaims | None,
    excluded_from_move: frozenset[str],
) -> Mapping[str, Facts]:
    """Let the GPUs that go from the device plugin to claims wait for one another's holders.

    Claims get the GPUs of a node together. One that went ahead would serve no pod until the last
    holder of the others has ended. If some have gone already, each goes when it can.
    """
    together = dict(by_uuid)
    for uuid, facts in by_uuid.items():
        if not moves_to_claims(facts):
            continue
        others: Held = {
            device: holders
            for other, held in node.holders.items()
            if not node.committed and other not in {uuid, *excluded_from_move}
            for device, holders in held.items()
        }
        together[uuid] = replace(facts, elsewhere=others, move=move, committed=node.committed)
    return together
