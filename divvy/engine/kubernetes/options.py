"""The options of a Kubernetes provider: which are known, which are refused by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from divvy.engine.errors import NotSupported

_KNOWN = {
    "kubeconfig",
    "context",
    "namespace",
    "enableConfigMapMutable",
    "enableSecretMutable",
    "enableServerSideApply",
    "suppressDeprecationWarnings",
    "suppressHelmHookWarnings",
    "version",
    "pluginDownloadURL",
    "__internal",
}
# What says which cluster; the other options say how to work in it.
CONNECTION = ("kubeconfig", "context")


def check_options(name: str, options: Mapping[str, Any]) -> None:
    """Raise NotSupported for an option that the engine does not honour."""
    for option in sorted(options):
        if option not in _KNOWN:
            raise NotSupported(f"{name}: the provider option {option} is not supported")
    if str(options.get("enableServerSideApply", "true")).lower() == "false":
        raise NotSupported(
            f"{name}: enableServerSideApply: false is not supported: the engine applies"
        )
