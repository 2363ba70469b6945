"""How a decided step is carried out: for real, or as far as a preview goes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from divvy.engine.provider import Provider, ProviderResult
from divvy.engine.state.resource import ResourceState

_DEFAULT_TIMEOUT = 600.0


@dataclass(frozen=True)
class Creation:
    """A resource to be made; ``begun`` is what was written down of it before.

    ``timeouts`` are seconds by operation; ``replacing``: another one had, or has, its place.
    """

    urn: str
    inputs: Mapping[str, Any]
    begun: Mapping[str, Any]
    timeouts: Mapping[str, float]
    replacing: bool


@dataclass(frozen=True)
class Change:
    """New inputs for a resource; what ``ignored`` names stays as it is live."""

    resource: ResourceState
    inputs: Mapping[str, Any]
    timeouts: Mapping[str, float]
    ignored: tuple[str, ...]


class Executor(Protocol):
    """Carries out steps with a provider."""

    def create(self, provider: Provider, creation: Creation) -> ProviderResult:
        """Make a resource."""

    def update(self, provider: Provider, change: Change) -> ProviderResult:
        """Change a resource in place."""

    def delete(self, provider: Provider, resource: ResourceState) -> None:
        """Delete a resource."""


class ApplyExecutor:
    """Does it."""

    def create(self, provider: Provider, creation: Creation) -> ProviderResult:
        """Make a resource."""
        timeout = creation.timeouts.get("create", _DEFAULT_TIMEOUT)
        return provider.create(creation.urn, creation.inputs, creation.begun, timeout=timeout)

    def update(self, provider: Provider, change: Change) -> ProviderResult:
        """Change a resource in place."""
        timeout = change.timeouts.get("update", _DEFAULT_TIMEOUT)
        return provider.update(
            change.resource, change.inputs, timeout=timeout, ignored=change.ignored
        )

    def delete(self, provider: Provider, resource: ResourceState) -> None:
        """Delete a resource."""
        timeout = resource.custom_timeouts.get("delete", _DEFAULT_TIMEOUT)
        provider.delete(resource, timeout=timeout)


class PreviewExecutor:
    """Foretells it."""

    def create(self, provider: Provider, creation: Creation) -> ProviderResult:
        """Foretell a creation."""
        return provider.preview_create(creation.urn, creation.inputs, replacing=creation.replacing)

    def update(self, provider: Provider, change: Change) -> ProviderResult:
        """Foretell an update."""
        return provider.preview_update(change.resource, change.inputs, ignored=change.ignored)

    def delete(self, provider: Provider, resource: ResourceState) -> None:
        """Delete nothing."""
