"""Recording rules: what each pod was allocated, and how long it waited, for bills by team.

A rule is evaluated once a minute, so that its sum over a time, divided by 60, are hours.
"""

from typing import Any

from divvy.model import Cluster
from divvy.model.api_names import GPUS_RECORD, WAITING_RECORD
from divvy.render.objects.alerts import pending

DEVICES = "namespace_pod_kind:divvy_allocated_devices:sum"
MEMORY = "namespace_pod_kind:divvy_allocated_memory_mib:sum"
_BY = "by (namespace, pod, kind)"


def usage_group(cluster: Cluster) -> dict[str, Any]:
    """Return the rule group."""
    rules = {
        GPUS_RECORD: f"sum {_BY} (divvy_allocated_cores) / 100",
        DEVICES: f"sum {_BY} (divvy_allocated_devices)",
        MEMORY: f"sum {_BY} (divvy_allocated_memory_mib)",
        WAITING_RECORD: f"max by (namespace, pod) ({pending(cluster)})",
    }
    return {
        "name": "divvy-usage",
        "interval": "1m",
        "rules": [{"record": record, "expr": expression} for record, expression in rules.items()],
    }
