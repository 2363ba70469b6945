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
class ProviderResult:
    """A resource as the provider left it, or would leave it."""

    id: str
    outputs: dict[str, Any]


def same_cluster(recorded: Mapping[str, str], reached: Mapping[str, str]) -> bool:
    """Tell whether two clusters are one: by uid, by server where a user may not see the uid."""
    key = "uid" if recorded.get("uid") and reached.get("uid") else "server"
    return recorded.get(key) == reached.get(key)


class Provider(Protocol):
    """Does the steps of one kind of resources. Values carry no secret marks.

    Every method raises StepFailed with one clear sentence. ``preview_…`` change
    nothing, and mark the outputs that only the step itself can tell as unknown.
    """

    def check(
        self, urn: str, old: Mapping[str, Any] | None, new: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the inputs to use: defaults and automatic names filled in."""

    def diff(self, resource: ResourceState, inputs: Mapping[str, Any]) -> Diff:
        """Compare a resource of the state with new inputs."""

    def drifted(
        self, resource: ResourceState, inputs: Mapping[str, Any], ignored: tuple[str, ...]
    ) -> tuple[str, ...] | None:
        """Return paths whose live value is not the recorded one; None where it is gone.

        ``inputs`` are the new ones: where they change the resource, not all need be asked.
        """

    def begin(self, inputs: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        """Return id and outputs to be recorded before a creation: what ``find`` goes by.

        The id is "" where only the creation tells it.
        """

    def create(
        self, urn: str, inputs: Mapping[str, Any], begun: Mapping[str, Any], *, timeout: float
    ) -> ProviderResult:
        """Make a resource that does not exist; one that does is an error.

        ``begun`` are the outputs of ``begin``.
        """

    def preview_create(
        self, urn: str, inputs: Mapping[str, Any], *, replacing: bool
    ) -> ProviderResult:
        """Foretell a creation; ``replacing``: in the place of one that is still there."""

    def update(
        self,
        resource: ResourceState,
        inputs: Mapping[str, Any],
        *,
        timeout: float,
        ignored: tuple[str, ...],
    ) -> ProviderResult:
        """Change a resource in place; what ``ignored`` names stays as it is live."""

    def preview_update(
        self, resource: ResourceState, inputs: Mapping[str, Any], *, ignored: tuple[str, ...]
    ) -> ProviderResult:
        """Foretell an update."""

    def delete(self, resource: ResourceState, *, timeout: float) -> None:
        """Delete a resource; one that is gone already is no error."""

    def read(self, resource: ResourceState) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """Return the live inputs and outputs, None where it is gone."""

    def lookup(self, resource: ResourceState) -> dict[str, Any] | None:
        """Return the outputs of a resource known by type and id alone, None where none is."""

    def find(self, begun: ResourceState) -> ResourceState | None:
        """Return what a cut-off creation has made, None where it has made nothing.

        Raises StepFailed where that cannot be told.
        """

    def object_name(self, inputs: Mapping[str, Any]) -> str:
        """Return what two resources of these inputs would fight about, "" for nothing."""

    def object_key(self, resource: ResourceState) -> str:
        """Return what tells a recorded object from every other that ever was, "" unknown."""

    def secret_paths(self, inputs: Mapping[str, Any]) -> tuple[str, ...]:
        """Return property paths that are secret whatever the program says."""

    def cluster(self) -> Mapping[str, str]:
        """Return "uid" and "server" of the cluster it leads to; empty for a provider of none."""

    def warm(self) -> None:
        """Do what takes a moment before the first step; called in the background."""

    def cancel(self) -> None:
        """End every waiting, with what there is."""

    def close(self) -> None:
        """Let go of connections and processes."""
