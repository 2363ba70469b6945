"""The configuration of a node's kubelet, read through the API server."""

from __future__ import annotations

from typing import Any

from conformance.cluster.api import Api
from conformance.skips import not_made
from divvy.kube.errors import FORBIDDEN, ApiError
from divvy.kube.kind import NODE
from divvy.model.quantities import parse_duration

MAX_SYNC_SECONDS = 10.0
"""A pod whose claim the kubelet asked about too early waits for so long at most."""


def kubelet_settings(api: Api, node: str) -> dict[str, Any]:
    """Return the kubelet's KubeletConfiguration; skips the check if it may not be read."""
    try:
        configz = api.get(NODE, f"{node}/proxy/configz")
    except ApiError as problem:
        if problem.code == FORBIDDEN:
            not_made("this account may not `get nodes/proxy`: the kubelet's configuration is open")
        raise
    settings: dict[str, Any] = configz["kubeletconfig"]
    return settings


def syncs_soon(settings: dict[str, Any]) -> tuple[str, str]:
    """Judge how soon a kubelet tries again to start a pod."""
    frequency = settings["syncFrequency"]
    soon = parse_duration(frequency) <= MAX_SYNC_SECONDS
    expected = f"syncFrequency {MAX_SYNC_SECONDS:.0f}s or less"
    return expected, expected if soon else f"syncFrequency {frequency}"
