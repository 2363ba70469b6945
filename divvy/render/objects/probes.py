"""How the kubelet asks Divvy's containers whether they work."""

from __future__ import annotations

from typing import Any


def probes() -> dict[str, Any]:
    """Return the probes of a container that serves /healthz and /readyz on its port ``metrics``.

    If the tenants take all processors, a container that asks for 20m answers later than in
    Kubernetes' own second, and needs more than a minute to start: it would be restarted in the
    middle of a change, or again and again before it has begun.
    """
    return {
        "startupProbe": {**_asks("/healthz", period=1), "failureThreshold": 600},
        "readinessProbe": _asks("/readyz", period=2),
        "livenessProbe": {**_asks("/healthz", period=10), "failureThreshold": 6},
    }


def _asks(path: str, period: int) -> dict[str, Any]:
    request = {"path": path, "port": "metrics"}
    return {"httpGet": request, "periodSeconds": period, "timeoutSeconds": 5}
