"""One run over a stack: registrations in, steps decided, what the program dropped deleted."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from divvy.engine.errors import EngineError, NotSupported, StepFailed
from divvy.engine.executor import Executor
from divvy.engine.goal import Goal
from divvy.engine.outcome import Outcome
from divvy.engine.plan_step import Step, plan_move, plan_step
from divvy.engine.property_path import restored
from divvy.engine.provider import Diff, Provider
from divvy.engine.providers import Providers
from divvy.engine.recorded import marked, plain, recorded
from divvy.engine.refresh import recover, refresh
from divvy.engine.run_state import RunState
from divvy.engine.state.resource import ResourceState
from divvy.engine.step_runner import StepRunner
from divvy.engine.urn import (
    PROVIDER_PREFIX,
    STACK_TYPE,
    inherited_alias,
    is_default_provider,
    provider_reference,
    urn_name,
    urn_type,
)
from divvy.engine.values import UNKNOWN, has_unknown, unwrapped
from divvy.engine.watcher import StepReport, Summary, Watcher


class Deployment:
    """Holds the state while the program runs; methods are called from several threads.

    ``targets`` restricts changes to these URNs; all others stay as they are.
    """

    def __init__(
        self,
        state: RunState,
        providers: Providers,
        watcher: Watcher,
        executor: Executor,
        *,
        parallel: int = 16,
        targets: frozenset[str] = frozenset(),
    ) -> None:
        self._state = state
        self._providers = providers
        self._targets = targets
        self._outcome = Outcome(watcher)
        self._steps = StepRunner(state, providers, self._outcome, executor, parallel)
        self._lock = threading.Lock()
        self._default_providers = threading.Lock()
        self._aliases: dict[str, tuple[str, ...]] = {}
        self._owners: dict[tuple[str, str], str] = {}
        for resource in self._state.before():
            if resource.type.startswith(PROVIDER_PREFIX):
                providers.known(resource)

    @property
    def summary(self) -> Summary:
        """Return what the run has done so far."""
        return self._outcome.summary

    def recover(self) -> None:
        """Look for what cut-off creations have made: what there is becomes part of the state."""
        recover(self._state, self._providers, self._outcome)

    def refresh(self, resource: ResourceState) -> None:
        """Record one resource as it is live."""
        refresh(resource, self._state, self._providers, self._outcome)

    def register(self, goal: Goal) -> ResourceState:
        """Bring one resource to its goal and return how it is now."""
        self._state.claim(goal.urn)
        goal = replace(goal, aliases=self._all_aliases(goal))
        old = self._state.old(goal)
        try:
            if goal.type.startswith(PROVIDER_PREFIX):
                return self._register_provider(goal, old)
            if not goal.custom:
                return self._register_component(goal, old)
            return self._register_custom(goal, old)
        except EngineError as failure:
            self._outcome.failed(goal.urn, str(failure))
            raise

    def register_outputs(self, urn: str, outputs: Mapping[str, Any]) -> None:
        """Record the outputs of a component or of the stack."""
        known = self._state.registered(urn)
        if known is None:
            raise StepFailed(f"outputs for {urn}, which was never registered")
        if known.type == STACK_TYPE:
            self.summary.outputs = outputs
        self._state.is_now(replace(known, outputs=dict(outputs)), known)

    def read(self, wanted: ResourceState) -> ResourceState:
        """Read a resource that is not the stack's (``.get()``)."""
        self._state.claim(wanted.urn)
        provider = self._providers.of(wanted.provider)
        inputs = unwrapped(dict(wanted.inputs))
        if has_unknown(inputs) or wanted.id == UNKNOWN:
            return replace(wanted, outputs=inputs)
        outputs = provider.lookup(plain(wanted))
        if outputs is None:
            raise StepFailed(f"{wanted.id} does not exist")
        resource = replace(wanted, outputs=outputs)
        resource = marked(resource, provider.secret_paths(outputs), wanted.inputs)
        old = next((one for one in self._state.before() if one.urn == wanted.urn), None)
        if old is not None and not old.external and not old.delete:
            if old.protect:
                raise StepFailed(
                    f"{urn_name(old.urn)} is protected, and would be deleted, since the program "
                    "now only reads a resource of that name: remove `protect` first"
                )
            self._state.replaced(resource, old)  # the stack's own object of that name goes
        else:
            self._state.read(resource)
        self._outcome.done(StepReport("read", wanted.urn, None, resource))
        return resource

    def delete_dropped(self) -> None:
        """Delete what the program, which has run to its end, no longer has."""
        if not self.summary.failures:
            self.delete_all(self._state.dropped(self._targets))

    def finish(self) -> None:
        """Write the checkpoint."""
        self.summary.recorded = self._state.changed
        self._state.write()

    def delete_all(self, outgoing: list[ResourceState]) -> None:
        """Delete resources, dependents first, independent ones at the same time."""
        self._steps.delete_all(outgoing)

    def default_provider(self, goal: Goal) -> str:
        """Return the reference of the default provider for a resource, registering it once."""
        with self._default_providers:
            urn, wanted = self._providers.default_for(goal)
            if urn in self.summary.failures:
                raise StepFailed(self.summary.failures[urn])
            known = self._state.registered(urn) or self.register(wanted)
            return provider_reference(urn, known.id)

    def is_registered(self, urn: str) -> bool:
        """Tell whether the program has registered a resource."""
        return self._state.registered(urn) is not None

    def failed(self, urn: str, text: str) -> None:
        """Note a failure that no step told of; ``urn`` may also be a word ("program")."""
        self._outcome.failed(urn, text)

    def _all_aliases(self, goal: Goal) -> tuple[str, ...]:
        """Return the aliases of a resource, those that follow from its parent's included."""
        urns = list(goal.aliases)
        for alias in self._aliases.get(goal.parent, ()):
            urns.append(inherited_alias(goal.type, goal.name, goal.parent, alias))
            urns += [
                inherited_alias(urn_type(own), urn_name(own), goal.parent, alias)
                for own in goal.aliases
            ]
        aliases = tuple(dict.fromkeys(urn for urn in urns if urn != goal.urn))
        self._aliases[goal.urn] = aliases
        return aliases

    def _register_component(self, goal: Goal, old: ResourceState | None) -> ResourceState:
        step = StepReport("create" if old is None else "same", goal.urn, old)
        self._outcome.began(step)
        outputs = {} if old is None else dict(old.outputs)
        new = recorded(goal, old, "", dict(goal.inputs), outputs)
        self._state.is_now(new, old)
        self._outcome.done(replace(step, new=new))
        return new

    def _register_provider(self, goal: Goal, old: ResourceState | None) -> ResourceState:
        operation, new = self._providers.registered(goal, old)
        changed = ("kubeconfig",) if operation == "replace" else ()
        step = StepReport(operation, goal.urn, old, new, changed, changed)
        self._outcome.began(step)
        if operation == "replace":
            assert old is not None
            self._state.replaced(new, old)
        else:
            self._state.is_now(new, old)
        # The engine's own providers follow the SDK and the stack's configuration.
        quiet = operation == "update" and is_default_provider(goal.urn)
        self._outcome.done(replace(step, operation="same") if quiet else step)
        return new

    def _register_custom(self, goal: Goal, old: ResourceState | None) -> ResourceState:
        reference = goal.provider or self.default_provider(goal)
        goal = replace(goal, provider=reference)
        provider = self._providers.of(reference)
        displaced = self._steps.displaced(goal.urn)
        if displaced is not None:
            inputs = provider.check(goal.urn, None, unwrapped(dict(goal.inputs)))
            return self._run(goal, *displaced, inputs, provider)
        if self._targets and goal.urn not in self._targets:
            if old is None:
                raise NotSupported(f"{goal.name} is new and not a --target: name it too")
            self._state.is_now(old, old)
            return old
        if old is not None and old.external:
            old = None  # what was only read is nobody's to change
        if old is not None and not self._providers.same_cluster(old.provider, reference):
            inputs = provider.check(goal.urn, None, unwrapped(dict(goal.inputs)))
            return self._run(goal, old, plan_move(goal, old), inputs, provider)
        return self._in_place(goal, old, provider)

    def _in_place(self, goal: Goal, old: ResourceState | None, provider: Provider) -> ResourceState:
        known = None if old is None else plain(old)
        wanted = unwrapped(dict(goal.inputs))
        if known is not None:
            wanted = restored(wanted, goal.ignore_changes, dict(known.inputs))
        inputs = provider.check(goal.urn, None if known is None else known.inputs, wanted)
        before = None if old is None else self._replaced_before(goal, old, inputs, provider)
        if before is not None and old is not None:
            return self._in_place(goal, self._state.restored(before, old), provider)
        diff = Diff()
        drifted: tuple[str, ...] = ()
        if known is not None:
            live = provider.drifted(known, inputs, goal.ignore_changes)
            if live is None:
                self._outcome.warn(goal.urn, f"{known.id} was deleted outside; it is made again")
                old = known = None
            else:
                diff, drifted = provider.diff(known, inputs), live
        step = plan_step(goal, old, diff, drifted)
        if step.operation == "replace" and not step.before:
            # A new automatic name, so that both can be there at once.
            inputs = provider.check(goal.urn, None, wanted)
        return self._run(goal, old, step, inputs, provider)

    def _replaced_before(
        self, goal: Goal, old: ResourceState, inputs: Mapping[str, Any], provider: Provider
    ) -> ResourceState | None:
        """Return what an interrupted or failed run has replaced and the program wants again."""
        name = provider.object_name(inputs)
        if not name or name == provider.object_name(plain(old).inputs):
            return None
        for leftover in self._state.leftovers(goal.urn):
            same = self._providers.same_cluster(leftover.provider, goal.provider)
            if same and name == provider.object_name(plain(leftover).inputs):
                return leftover
        return None

    def _run(
        self,
        goal: Goal,
        old: ResourceState | None,
        step: Step,
        inputs: dict[str, Any],
        provider: Provider,
    ) -> ResourceState:
        self._refuse_second(goal, inputs, provider)
        return self._steps.run(goal, old, step, inputs, provider)

    def _refuse_second(self, goal: Goal, inputs: Mapping[str, Any], provider: Provider) -> None:
        """Refuse a second resource of the program that means the same object."""
        name = provider.object_name(inputs)
        if not name:
            return
        cluster = self._providers.cluster_key(goal.provider)
        with self._lock:
            owner = self._owners.setdefault((cluster, name), goal.urn)
        if owner != goal.urn:
            raise StepFailed(
                f"{name} is already {urn_name(owner)} of this program: one object cannot be two "
                "resources"
            )
