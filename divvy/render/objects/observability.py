"""Objects for monitoring: the dashboard, and objects of the Prometheus Operator."""

from __future__ import annotations

from typing import Any

from divvy.model import Cluster
from divvy.model.api_names import Component, component_labels
from divvy.render.objects.alerts import alert_groups
from divvy.render.objects.dashboard import FILE, dashboard_json
from divvy.render.objects.usage_rules import usage_group

NAME = "divvy"
DASHBOARD = "divvy-dashboard"


def observability_objects(cluster: Cluster, generation: str) -> list[dict[str, Any]]:
    """Return the objects that ``observability`` asks for.

    ``generation`` names the configuration that nodes should follow.
    """
    enabled = cluster.observability
    labels = component_labels(Component.OBSERVABILITY)

    def metadata(name: str, **more: str) -> dict[str, Any]:
        return {"name": name, "namespace": cluster.namespace, "labels": {**labels, **more}}

    objects: list[dict[str, Any]] = []
    if enabled.dashboard:
        objects.append(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                # The label by which Grafana's usual sidecar finds dashboards.
                "metadata": metadata(DASHBOARD, grafana_dashboard="1"),
                "data": {FILE: dashboard_json()},
            }
        )
    if enabled.service_monitor:
        objects.append(
            {
                "apiVersion": "monitoring.coreos.com/v1",
                "kind": "ServiceMonitor",
                "metadata": metadata(NAME),
                "spec": {
                    "selector": {"matchLabels": component_labels(Component.AGENT)},
                    # The labels namespace and pod are those of the pod that holds a device.
                    "endpoints": [{"port": "metrics", "interval": "15s", "honorLabels": True}],
                },
            }
        )
    if enabled.alerts:
        objects.append(
            {
                "apiVersion": "monitoring.coreos.com/v1",
                "kind": "PrometheusRule",
                "metadata": metadata(NAME),
                "spec": {"groups": [*alert_groups(cluster, generation), usage_group(cluster)]},
            }
        )
    if enabled.network_policy is not None:
        readers = {"namespaceSelector": {"matchLabels": dict(enabled.network_policy)}}
        objects.append(
            {
                "apiVersion": "networking.k8s.io/v1",
                "kind": "NetworkPolicy",
                "metadata": metadata(NAME),
                "spec": {
                    "podSelector": {"matchLabels": component_labels(Component.AGENT)},
                    "policyTypes": ["Ingress"],
                    # The kubelet's probes come from the node, which a policy never keeps out.
                    "ingress": [{"from": [readers], "ports": [{"port": "metrics"}]}],
                },
            }
        )
    return objects
