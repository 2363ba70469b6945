"""Which step a resource needs: the decision alone."""

from __future__ import annotations

from dataclasses import dataclass

from divvy.engine.errors import StepFailed
from divvy.engine.goal import Goal
from divvy.engine.property_path import concerns
from divvy.engine.provider import Diff
from divvy.engine.state.resource import ResourceState


@dataclass(frozen=True)
class Step:
    """A decided step: "same", "create", "update" or "replace", and the paths that say why.

    ``before`` (replace only): the old resource goes first.
    """

    operation: str
    changed: tuple[str, ...] = ()
    replace: tuple[str, ...] = ()
    before: bool = False


def plan_step(
    goal: Goal, old: ResourceState | None, diff: Diff, drifted: tuple[str, ...] = ()
) -> Step:
    """Decide by what the program changed, and by what was changed outside."""
    if old is None:
        return Step("create")
    forced = tuple(
        path
        for path in diff.changed
        if any(concerns(pattern, path) for pattern in goal.replace_on_changes)
    )
    if diff.replace or forced:
        paths = tuple(sorted({*diff.replace, *forced}))
        return _replace(goal, old, Diff(diff.changed, paths, diff.before))
    changed = tuple(sorted({*diff.changed, *drifted}))
    if changed or old.init_errors:
        return Step("update", changed)
    return Step("same")


def plan_move(goal: Goal, old: ResourceState) -> Step:
    """Decide for a resource that goes to another cluster: the old one is never in the way."""
    return _replace(goal, old, Diff(("provider",), ("provider",)), possible=False)


def _replace(goal: Goal, old: ResourceState, diff: Diff, *, possible: bool = True) -> Step:
    if old.protect:
        raise StepFailed(
            f"{goal.name} is protected and cannot be replaced (because of "
            f"{', '.join(diff.replace)}): remove `protect` first"
        )
    asked = goal.delete_before_replace if possible else None
    return Step("replace", diff.changed, diff.replace, diff.before if asked is None else asked)
