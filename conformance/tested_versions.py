"""The versions that a run has tested: the program, the stack file, the cluster and its nodes."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from typing import Any

from divvy.version_info import revision, version

_NODE_INFO = {
    "kubelet": "kubeletVersion",
    "containerRuntime": "containerRuntimeVersion",
    "kernel": "kernelVersion",
    "os": "osImage",
    "architecture": "architecture",
    "boot": "bootID",
}
_CUDA_LABEL = "nvidia.com/cuda.runtime-version.full"
# As much of a boot's UUID as tells it from others.
_BOOT_LETTERS = 8
_SECONDS = 20


def program_versions() -> dict[str, str]:
    """Return Divvy's version, and the revision of its sources where they are in git."""
    built = revision()
    return {"version": version(), **({"revision": built} if built else {})}


def node_versions(node: Mapping[str, Any]) -> dict[str, str]:
    """Return what a node says of its software."""
    info = (node.get("status") or {}).get("nodeInfo") or {}
    labels = node["metadata"].get("labels") or {}
    versions = {name: str(info.get(key) or "") for name, key in _NODE_INFO.items()}
    versions |= {"cuda": labels.get(_CUDA_LABEL) or "", "boot": versions["boot"][:_BOOT_LETTERS]}
    return {name: text for name, text in versions.items() if text}


def server_version(kubeconfig: str | None, context: str | None) -> str:
    """Return the API server's version, "" if it does not say."""
    options = [f"--kubeconfig={kubeconfig}"] if kubeconfig else []
    options += [f"--context={context}"] if context else []
    try:
        answer = json.loads(_output("kubectl", *options, "get", "--raw", "/version") or "{}")
    except ValueError:
        return ""
    return str(answer.get("gitVersion", ""))


def _output(*command: str) -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
