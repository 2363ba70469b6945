"""One run over a stack: each registration is planned and performed, what the program dropped goes.

A registration walks through here in one direction: ``register`` looks up what is recorded,
``_plan`` compares it with the goal and the live object, ``plan_step`` decides, ``_perform`` asks
the provider, writing down before and after.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from divvy.engine.errors import EngineError, NotAdmitted, StepFailed
from divvy.engine.goal import Goal
from divvy.engine.order import dependents_first
from divvy.engine.outcome import Outcome
from divvy.engine.plan_step import Step, plan_step
from divvy.engine.property_path import restored
from divvy.engine.provider import Diff, Provider, ProviderResult
from divvy.engine.providers import Providers
from divvy.engine.recorded import marked, plain, recorded
from divvy.engine.refresh import recover, refresh
from divvy.engine.run_state import RunState
from divvy.engine.state.resource import ResourceState
from divvy.engine.subset import PROVIDER_PREFIX, Declaration, refusals
from divvy.engine.urn import (
    STACK_TYPE,
    inherited_alias,
    is_default_provider,
    provider_reference,
    urn_name,
    urn_type,
)
from divvy.engine.values import secret_texts, unwrapped, with_marks
from divvy.engine.watcher import StepReport, Summary, Watcher

_DEFAULT_TIMEOUT = 600.0


@dataclass(frozen=True)
class _PlannedStep:
    """How a resource gets from ``old`` to its goal. ``inputs`` are plain, as a provider wants."""

    goal: Goal
    old: ResourceState | None
    step: Step
    inputs: dict[str, Any]
    provider: Provider

    @property
    def updated_resource(self) -> ResourceState | None:
        """Return the resource, plain, that an update changes in place; None for other steps."""
        if self.old is None or self.step.operation != "update":
            return None
        return plain(self.old)

    def record(
        self, identity: str, outputs: Mapping[str, Any], earlier: ResourceState | None
    ) -> ResourceState:
        """Return what is recorded of the provider's plain answer, secrets marked."""
        new = recorded(self.goal, earlier, identity, self.inputs, outputs)
        return marked(new, self.provider.secret_paths(self.inputs), self.goal.inputs)


class Deployment:
    """Holds the state while the program runs; methods are called from several threads.

    ``preview`` predicts steps without performing them; ``parallel`` steps run at once.
    """

    def __init__(
        self,
        state: RunState,
        providers: Providers,
        watcher: Watcher,
        *,
        preview: bool = False,
        parallel: int = 16,
    ) -> None:
        self._state = state
        self._providers = providers
        self._outcome = Outcome(watcher)
        self._preview = preview
        self._parallel = parallel
        self._slots = threading.BoundedSemaphore(parallel)
        self._lock = threading.Lock()
        self._default_providers = threading.Lock()
        self._checked = threading.Event()
        self._admitted = False
        self._aliases: dict[str, tuple[str, ...]] = {}
        self._owners: dict[tuple[str, str], str] = {}
        self._reconnected: dict[str, ResourceState] = {}
        self._identities: set[str] = set()
        for resource in self._state.before():
            if resource.type.startswith(PROVIDER_PREFIX):
                providers.known(resource)

    @property
    def summary(self) -> Summary:
        """Return what the run has done so far."""
        return self._outcome.summary

    def admit(
        self, declarations: Iterable[Declaration] | None, begin: Callable[[], object]
    ) -> None:
        """Let registrations in, unless the program declares what the engine does not do.

        ``begin`` prepares the state's files to be written; then what interrupted creations have
        made becomes part of the state. None for ``declarations``: the program has ended before it
        had declared all of its resources. Only the first call counts.
        """
        with self._lock:
            if self._checked.is_set():
                return
            for name, text in refusals(declarations or ()).items():
                self._outcome.failed(name, text)
            try:
                if declarations is not None and not self.summary.failures:
                    begin()
                    recover(self._state, self._providers, self._outcome)
                    self._admitted = True
            except EngineError as problem:
                self._outcome.failed("state", str(problem))
            finally:
                self._checked.set()

    def say_identities(self, resources: Iterable[ResourceState]) -> None:
        """Report whose credentials act on resources; where none can, their steps fail."""
        for reference in sorted({resource.provider for resource in resources} - {""}):
            with contextlib.suppress(EngineError):
                self._say_identity(reference)

    def refresh(self, resource: ResourceState) -> None:
        """Record one resource as it is live."""
        refresh(resource, self._state, self._providers, self._outcome)

    def register(self, goal: Goal) -> ResourceState:
        """Bring one resource to its goal and return how it is now; raises EngineError."""
        self._await_admission()
        try:
            self._state.claim(goal.urn)
            self._outcome.hide(secret_texts(goal.inputs))
            goal = replace(goal, aliases=self._all_aliases(goal))
            old = self._state.old(goal)
            if goal.type.startswith(PROVIDER_PREFIX):
                return self._register_provider(goal, old)
            if not goal.custom:
                return self._register_component(goal, old)
            goal = replace(goal, provider=goal.provider or self._default_provider(goal))
            provider = self._providers.of(goal.provider)
            return self._perform(self._plan(goal, old, provider))
        except EngineError as failure:
            self._outcome.failed(goal.urn, str(failure))
            raise

    def register_outputs(self, urn: str, outputs: Mapping[str, Any]) -> None:
        """Record the outputs of a component or of the stack."""
        self._await_admission()
        known = self._state.registered(urn)
        if known is None:
            raise StepFailed(f"outputs for {urn}, which was never registered")
        if known.type == STACK_TYPE:
            self.summary.outputs = outputs
        self._state.is_now(replace(known, outputs=dict(outputs)), known)

    def delete_dropped(self) -> None:
        """Delete what the program, which has run to its end, no longer has."""
        if not self.summary.failures:
            self.delete_all(self._state.dropped())

    def delete_all(self, outgoing: list[ResourceState]) -> None:
        """Delete resources, dependents first, independent ones at the same time."""
        for resource in outgoing:
            if resource.protect and not resource.delete:
                text = f"{resource.urn} is protected: remove `protect` first"
                self._outcome.failed(resource.urn, text)
        if not self.summary.failures:
            self.say_identities(outgoing)
            dependents_first(outgoing, self._delete, self._parallel)

    def finish(self) -> None:
        """Write the checkpoint; a program that was refused leaves it as it was."""
        if not self._admitted:
            return
        if self.summary.failures:
            # The next run goes on as the user who has deployed, if that user still can.
            for urn, old in self._reconnected.items():
                if self._state.registered(urn) is not None and self._providers.reachable(old):
                    self._state.is_now(old)
        self.summary.recorded = self._state.changed
        self._state.write()

    def failed(self, urn: str, text: str) -> None:
        """Note a failure outside a step; ``urn`` may also be a word ("program")."""
        self._outcome.failed(urn, text)

    def _await_admission(self) -> None:
        self._checked.wait()
        if not self._admitted:
            raise NotAdmitted("nothing was changed: the program was refused, or ended early")

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

    def _default_provider(self, goal: Goal) -> str:
        """Return the reference of the default provider for a resource, registering it once."""
        with self._default_providers:
            urn, wanted = self._providers.default_for(goal)
            if urn in self.summary.failures:
                raise StepFailed(self.summary.failures[urn])
            known = self._state.registered(urn) or self.register(wanted)
            return provider_reference(urn, known.id)

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
        reference = provider_reference(new.urn, new.id)
        self._say_identity(reference)
        if old is not None and self._providers.reconnected(old, new):
            owned = [plain(known) for known in self._state.before() if known.provider == reference]
            if not self._preview:
                self._providers.of(reference).refuse_without_access(owned)
            self._reconnected[new.urn] = old
        # The engine's own providers follow the SDK and the stack's configuration.
        if operation == "update" and is_default_provider(goal.urn):
            operation = "same"
        step = StepReport(operation, goal.urn, old, new)
        self._outcome.began(step)
        self._state.is_now(new, old)
        self._outcome.done(step)
        return new

    def _say_identity(self, reference: str) -> None:
        """Report once whose credentials act on which server."""
        identity = self._providers.of(reference).identity()
        with self._lock:
            known = identity in self._identities
            self._identities.add(identity)
        if identity and not known:
            self._outcome.inform(reference, f"as {identity}")

    def _plan(self, goal: Goal, old: ResourceState | None, provider: Provider) -> _PlannedStep:
        """Compare the goal with what is recorded and what is live, and choose the step."""
        if old is not None and old.external:
            old = None  # the program only read it, with the official engine
        if old is not None and not self._providers.same_cluster(old.provider, goal.provider):
            raise StepFailed(
                f"{goal.name} is recorded in another cluster than its provider's: destroy the "
                "stack there first, or run `pulumi up`, which moves it"
            )
        known = None if old is None else plain(old)
        if known is not None and known.provider != goal.provider and not self._preview:
            provider.refuse_without_access([known])
        wanted = _wanted(goal, known)
        inputs = provider.check(goal.urn, None if known is None else known.inputs, wanted)
        if old is not None and known is not None:
            before = self._replaced_before(goal, known, inputs, provider)
            if before is not None:
                old = self._state.restored(before, old)
                known = plain(old)
                wanted = _wanted(goal, known)
                inputs = provider.check(goal.urn, known.inputs, wanted)
        diff = Diff()
        drifted: tuple[str, ...] = ()
        if known is not None:
            live = provider.drifted(known, inputs, goal.ignore_changes)
            if live is None:
                text = f"{known.id} was deleted outside Divvy and will be recreated"
                self._outcome.warn(goal.urn, text)
                old = None
            else:
                diff, drifted = provider.diff(known, inputs), live
        step = plan_step(goal, old, diff, drifted)
        if step.operation == "replace" and not step.before:
            # A new automatic name, so that both can exist at once.
            inputs = provider.check(goal.urn, None, wanted)
        self._refuse_second(goal, inputs, provider)
        return _PlannedStep(goal, old, step, inputs, provider)

    def _replaced_before(
        self, goal: Goal, known: ResourceState, inputs: Mapping[str, Any], provider: Provider
    ) -> ResourceState | None:
        """Return what an interrupted or failed run has replaced and the program wants again."""
        leftovers = self._state.leftovers(goal.urn)
        name = provider.object_name(inputs) if leftovers else ""
        if not name or name == provider.object_name(known.inputs):
            return None
        for leftover in leftovers:
            same = self._providers.same_cluster(leftover.provider, goal.provider)
            if same and name == provider.object_name(plain(leftover).inputs):
                return leftover
        return None

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

    def _perform(self, planned: _PlannedStep) -> ResourceState:
        """Perform a step and return the resource as it is recorded then."""
        goal, old, step = planned.goal, planned.old, planned.step
        report = StepReport(step.operation, goal.urn, old, None, step.changed, step.replace)
        self._outcome.began(report)
        if step.operation == "same":
            assert old is not None
            new = planned.record(old.id, plain(old).outputs, old)
            new = replace(
                new,
                inputs=with_marks(new.inputs, old.inputs, same=True),
                outputs=with_marks(new.outputs, old.outputs, same=True),
            )
            self._state.is_now(new, old)
            self._outcome.done(replace(report, new=new))
            return new
        try:
            if step.before:
                assert old is not None
                # With the program's options: it may have dropped retain_on_delete meanwhile.
                self._remove(replace(old, retain_on_delete=False))
                self._state.gone(old)
            result, errors = self._make(planned)
        except EngineError as failure:
            self._outcome.failed(goal.urn, str(failure), report)
            raise
        new = planned.record(result.id, result.outputs, planned.updated_resource)
        new = replace(new, init_errors=errors)
        if step.operation == "replace" and not step.before:
            assert old is not None
            self._state.replaced(new, old)
        else:
            self._state.is_now(new)
        if errors:
            self._outcome.failed(goal.urn, errors[0], report)
            raise StepFailed(errors[0])
        self._outcome.done(replace(report, new=new))
        return new

    def _make(self, planned: _PlannedStep) -> tuple[ProviderResult, tuple[str, ...]]:
        """Create or change a resource; return it, and why it is not ready."""
        goal, inputs, provider = planned.goal, planned.inputs, planned.provider
        identity, initial_outputs = provider.begin(inputs)
        resource = planned.updated_resource
        if resource is None:
            self._state.began("create", goal.urn, planned.record(identity, initial_outputs, None))
        allowed = goal.timeouts.get("create" if resource is None else "update", _DEFAULT_TIMEOUT)
        ignored = goal.ignore_changes
        try:
            with self._slots:
                if resource is not None and self._preview:
                    result = provider.preview_update(resource, inputs, ignored=ignored)
                elif resource is not None:
                    result = provider.update(resource, inputs, timeout=allowed, ignored=ignored)
                elif self._preview:
                    replacing = planned.step.operation == "replace"
                    result = provider.preview_create(goal.urn, inputs, replacing=replacing)
                else:
                    result = provider.create(goal.urn, inputs, initial_outputs, timeout=allowed)
        except StepFailed as failure:
            # The API server's message, or a container's log, may repeat a secret.
            text = self._outcome.redacted(str(failure))
            if failure.partial is not None:
                return ProviderResult(identity, dict(failure.partial)), (text,)
            if resource is None and not failure.unsure:
                self._state.abandoned(goal.urn)
            raise StepFailed(text, unsure=failure.unsure) from None
        return result, ()

    def _delete(self, resource: ResourceState) -> bool:
        operation = "delete-replaced" if resource.delete else "delete"
        step = StepReport(operation, resource.urn, resource)
        self._outcome.began(step)
        try:
            self._remove(resource)
        except EngineError as failure:
            self._outcome.failed(resource.urn, str(failure), step)
            return False
        self._state.gone(resource)
        self._outcome.done(step)
        return True

    def _remove(self, resource: ResourceState) -> None:
        """Delete what a record stands for, if it is the stack's and no other record's too."""
        if not resource.custom or resource.external or resource.retain_on_delete:
            return
        if resource.type.startswith(PROVIDER_PREFIX):
            return
        provider = self._providers.of(resource.provider)
        known = plain(resource)
        key = provider.object_key(known)
        registered = (plain(other) for other in self._state.all_registered() if other.custom)
        if key and any(provider.object_key(other) == key for other in registered):
            return
        if not self._preview:
            allowed = resource.custom_timeouts.get("delete", _DEFAULT_TIMEOUT)
            provider.delete(known, timeout=allowed)


def _wanted(goal: Goal, known: ResourceState | None) -> dict[str, Any]:
    """Return the program's inputs, with what is to be ignored as it is recorded."""
    wanted = unwrapped(dict(goal.inputs))
    if known is not None:
        wanted = restored(wanted, goal.ignore_changes, dict(known.inputs))
    return dict(wanted)
