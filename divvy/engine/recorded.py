"""The record of a step in the stack's state, and the plain values that a provider works on.

Secrets pass here: whatever comes back from a provider is marked again before anything else
sees it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from divvy.engine.goal import Goal
from divvy.engine.property_path import mapped
from divvy.engine.state.resource import ResourceState, now
from divvy.engine.values import (
    secret,
    secret_texts,
    unwrapped,
    with_marks,
    with_texts_marked,
)

# A shorter text is in too many others.
_MIN_LENGTH = 6


def recorded(
    goal: Goal,
    old: ResourceState | None,
    identity: str,
    inputs: Mapping[str, Any],
    outputs: Mapping[str, Any],
) -> ResourceState:
    """Return a resource as it is recorded after a step to its goal."""
    time = now()
    rest = {} if old is None else {**old.rest}
    rest.pop("ignoreChanges", None)
    if goal.ignore_changes:
        rest["ignoreChanges"] = list(goal.ignore_changes)
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
        additional_secret_outputs=goal.additional_secret_outputs,
        custom_timeouts=goal.timeouts,
        created=time if old is None else old.created,
        modified=time,
        rest=rest,
    )


def differs(new: ResourceState, old: ResourceState) -> bool:
    """Tell whether two records differ in more than their times."""
    return replace(new, modified="", created="") != replace(old, modified="", created="")


def plain(resource: ResourceState) -> ResourceState:
    """Return a resource without secret marks, for a provider."""
    return replace(
        resource,
        inputs=unwrapped(dict(resource.inputs)),
        outputs=unwrapped(dict(resource.outputs)),
    )


def marked(
    resource: ResourceState, paths: Iterable[str], *sources: Mapping[str, Any]
) -> ResourceState:
    """Return what a provider gave with its secrets marked.

    Secret is what was so in ``sources`` (inputs of the program, or recorded ones), what lies
    at ``paths``, and what the program asks for by name; in inputs, in outputs, and in the
    provider's copy of the inputs among them. So is an output that repeats a secret text.
    """
    inputs: Any = dict(resource.inputs)
    outputs: Any = dict(resource.outputs)
    for source in sources:
        inputs = with_marks(inputs, source)
    for path in paths:
        inputs = mapped(inputs, path, secret)
    outputs = with_marks(outputs, inputs)
    if "__inputs" in outputs:
        copy = with_marks(outputs["__inputs"], inputs)
        for path in paths:
            copy = mapped(copy, path, secret)
        outputs["__inputs"] = copy
    for path in paths:
        outputs = mapped(outputs, path, secret)
    # A secret may also turn up in kubectl's copy of an object, or in a condition's message.
    texts = {text for text in secret_texts(inputs) if len(text) >= _MIN_LENGTH}
    outputs = with_texts_marked(outputs, texts)
    for name in resource.additional_secret_outputs:
        if name in outputs:
            outputs[name] = secret(outputs[name])
    return replace(resource, inputs=inputs, outputs=outputs)
