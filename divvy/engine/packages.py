"""The provider packages that the engine has; the core knows them by their interface alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Any

from divvy.engine.dynamic import DynamicProvider
from divvy.engine.errors import NotSupported
from divvy.engine.provider import Provider
from divvy.engine.subset import LEADS_ON


@dataclass(frozen=True)
class KubernetesPackage:
    """``kubernetes``: ``manager`` prefixes field managers; ``waiting`` hears of what is awaited."""

    manager: str
    waiting: Callable[[str, str], None]
    connection: tuple[str, ...] = ("kubeconfig", "context")

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
        """Return a provider of one cluster; raises NotSupported."""
        if str(configuration.get("enableServerSideApply", "true")).lower() == "false":
            raise NotSupported(f"enableServerSideApply: false {LEADS_ON}")
        # A client of Kubernetes takes a moment to load; so it is loaded beside the program.
        from divvy.engine.kubernetes.provider import KubernetesProvider  # noqa: PLC0415

        return KubernetesProvider(configuration, self.manager, self.waiting, cluster)


@dataclass(frozen=True)
class DynamicPackage:
    """``pulumi-python``: dynamic providers, run by ``python`` in ``folder``.

    ``output`` receives each line that they print.
    """

    python: str
    folder: Path
    project: str
    output: Callable[[str], None]
    connection: tuple[str, ...] = ()

    def default(self, version: str, config: Mapping[str, Any]) -> tuple[str, str, dict[str, Any]]:
        """Return the one provider, configured by all of the stack's configuration."""
        return "default", "", dict(config)

    def make(self, configuration: Mapping[str, Any], cluster: Mapping[str, str]) -> Provider:
        """Return a provider, whose process starts when it is needed."""
        return DynamicProvider(self.python, self.folder, self.project, configuration, self.output)
