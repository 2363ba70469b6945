"""Decided steps carried out: written down before and after, reported, refused where unsafe."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from divvy.engine.errors import EngineError, StepFailed
from divvy.engine.executor import Change, Creation, Executor
from divvy.engine.goal import Goal
from divvy.engine.order import dependents, dependents_first
from divvy.engine.outcome import Outcome
from divvy.engine.plan_step import Step
from divvy.engine.provider import Provider
from divvy.engine.providers import Providers
from divvy.engine.recorded import marked, plain, recorded
from divvy.engine.redaction import redacted
from divvy.engine.run_state import RunState
from divvy.engine.state.resource import ResourceState
from divvy.engine.urn import PROVIDER_PREFIX, urn_name
from divvy.engine.values import secret_texts, with_same_marks
from divvy.engine.watcher import StepReport


class StepRunner:
    """Creates, changes, replaces and deletes; ``parallel`` steps at once."""

    def __init__(
        self,
        state: RunState,
        providers: Providers,
        outcome: Outcome,
        executor: Executor,
        parallel: int,
    ) -> None:
        self._state = state
        self._providers = providers
        self._outcome = outcome
        self._executor = executor
        self._parallel = parallel
        self._slots = threading.BoundedSemaphore(parallel)
        self._lock = threading.Lock()
        self._displaced: dict[str, tuple[ResourceState, str, threading.Event]] = {}

    def displaced(self, urn: str) -> tuple[ResourceState, Step] | None:
        """Return a resource that went before one it depends on, and the step that restores it.

        Waits until it is gone.
        """
        with self._lock:
            displaced = self._displaced.get(urn)
        if displaced is None:
            return None
        resource, cause, gone = displaced
        gone.wait()
        return resource, Step("replace", (cause,), (cause,), before=True)

    def run(
        self,
        goal: Goal,
        old: ResourceState | None,
        step: Step,
        inputs: dict[str, Any],
        provider: Provider,
    ) -> ResourceState:
        """Carry out a step and return the resource as it is recorded then."""
        report = StepReport(step.operation, goal.urn, old, None, step.changed, step.replace)
        self._outcome.began(report)
        paths = provider.secret_paths(inputs)
        if step.operation == "same":
            assert old is not None
            return self._same(goal, old, inputs, paths, report)
        try:
            identity, outputs, errors = self._make(goal, old, step, inputs, provider)
        except EngineError as failure:
            self._outcome.failed(goal.urn, str(failure), report)
            raise
        kept = old if step.operation == "update" else None
        new = marked(recorded(goal, kept, identity, inputs, outputs), paths, goal.inputs)
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

    def delete_all(self, outgoing: list[ResourceState]) -> None:
        """Delete resources, dependents first, independent ones at the same time."""
        for resource in outgoing:
            if resource.protect and not resource.delete:
                text = f"{resource.urn} is protected: remove `protect` first"
                self._outcome.failed(resource.urn, text)
        if not self._outcome.summary.failures:
            dependents_first(outgoing, self._delete, self._parallel)

    def _same(
        self,
        goal: Goal,
        old: ResourceState,
        inputs: dict[str, Any],
        paths: Iterable[str],
        report: StepReport,
    ) -> ResourceState:
        new = marked(recorded(goal, old, old.id, inputs, plain(old).outputs), paths, goal.inputs)
        new = replace(
            new,
            inputs=with_same_marks(new.inputs, old.inputs),
            outputs=with_same_marks(new.outputs, old.outputs),
        )
        self._state.is_now(new, old)
        self._outcome.done(replace(report, new=new))
        return new

    def _make(
        self,
        goal: Goal,
        old: ResourceState | None,
        step: Step,
        inputs: dict[str, Any],
        provider: Provider,
    ) -> tuple[str, dict[str, Any], tuple[str, ...]]:
        """Create or change a resource; return id, outputs, and why it is not ready."""
        if step.operation == "replace" and step.before:
            assert old is not None
            self._make_room(old)
        identity, begun = provider.begin(inputs)
        creating = step.operation != "update"
        if creating:
            made = recorded(goal, None, identity, inputs, begun)
            paths = provider.secret_paths(inputs)
            self._state.began("create", goal.urn, marked(made, paths, goal.inputs))
        try:
            with self._slots:
                if creating:
                    replacing = step.operation == "replace"
                    creation = Creation(goal.urn, inputs, begun, goal.timeouts, replacing)
                    done = self._executor.create(provider, creation)
                else:
                    assert old is not None
                    change = Change(plain(old), inputs, goal.timeouts, goal.ignore_changes)
                    done = self._executor.update(provider, change)
        except StepFailed as failure:
            # The words of an API server, or a container's last ones, may repeat what is secret.
            text = redacted(str(failure), secret_texts(goal.inputs))
            if failure.partial is not None:
                return identity, dict(failure.partial), (text,)
            if creating and not failure.unsure:
                self._state.abandoned(goal.urn)
            raise StepFailed(text, unsure=failure.unsure) from None
        return done.id, done.outputs, ()

    def _make_room(self, old: ResourceState) -> None:
        """Delete a resource whose successor needs its place, and before it what depends on it.

        What depends on it is made again when the program registers it.
        """
        gone = threading.Event()
        with self._lock:
            if old.urn in self._displaced:
                return  # it went before what it depends on
            users = dependents([old.urn], self._state.unclaimed(), by_property=True)
            users = [one for one in users if one.custom and not one.external]
            for one in users:
                if one.protect:
                    raise StepFailed(
                        f"{urn_name(one.urn)} is protected and would have to be replaced with "
                        f"{urn_name(old.urn)}: remove `protect` first"
                    )
            for one in users:
                self._displaced[one.urn] = (one, f"{urn_name(old.urn)} is replaced", gone)
        failures: list[str] = []

        def remove(resource: ResourceState) -> bool:
            try:
                self._remove(resource)
            except EngineError as failure:
                failures.append(str(failure))
                return False
            self._state.gone(resource)
            return True

        try:
            dependents_first([*users, old], remove, self._parallel)
        finally:
            gone.set()
        if failures:
            raise StepFailed(failures[0])

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
        registered = (plain(one) for one in self._state.all_registered() if one.custom)
        if key and any(provider.object_key(one) == key for one in registered):
            return
        self._executor.delete(provider, known)
