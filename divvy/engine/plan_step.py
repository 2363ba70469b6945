"""Which step a resource needs: a decision on values."""

from __future__ import annotations

from dataclasses import dataclass

from divvy.engine.errors import StepFailed
from divvy.engine.goal import Goal
from divvy.engine.provider import Diff
from divvy.engine.state.resource import ResourceState


@dataclass(frozen=True)
class Step:
    """A planned step: "same", "create", "update" or "replace", and the paths that are the reason.

    ``before`` (replace only): the old resource is deleted first.
    """

    operation: str
    changed: tuple[str, ...] = ()
    replace: tuple[str, ...] = ()
    before: bool = False


def plan_step(
    goal: Goal, old: ResourceState | None, diff: Diff, drifted: tuple[str, ...] = ()
) -> Step:
    """Plan from what the program changed and what was changed outside; raises StepFailed."""
    if old is None:
        return Step("create")
    if diff.replace:
        if old.protect:
            raise StepFailed(
                f"{goal.name} is protected and cannot be replaced (because of "
                f"{', '.join(diff.replace)}): remove `protect` first"
            )
        delete_first = goal.delete_before_replace
        return Step(
            "replace",
            diff.changed,
            diff.replace,
            diff.before if delete_first is None else delete_first,
        )
    changed = tuple(sorted({*diff.changed, *drifted}))
    if changed or old.init_errors:
        return Step("update", changed)
    return Step("same")
