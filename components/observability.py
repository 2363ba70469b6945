"""What a cluster has for monitoring."""

from components.objects import ObjectsComponent


class Observability(ObjectsComponent):
    """Dashboard and alerts over the agents' metrics.

    Creates, as `observability` of the stack file says:
    * the ConfigMap with the Grafana dashboard
    * ServiceMonitor and PrometheusRule of the Prometheus Operator
    """

    token = "divvy:index:Observability"
