"""Reads the DeviceTaintRules, by which administrators keep pods off devices."""

from collections.abc import Iterable, Mapping
from typing import Any

from divvy.live.cluster_reader import ClusterReader, NotAllowed
from divvy.model.api_names import CLAIMS_DRIVER

_API, _RULES = "/apis/resource.k8s.io/v1", "devicetaintrules"


def taint_rules(reader: ClusterReader, slices: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the rules of a cluster, none if no slice is of Divvy's devices; raises NotAllowed."""
    if all((item.get("spec") or {}).get("driver") != CLAIMS_DRIVER for item in slices):
        return []
    try:
        return list(reader.paged(f"{_API}/{_RULES}"))
    except NotAllowed:
        # Before 1.37 Kubernetes has no rules, and refuses them to whoever may not read them.
        resources = (reader.find(_API) or {}).get("resources") or ()
        if any(resource.get("name") == _RULES for resource in resources):
            raise
        return []
