"""What a stack has, as a value: its resources, and the steps whose end is unknown."""

from __future__ import annotations

from dataclasses import dataclass

from divvy.engine.state.resource import ResourceState


@dataclass(frozen=True)
class Pending:
    """A step that began and whose end is unknown; ``resource`` is what a creation makes."""

    operation: str
    urn: str
    id: str
    resource: ResourceState | None = None


@dataclass(frozen=True)
class StackState:
    """All resources of a stack in dependency order, and the steps cut off in the middle."""

    resources: tuple[ResourceState, ...] = ()
    pending: tuple[Pending, ...] = ()

    def live(self) -> dict[str, ResourceState]:
        """Return resources by URN, without those that only wait for their deletion."""
        return {resource.urn: resource for resource in self.resources if not resource.delete}


def record_key(resource: ResourceState) -> tuple[str, str, str]:
    """Return what one record is told from every other by."""
    return resource.urn, resource.id, resource.provider
