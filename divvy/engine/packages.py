"""The provider packages that the engine has; the core knows them by their interface alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Any

from divvy.engine.dynamic import DynamicProvider
from divvy.engine.kubernetes.options import CONNECTION, check_options
from divvy.engine.provider import Provider


@dataclass(frozen=True)
class KubernetesPackage:
    """``kubernetes``: ``manager`` is the prefix of field managers, ``told`` hears of waiting."""

    manager: str
    told: Callable[[str, str], None]
    connection: tuple[str, ...] = CONNECTION

    def check_options(self, name: str, options: Mapping[str, Any]) -> None:
        """Raise NotSupported for an option that is not honoured."""
        check_options(name, options)

    def default(self, version: str, config: Mapping[str, Any]) -> tuple[str, str, dict[str, Any]]:
        """Return the provider named after the SDK's version, configured by ``kubernetes:…``."""
        release = version or installed_version("pulumi-kubernetes")
        prefix = "kubernetes:"
        options = {
            key.removeprefix(prefix): value
            for key, value in config.items()
            if key.startswith(prefix)
        }
        return f"default_{release.replace('.', '_')}", release, options

    def make(self, configuration: Mapping[str, Any], cluster: Mapping[str, str]) -> Provider:
        """Return a provider of one cluster."""
        # A client of Kubernetes takes a moment to load; so it is loaded beside the program.
        from divvy.engine.kubernetes.provider import KubernetesProvider  # noqa: PLC0415

        return KubernetesProvider(configuration, self.manager, self.told, cluster)


@dataclass(frozen=True)
class DynamicPackage:
    """``pulumi-python``: dynamic providers, run by ``python`` in ``folder``."""

    python: str
    folder: Path
    project: str
    connection: tuple[str, ...] = ()

    def check_options(self, name: str, options: Mapping[str, Any]) -> None:
        """Accept every option: they are the stack's configuration."""

    def default(self, version: str, config: Mapping[str, Any]) -> tuple[str, str, dict[str, Any]]:
        """Return the one provider there is, configured by all of the stack's configuration."""
        return "default", "", dict(config)

    def make(self, configuration: Mapping[str, Any], cluster: Mapping[str, str]) -> Provider:
        """Return a provider, whose process starts when it is needed."""
        return DynamicProvider(self.python, self.folder, self.project, configuration)
