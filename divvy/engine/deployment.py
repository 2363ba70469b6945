"""One run over a stack: registrations in, steps out, every step journaled."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from divvy.engine.errors import EngineError, NotSupported, StepFailed
from divvy.engine.goal import Goal
from divvy.engine.kubernetes.compare import without
from divvy.engine.order import dependents_first
from divvy.engine.plan_step import Step, plan_step
from divvy.engine.provider import Provider
from divvy.engine.providers import Providers
from divvy.engine.recorded import plain, recorded, with_secret_outputs
from divvy.engine.run_state import RunState
from divvy.engine.state.resource import ResourceState
from divvy.engine.state.store import StackState, StateStore
from divvy.engine.urn import PROVIDER_PREFIX, STACK_TYPE, provider_reference
from divvy.engine.values import UNKNOWN, has_unknown, secrets_kept, unwrapped
from divvy.engine.watcher import StepReport, Summary, Watcher

_DEFAULT_TIMEOUT = 600.0


class Deployment:
    """Holds the state while the program runs; methods are called from several threads.

    ``targets`` restricts changes to these URNs; all others stay as they are.
    """

    def __init__(
        self,
        store: StateStore,
        state: StackState,
        providers: Providers,
        watcher: Watcher,
        *,
        preview: bool,
        parallel: int = 16,
        targets: frozenset[str] = frozenset(),
    ) -> None:
        self._state = RunState(store, state, preview=preview)
        self._providers = providers
        self._watcher = watcher
        self._preview = preview
        self._parallel = parallel
        self._targets = targets
        self._lock = threading.Lock()
        self.summary = Summary()
        for found in self._state.before():
            if found.type.startswith(PROVIDER_PREFIX):
                providers.known(found)

    def register(self, goal: Goal) -> ResourceState:
        """Bring one resource to its goal and return how it is now."""
        if self._state.registered(goal.urn) is not None:
            raise StepFailed(f"{goal.name} is registered twice: give each its own name")
        old = self._state.old(goal)
        if goal.type.startswith(PROVIDER_PREFIX):
            return self._register_provider(goal, old)
        if not goal.custom:
            return self._register_component(goal, old)
        return self._register_custom(goal, old)

    def register_outputs(self, urn: str, outputs: Mapping[str, Any]) -> None:
        """Record the outputs of a component or of the stack."""
        known = self._state.registered(urn)
        if known is None:
            raise StepFailed(f"outputs for {urn}, which was never registered")
        if known.type == STACK_TYPE:
            self.summary.outputs = outputs
        self._state.is_now(replace(known, outputs=dict(outputs)), known)

    def read(
        self, kind: str, urn: str, identity: str, inputs: Mapping[str, Any], **of: Any
    ) -> ResourceState:
        """Read a resource that is not the stack's (``.get()``)."""
        resource = ResourceState(
            urn, kind, custom=True, id=identity, inputs=inputs, external=True, **of
        )
        provider = self._providers.of(resource.provider)
        if has_unknown(dict(inputs)) or identity == UNKNOWN:
            return replace(resource, outputs=dict(inputs))
        found = provider.read(_by_identity(resource))
        if found is None:
            raise StepFailed(f"{identity} does not exist")
        resource = replace(resource, outputs=found[1])
        self._state.read(resource)
        self._report(StepReport("read", urn, None, resource))
        return resource

    def finish(self, *, complete: bool) -> None:
        """Delete what the program no longer has (when it ran to its end), write the checkpoint."""
        if complete and not self.summary.failures:
            self.delete_all(self._state.dropped(self._targets))
        self._state.write()

    def delete_all(self, doomed: list[ResourceState]) -> None:
        """Delete resources, dependents first, independent ones at the same time."""
        for resource in doomed:
            if resource.protect:
                self._fail(resource.urn, f"{resource.urn} is protected: take `protect` off first")
        if self.summary.failures:
            return
        dependents_first(doomed, self._delete, self._parallel)

    def _delete(self, resource: ResourceState) -> bool:
        step = StepReport("delete", resource.urn, resource)
        self._watcher.began(step)
        try:
            touch = resource.custom and not resource.external and not resource.retain_on_delete
            self._state.began("delete", resource.urn, resource.id)
            if touch and not self._preview and not resource.type.startswith(PROVIDER_PREFIX):
                provider = self._providers.of(resource.provider)
                timeout = resource.custom_timeouts.get("delete", _DEFAULT_TIMEOUT)
                provider.delete(plain(resource), timeout=timeout)
        except EngineError as failure:
            self._fail(resource.urn, str(failure), step)
            return False
        self._state.gone(resource)
        self._report(step)
        return True

    def _register_component(self, goal: Goal, old: ResourceState | None) -> ResourceState:
        step = StepReport("create" if old is None else "same", goal.urn, old)
        self._watcher.began(step)
        outputs = {} if old is None else dict(old.outputs)
        new = recorded(goal, old, "", dict(goal.inputs), outputs)
        self._state.is_now(new, old)
        self._report(replace(step, new=new))
        return new

    def _register_provider(self, goal: Goal, old: ResourceState | None) -> ResourceState:
        inputs = dict(goal.inputs)
        operation = "create" if old is None else "same" if old.inputs == inputs else "update"
        identity = old.id if old is not None else self._providers.new_identity()
        new = recorded(goal, old, identity, inputs, inputs)
        self._providers.known(new)
        step = StepReport(operation, goal.urn, old, new)
        self._watcher.began(step)
        self._state.is_now(new, old)
        self._report(step)
        return new

    def _register_custom(self, goal: Goal, old: ResourceState | None) -> ResourceState:
        reference = goal.provider or self.default_provider(goal)
        goal = replace(goal, provider=reference)
        provider = self._providers.of(reference)
        try:
            return self._step(goal, old, provider)
        except EngineError as failure:
            self._fail(goal.urn, str(failure))
            raise

    def default_provider(self, goal: Goal) -> str:
        """Return the reference of the default provider for a resource, registering it once."""
        urn, wish = self._providers.default_for(goal)
        known = self._state.registered(urn) or self.register(wish)
        return provider_reference(urn, known.id)

    def _step(self, goal: Goal, old: ResourceState | None, provider: Provider) -> ResourceState:
        if self._targets and goal.urn not in self._targets:
            if old is None:
                raise NotSupported(f"{goal.name} is new and not a --target: name it too")
            self._state.is_now(old, old)
            return old
        old_inputs = None if old is None else unwrapped(dict(old.inputs))
        wished = unwrapped(dict(goal.inputs))
        if old_inputs is not None and goal.ignore_changes:
            wished = without(wished, goal.ignore_changes, old_inputs)
        inputs = provider.check(goal.urn, old_inputs or self._state.begun_inputs(goal.urn), wished)
        diff = None if old is None else provider.diff(plain(old), inputs)
        drifted: tuple[str, ...] | None = ()
        if old is not None and diff is not None and not diff.changed:
            drifted = provider.drifted(plain(old))
            if drifted is None:
                self._watcher.said(
                    "warning", f"{old.id} was deleted outside; it is made again", goal.urn
                )
                old, diff = None, None
        step = plan_step(goal, old, diff, drifted or ())
        return self._perform(goal, old, step, inputs, provider)

    def _perform(
        self,
        goal: Goal,
        old: ResourceState | None,
        step: Step,
        inputs: dict[str, Any],
        provider: Provider,
    ) -> ResourceState:
        report = StepReport(step.operation, goal.urn, old, None, step.changed, step.replace)
        self._watcher.began(report)
        marked = secrets_kept(inputs, goal.inputs)
        if step.operation == "same":
            assert old is not None
            new = recorded(goal, old, old.id, marked, dict(old.outputs))
            self._state.is_now(new, old)
            self._report(replace(report, new=new))
            return new
        try:
            made_id, outputs, errors = self._make(goal, old, step, inputs, provider)
        except EngineError as failure:
            self._fail(goal.urn, str(failure), report)
            raise
        outputs = with_secret_outputs(secrets_kept(outputs, goal.inputs), goal)
        new = recorded(goal, old if step.operation == "update" else None, made_id, marked, outputs)
        new = replace(new, init_errors=errors)
        self._state.is_now(new)
        if errors:
            self._fail(goal.urn, errors[0], report)
            raise StepFailed(errors[0])
        self._report(replace(report, new=new))
        return new

    def _make(
        self,
        goal: Goal,
        old: ResourceState | None,
        step: Step,
        inputs: dict[str, Any],
        provider: Provider,
    ) -> tuple[str, dict[str, Any], tuple[str, ...]]:
        kind = "update" if step.operation == "update" else "create"
        timeout = goal.timeouts.get(kind, _DEFAULT_TIMEOUT)
        identity = provider.identity(inputs)
        begun = None if kind == "update" else recorded(goal, None, identity, inputs, {})
        if begun is not None:
            begun = replace(begun, inputs=secrets_kept(inputs, goal.inputs))
        self._state.began(step.operation, goal.urn, identity, begun)
        if step.operation == "replace":
            assert old is not None
            self._replace_old(old, step, provider)
            self._state.began("create", goal.urn, identity, begun)
        try:
            if step.operation == "update":
                assert old is not None
                made = provider.update(plain(old), inputs, timeout=timeout, preview=self._preview)
            else:
                preview = self._preview
                if preview and step.operation == "replace" and step.before:
                    made = provider.planned(inputs)
                else:
                    made = provider.create(goal.urn, inputs, timeout=timeout, preview=preview)
        except StepFailed as failure:
            if failure.partial is None:
                raise
            return provider.identity(inputs), dict(failure.partial), (str(failure),)
        return made.id, made.outputs, ()

    def _replace_old(self, old: ResourceState, step: Step, provider: Provider) -> None:
        if self._preview:
            return
        if step.before:
            if not old.retain_on_delete:
                provider.delete(plain(old), timeout=_DEFAULT_TIMEOUT)
            self._state.gone(old)
            return
        self._state.to_be_deleted(old)

    def _fail(self, urn: str, text: str, step: StepReport | None = None) -> None:
        with self._lock:
            first = urn not in self.summary.failures
            self.summary.failures.setdefault(urn, text)
        if first:
            self._watcher.ended(step or StepReport("failed", urn), text)

    def _report(self, step: StepReport) -> None:
        with self._lock:
            self.summary.steps.append(step)
        self._watcher.ended(step, None)


def _by_identity(resource: ResourceState) -> ResourceState:
    """Return a resource to be read with name and namespace taken from its id."""
    namespace, _, name = resource.id.rpartition("/")
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    group, kind = resource.type.removeprefix("kubernetes:").split(":")
    version = group.removeprefix("core/")
    place = {"apiVersion": version, "kind": kind, "metadata": metadata}
    return replace(resource, inputs=place, outputs=place)
