"""The provider of a preview whose own configuration is not known yet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from divvy.engine.errors import StepFailed
from divvy.engine.property_path import changed_paths
from divvy.engine.provider import Diff, ProviderResult
from divvy.engine.state.resource import ResourceState
from divvy.engine.values import UNKNOWN


class UnconfiguredProvider:
    """Foretells by value alone; nothing can be asked of it."""

    def check(
        self, urn: str, old: Mapping[str, Any] | None, new: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the inputs as they are."""
        return dict(new)

    def diff(self, resource: ResourceState, inputs: Mapping[str, Any]) -> Diff:
        """Compare by value."""
        return Diff(tuple(changed_paths(resource.inputs, inputs)))

    def drifted(
        self, resource: ResourceState, inputs: Mapping[str, Any], ignored: tuple[str, ...]
    ) -> tuple[str, ...] | None:
        """Return no drift."""
        return ()

    def begin(self, inputs: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        """Return nothing: nothing begins."""
        return "", {}

    def create(
        self, urn: str, inputs: Mapping[str, Any], begun: Mapping[str, Any], *, timeout: float
    ) -> NoReturn:
        """Raise StepFailed."""
        self._refuse()

    def preview_create(
        self, urn: str, inputs: Mapping[str, Any], *, replacing: bool
    ) -> ProviderResult:
        """Foretell the inputs."""
        return ProviderResult("", {**inputs, "status": UNKNOWN})

    def update(
        self,
        resource: ResourceState,
        inputs: Mapping[str, Any],
        *,
        timeout: float,
        ignored: tuple[str, ...],
    ) -> NoReturn:
        """Raise StepFailed."""
        self._refuse()

    def preview_update(
        self, resource: ResourceState, inputs: Mapping[str, Any], *, ignored: tuple[str, ...]
    ) -> ProviderResult:
        """Foretell the inputs."""
        return ProviderResult(resource.id, {**resource.outputs, **inputs})

    def delete(self, resource: ResourceState, *, timeout: float) -> None:
        """Raise StepFailed."""
        self._refuse()

    def read(self, resource: ResourceState) -> NoReturn:
        """Raise StepFailed."""
        self._refuse()

    def lookup(self, resource: ResourceState) -> dict[str, Any]:
        """Return what is known of it."""
        return {**resource.inputs, "metadata": UNKNOWN, "status": UNKNOWN}

    def find(self, begun: ResourceState) -> NoReturn:
        """Raise StepFailed."""
        self._refuse()

    def object_name(self, inputs: Mapping[str, Any]) -> str:
        """Return no place."""
        return ""

    def object_key(self, resource: ResourceState) -> str:
        """Return no key."""
        return ""

    def secret_paths(self, inputs: Mapping[str, Any]) -> tuple[str, ...]:
        """Return what a Secret's are, should it be one."""
        return ("data", "stringData") if inputs.get("kind") == "Secret" else ()

    def cluster(self) -> Mapping[str, str]:
        """Return no cluster."""
        return {}

    def warm(self) -> None:
        """Do nothing."""

    def cancel(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""

    def _refuse(self) -> NoReturn:
        raise StepFailed("the provider's configuration is not known yet")
