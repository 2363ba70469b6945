"""The interface between the engine and its providers of resources."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from divvy.engine.errors import StepFailed
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


def other_cluster(subject: str, reached: str, recorded: str) -> StepFailed:
    """Return the refusal of a way that leads to another cluster's server than the recorded one."""
    return StepFailed(
        f"{subject} now leads to another cluster ({reached}) than the one that holds the stack's "
        f"objects ({recorded}): point it back; to move the stack, destroy it there first; if that "
        "cluster is gone for good, `divvy stack rm <stack> --force` forgets its objects"
    )


class Provider(Protocol):
    """Performs the steps of one package's resources. Values carry no secret marks.

    Every method raises StepFailed with one clear sentence. ``preview_…`` change nothing, and
    mark outputs that only the step itself reveals as unknown. What has an answer here is that of
    a provider which leads to no cluster.
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
        """Return paths whose live value is not the recorded one; None if it is gone.

        ``inputs`` are the new ones: where they change the resource, not all need be asked.
        """

    def begin(self, inputs: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        """Return id and outputs to be recorded before a creation: what ``find`` looks for.

        The id is "" if only the creation gives one.
        """
        return "", {}

    def create(
        self,
        urn: str,
        inputs: Mapping[str, Any],
        initial_outputs: Mapping[str, Any],
        *,
        timeout: float,
    ) -> ProviderResult:
        """Make a resource that does not exist; one that does is an error.

        ``initial_outputs`` are those of ``begin``.
        """

    def preview_create(
        self, urn: str, inputs: Mapping[str, Any], *, replacing: bool
    ) -> ProviderResult:
        """Predict a creation; ``replacing``: the object to replace still exists."""

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
        """Predict an update."""

    def delete(self, resource: ResourceState, *, timeout: float) -> None:
        """Delete a resource; one that is gone already is no error."""

    def read(self, resource: ResourceState) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """Return the live inputs and outputs, None if it is gone."""

    def find(self, pending: ResourceState) -> ResourceState | None:
        """Return what a cut-off creation has made, None if it has made nothing.

        Raises StepFailed if that cannot be determined.
        """

    def object_name(self, inputs: Mapping[str, Any]) -> str:
        """Return the name that two resources of these inputs would share, "" for none."""
        return ""

    def object_key(self, resource: ResourceState) -> str:
        """Return the unique identity of a recorded object, "" if unknown."""
        return ""

    def secret_paths(self, inputs: Mapping[str, Any]) -> tuple[str, ...]:
        """Return property paths that are secret whatever the program says."""
        return ()

    def cluster(self) -> Mapping[str, str]:
        """Return "uid" and "server" of the cluster it leads to; empty for a provider of none."""
        return {}

    def identity(self) -> str:
        """Return whose credentials act, and where; "" for a provider of no cluster."""
        return ""

    def refuse_without_access(self, resources: Iterable[ResourceState]) -> None:
        """Raise StepFailed if the user may not change or delete these resources."""
        return

    def warm(self) -> None:
        """Do what takes a moment before the first step; called in the background."""

    def cancel(self) -> None:
        """Stop all waits; operations return their current state."""
        return

    def close(self) -> None:
        """Let go of connections and processes."""
