"""The review of a change to several stack files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from divvy.plan.review.difference import Difference
from divvy.plan.review.level import LEVELS
from divvy.plan.review.verdict import verdict


@dataclass(frozen=True)
class Review:
    """The diffs of all stacks, and those that have no diff.

    ``deleted`` are the stacks whose file is gone, ``invalid`` those whose older file was not valid,
    with the reason.
    """

    differences: tuple[Difference, ...]
    deleted: tuple[str, ...]
    invalid: Mapping[str, str]

    def __bool__(self) -> bool:
        return bool(self.deleted or self.invalid or self.changed)

    @property
    def changed(self) -> tuple[Difference, ...]:
        """Return the diffs that are not empty, the most disruptive first."""
        return tuple(sorted(filter(None, self.differences), key=_by_verdict))

    @property
    def unchanged(self) -> tuple[str, ...]:
        """Return the names of the stacks that do not change."""
        return tuple(difference.after for difference in self.differences if not difference)


def _by_verdict(difference: Difference) -> tuple[int, int]:
    result = verdict(difference)
    return -LEVELS.index(result.severity), -result.gpus
