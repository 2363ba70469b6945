"""Which step a resource needs: the decision alone."""

from __future__ import annotations

from dataclasses import dataclass

from divvy.engine.errors import StepFailed
from divvy.engine.goal import Goal
from divvy.engine.kubernetes.compare import below
from divvy.engine.provider import Diff
from divvy.engine.state.resource import ResourceState
from divvy.engine.urn import is_default_provider, split_provider_reference


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
    goal: Goal, old: ResourceState | None, diff: Diff | None, drifted: tuple[str, ...] = ()
) -> Step:
    """Decide; ``diff`` is None for a component, which has nothing to change in place."""
    if old is None:
        return Step("create")
    if diff is None:
        return Step("same")
    if old.provider and _another_provider(old.provider, goal.provider):
        return _replace(goal, old, Diff(("provider",), ("provider",), diff.before))
    forced = tuple(
        path for path in diff.changed if any(below(path, root) for root in goal.replace_on_changes)
    )
    if "*" in goal.replace_on_changes:
        forced = diff.changed
    if diff.replace or forced:
        paths = tuple(sorted({*diff.replace, *forced}))
        return _replace(goal, old, Diff(diff.changed, paths, diff.before))
    changed = tuple(sorted({*diff.changed, *drifted}))
    if changed or old.init_errors:
        return Step("update", changed)
    return Step("same")


def _another_provider(before: str, after: str) -> bool:
    """Tell whether a resource moves to another cluster, as far as its provider's name says.

    Default providers of two SDK versions are one: an upgrade replaces nothing.
    """
    old, new = (split_provider_reference(reference)[0] for reference in (before, after))
    return old != new and not (is_default_provider(old) and is_default_provider(new))


def _replace(goal: Goal, old: ResourceState, diff: Diff) -> Step:
    if old.protect:
        raise StepFailed(
            f"{goal.name} is protected and cannot be replaced (because of "
            f"{', '.join(diff.replace)}): take `protect` off first"
        )
    wish = goal.delete_before_replace
    return Step("replace", diff.changed, diff.replace, diff.before if wish is None else wish)
