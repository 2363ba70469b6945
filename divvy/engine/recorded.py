"""What a step leaves in the stack's state, and what a provider is shown of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from divvy.engine.goal import Goal
from divvy.engine.state.resource import ResourceState, now
from divvy.engine.values import secret, unwrapped


def recorded(
    goal: Goal,
    old: ResourceState | None,
    identity: str,
    inputs: dict[str, Any],
    outputs: dict[str, Any],
) -> ResourceState:
    """Return a resource as it is recorded after a step to its goal."""
    time = now()
    return ResourceState(
        urn=goal.urn,
        type=goal.type,
        custom=goal.custom,
        id=identity,
        inputs=inputs,
        outputs=outputs,
        parent=goal.parent,
        provider=goal.provider if goal.custom else "",
        dependencies=goal.dependencies,
        property_dependencies=goal.property_dependencies,
        protect=goal.protect,
        retain_on_delete=goal.retain_on_delete,
        additional_secret_outputs=goal.additional_secret_outputs,
        custom_timeouts=goal.timeouts,
        created=time if old is None else old.created,
        modified=time,
    )


def differs(new: ResourceState, old: ResourceState) -> bool:
    """Tell whether a resource is recorded otherwise, times apart."""
    return replace(new, modified="", created="") != replace(old, modified="", created="")


def plain(resource: ResourceState) -> ResourceState:
    """Return a resource without secret marks, as a provider is shown it."""
    return replace(
        resource,
        inputs=unwrapped(dict(resource.inputs)),
        outputs=unwrapped(dict(resource.outputs)),
    )


def with_secret_outputs(outputs: dict[str, Any], goal: Goal) -> dict[str, Any]:
    """Mark the outputs that the program asks to keep secret."""
    return {
        key: secret(value) if key in goal.additional_secret_outputs else value
        for key, value in outputs.items()
    }
