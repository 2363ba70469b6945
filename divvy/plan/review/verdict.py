"""The verdict on a topology diff: the worst that it does to running pods, and to how many GPUs."""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter

from divvy.plan.predict.claimable import BY_CLAIMS
from divvy.plan.review.difference import Difference
from divvy.plan.review.level import Level, worst_level


@dataclass(frozen=True)
class Verdict:
    """The worst level of a diff's disruptions, and what it concerns.

    ``gpus`` and ``nodes`` count those of that level, ``pools`` are theirs in the diff's order;
    ``unpredicted`` says on which nodes are GPUs of that level that the prediction does not show.
    ``policy`` is the newer file's ``change.policy``; ``withdrawn`` are the resources that no node
    offers any longer; ``ends_clients``: all that MPS serves ends, whatever the level.
    """

    level: Level
    gpus: int
    nodes: int
    pools: tuple[str, ...]
    unpredicted: tuple[str, ...]
    policy: str
    withdrawn: tuple[str, ...]
    ends_clients: bool = False

    @property
    def severity(self) -> Level:
        """Return the level by which it is marked, and comes before others."""
        return "GPUs must be idle" if self.ends_clients else self.level


def verdict(difference: Difference) -> Verdict:
    """Judge a diff as a whole."""
    level = worst_level(
        (
            *(change.disruption.level for change in difference.changes),
            *difference.unpredicted.values(),
        )
    )
    # A pod that requests a resource by its name gets it from the device plugin or by a claim.
    before, after = (
        [total.resource.removesuffix(BY_CLAIMS) for total in difference.totals if number(total)]
        for number in (attrgetter("before"), attrgetter("after"))
    )
    changes = [change for change in difference.changes if change.disruption.level == level]
    return Verdict(
        level,
        gpus=sum(change.gpus for change in changes),
        nodes=sum(change.nodes for change in changes),
        pools=tuple(dict.fromkeys(change.pool for change in changes)),
        unpredicted=tuple(
            nodes for nodes, own in difference.unpredicted.items() if own == level != "none"
        ),
        policy=difference.policy,
        withdrawn=tuple(dict.fromkeys(name for name in before if name not in after)),
        ends_clients=difference.ends_clients,
    )
