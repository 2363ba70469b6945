"""What a cluster has for monitoring: the dashboard, and objects of the Prometheus Operator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from divvy.model import Cluster
from divvy.render.alerts import alert_groups
from divvy.render.dashboard import FILE, dashboard_json

NAME = "divvy"
DASHBOARD = "divvy-dashboard"


def observability_objects(
    cluster: Cluster, generation: str, labels: Mapping[str, str], agent_labels: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Return the objects that ``observability`` asks for.

    ``generation`` names the configuration that nodes should follow; ``labels`` go on the
    objects, ``agent_labels`` select the Service with the agents' metrics.
    """
    wish = cluster.observability

    def metadata(name: str, **more: str) -> dict[str, Any]:
        return {"name": name, "namespace": cluster.namespace, "labels": {**labels, **more}}

    found: list[dict[str, Any]] = []
    if wish.dashboard:
        found.append(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                # The label by which Grafana's usual sidecar finds dashboards.
                "metadata": metadata(DASHBOARD, grafana_dashboard="1"),
                "data": {FILE: dashboard_json()},
            }
        )
    if wish.service_monitor:
        found.append(
            {
                "apiVersion": "monitoring.coreos.com/v1",
                "kind": "ServiceMonitor",
                "metadata": metadata(NAME),
                "spec": {
                    "selector": {"matchLabels": dict(agent_labels)},
                    # The labels namespace and pod are those of the pod that holds a device.
                    "endpoints": [{"port": "metrics", "interval": "15s", "honorLabels": True}],
                },
            }
        )
    if wish.alerts:
        found.append(
            {
                "apiVersion": "monitoring.coreos.com/v1",
                "kind": "PrometheusRule",
                "metadata": metadata(NAME),
                "spec": {"groups": alert_groups(generation)},
            }
        )
    return found
