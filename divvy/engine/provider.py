"""What the engine asks of a provider of resources."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from divvy.engine.state.resource import ResourceState


@dataclass(frozen=True)
class Diff:
    """How new inputs differ from a resource.

    ``changed`` and ``replace`` are property paths ("spec.selector"); a path in
    ``replace`` cannot be changed in place. ``before`` says that the old resource
    must be deleted before the new one can be made.
    """

    changed: tuple[str, ...] = ()
    replace: tuple[str, ...] = ()
    before: bool = False


@dataclass(frozen=True)
class Made:
    """A resource as the provider left it."""

    id: str
    outputs: dict[str, Any]


class Provider(Protocol):
    """Does the steps of one kind of resources. Values carry no secret marks.

    Every method raises StepFailed with one clear sentence. With ``preview`` nothing
    is changed and unknown outputs are marked.
    """

    def check(
        self, urn: str, old: Mapping[str, Any] | None, new: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the inputs to use: defaults and automatic names filled in."""

    def diff(self, resource: ResourceState, inputs: Mapping[str, Any]) -> Diff:
        """Compare a resource of the state with new inputs."""

    def drifted(self, resource: ResourceState) -> tuple[str, ...] | None:
        """Return paths whose live value is not the recorded one; None where it is gone."""

    def identity(self, inputs: Mapping[str, Any]) -> str:
        """Return the id a resource of these inputs will have, "" where only creation tells."""

    def create(self, urn: str, inputs: Mapping[str, Any], *, timeout: float, preview: bool) -> Made:
        """Make a resource; what a dead run of this stack has made is taken over."""

    def planned(self, inputs: Mapping[str, Any]) -> Made:
        """Foretell what creating makes where the old resource, still there, will be gone."""

    def update(
        self, resource: ResourceState, inputs: Mapping[str, Any], *, timeout: float, preview: bool
    ) -> Made:
        """Change a resource in place."""

    def delete(self, resource: ResourceState, *, timeout: float) -> None:
        """Delete a resource; one that is gone already is no error."""

    def read(self, resource: ResourceState) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """Return the live inputs and outputs, None where it is gone."""

    def warm(self) -> None:
        """Do what takes a moment before the first step; called in the background."""

    def close(self) -> None:
        """Let go of connections and processes."""
