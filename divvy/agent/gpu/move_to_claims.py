"""The time that a node moving to claims waits for a GPU that is in trouble.

Claims get the GPUs of a node together, once no pod holds any of them. A GPU that is lost, does not
answer or cannot be changed may never get there, and neither may a pod that hangs on it. So the node
moves without such a GPU once its deadline has passed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from divvy.agent.gpu.change_policy import Policy


@dataclass(frozen=True)
class MoveToClaims:
    """The move of a node: by which policy, since when, and since when each GPU is in trouble.

    ``troubled`` is by UUID. Another policy is another move, with a deadline of its own.
    """

    policy: Policy
    since: float
    troubled: Mapping[str, float] = field(default_factory=dict)

    def excluded_from_move(self, now: float) -> frozenset[str]:
        """Return the GPUs that the node waits for no longer."""
        return frozenset(
            uuid for uuid, since in self.troubled.items() if now >= self._deadline(since)
        )

    def _deadline(self, troubled_since: float) -> float:
        """Return when a GPU is left behind.

        A node may wait for its pods for days after its deadline, and must not move without their
        GPU because that one hangs for seconds.
        """
        deadline = self.since + self.policy.deadline
        if troubled_since < deadline:
            return deadline
        return troubled_since + self.policy.deadline


def continued(
    before: MoveToClaims | None, policy: Policy, troubled: Iterable[str], now: float
) -> MoveToClaims:
    """Return the move of a node now; ``before`` is what it was at the last look."""
    move = before
    if move is None or move.policy != policy:
        move = MoveToClaims(policy, now)
    return replace(move, troubled={uuid: move.troubled.get(uuid, now) for uuid in troubled})
