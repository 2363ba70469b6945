"""The live objects become the record: after an interrupted run, and by ``divvy refresh``."""

from __future__ import annotations

from dataclasses import replace

from divvy.engine.errors import EngineError
from divvy.engine.outcome import Outcome
from divvy.engine.property_path import changed_paths
from divvy.engine.providers import Providers
from divvy.engine.recorded import differs, marked, plain
from divvy.engine.run_state import RunState
from divvy.engine.state.resource import ResourceState, now
from divvy.engine.subset import PROVIDER_PREFIX
from divvy.engine.urn import urn_name
from divvy.engine.values import unwrapped, with_marks
from divvy.engine.watcher import StepReport


def recover(state: RunState, providers: Providers, outcome: Outcome) -> None:
    """Look for what interrupted creations have made: what exists becomes part of the state."""
    for pending in state.pending():
        if pending.operation != "create" or pending.resource is None:
            state.abandoned(pending.urn)
            continue
        try:
            provider = providers.of(pending.resource.provider)
            live = provider.find(plain(pending.resource))
        except EngineError as problem:
            name = urn_name(pending.urn)
            outcome.warn(pending.urn, f"the creation of {name} was interrupted: {problem}")
            continue
        if live is None:
            state.abandoned(pending.urn)
        else:
            inputs = pending.resource.inputs
            paths = provider.secret_paths(unwrapped(dict(inputs)))
            state.recovered(marked(live, paths, inputs))


def refresh(old: ResourceState, state: RunState, providers: Providers, outcome: Outcome) -> None:
    """Record one resource as it is live."""
    if not old.custom or old.external or old.type.startswith(PROVIDER_PREFIX):
        return
    if old.delete:
        return  # its successor has the same URN; it only waits for its deletion
    step = StepReport("refresh", old.urn, old)
    outcome.began(step)
    try:
        provider = providers.of(old.provider)
        answer = provider.read(plain(old))
    except EngineError as failure:
        outcome.failed(old.urn, str(failure), step)
        return
    if answer is None:
        state.gone(old)
        outcome.done(StepReport("delete", old.urn, old))
        return
    inputs, outputs = answer
    new = replace(old, inputs=inputs, outputs=outputs)
    new = marked(new, provider.secret_paths(inputs), old.inputs)
    new = replace(new, outputs=with_marks(new.outputs, old.outputs))
    changed = tuple(changed_paths(plain(old).inputs, inputs))
    if differs(new, old):
        new = replace(new, modified=now())
    state.is_now(new, old)
    outcome.done(StepReport("update" if changed else "same", old.urn, old, new, changed))
