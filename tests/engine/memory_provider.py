"""A provider whose objects are in memory, and a journal that keeps its notes there."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

from divvy.engine.provider import Diff, Provider, ProviderResult
from divvy.engine.state.journal import Journal
from divvy.engine.state.resource import ResourceState
from divvy.engine.state.stack_state import Pending
from divvy.engine.urn import urn_name


class MemoryProvider(Provider):
    """Objects by id, each with its inputs.

    An input "zone" cannot be changed in place. Each answer repeats the input "password" within
    an output "url", plain, as an API server's message may.
    """

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.create_failure: Exception | None = None
        self._numbers = itertools.count(1)

    def check(
        self, urn: str, old: Mapping[str, Any] | None, new: Mapping[str, Any]
    ) -> dict[str, Any]:
        return dict(new)

    def diff(self, resource: ResourceState, inputs: Mapping[str, Any]) -> Diff:
        changed = _changed(resource.inputs, inputs)
        return Diff(changed, tuple(key for key in changed if key == "zone"))

    def drifted(
        self, resource: ResourceState, inputs: Mapping[str, Any], ignored: tuple[str, ...]
    ) -> tuple[str, ...] | None:
        live = self.objects.get(resource.id)
        return None if live is None else _changed(resource.inputs, live)

    def begin(self, inputs: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        return "", {"url": _url(inputs)}

    def create(
        self,
        urn: str,
        inputs: Mapping[str, Any],
        initial_outputs: Mapping[str, Any],
        *,
        timeout: float,
    ) -> ProviderResult:
        if self.create_failure is not None:
            raise self.create_failure
        identity = f"{urn_name(urn)}-{next(self._numbers)}"
        return self._written(identity, inputs)

    def preview_create(
        self, urn: str, inputs: Mapping[str, Any], *, replacing: bool
    ) -> ProviderResult:
        return ProviderResult("", {**inputs, "url": _url(inputs)})

    def update(
        self,
        resource: ResourceState,
        inputs: Mapping[str, Any],
        *,
        timeout: float,
        ignored: tuple[str, ...],
    ) -> ProviderResult:
        assert resource.id in self.objects, "an update creates nothing"
        return self._written(resource.id, inputs)

    def preview_update(
        self, resource: ResourceState, inputs: Mapping[str, Any], *, ignored: tuple[str, ...]
    ) -> ProviderResult:
        return ProviderResult(resource.id, {**inputs, "url": _url(inputs)})

    def delete(self, resource: ResourceState, *, timeout: float) -> None:
        self.objects.pop(resource.id, None)

    def read(self, resource: ResourceState) -> tuple[dict[str, Any], dict[str, Any]] | None:
        live = self.objects.get(resource.id)
        return None if live is None else (dict(live), {**live, "url": _url(live)})

    def find(self, pending: ResourceState) -> ResourceState | None:
        return None

    def _written(self, identity: str, inputs: Mapping[str, Any]) -> ProviderResult:
        self.objects[identity] = dict(inputs)
        return ProviderResult(identity, {**inputs, "url": _url(inputs)})


class MemoryJournal(Journal):
    """The notes of a run in their order: what happened, and the records that it wrote."""

    def __init__(self) -> None:
        self.notes: list[tuple[str, ResourceState | None, ResourceState | None]] = []

    @property
    def events(self) -> list[str]:
        """Return what happened, without the records."""
        return [event for event, _, _ in self.notes]

    def began(
        self, operation: str, urn: str, identity: str, resource: ResourceState | None = None
    ) -> None:
        self.notes.append(("began", resource, None))

    def abandoned(self, urn: str) -> None:
        self.notes.append(("abandoned", None, None))

    def done(self, resource: ResourceState, replaced: ResourceState | None = None) -> None:
        self.notes.append(("done", resource, replaced))

    def gone(self, resource: ResourceState) -> None:
        self.notes.append(("gone", resource, None))

    def write(self, resources: Iterable[ResourceState], pending: Iterable[Pending] = ()) -> None:
        self.notes.append(("written", None, None))


def _changed(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(key for key in sorted({*old, *new}) if old.get(key) != new.get(key))


def _url(inputs: Mapping[str, Any]) -> str:
    return f"https://user:{inputs.get('password', '')}@host"
