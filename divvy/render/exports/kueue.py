"""Kueue's objects for a stack: its Configuration, and the flavors and quota of the pools."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from divvy.model.api_names import CLAIMS_DRIVER
from divvy.model.claim_names import MEMORY
from divvy.model.quantities import mib_quantity
from divvy.plan.quota.kueue_quota import ClassMapping, Flavor, KueueQuota
from divvy.render.exports.plain_yaml import plain_yaml

_API = "kueue.x-k8s.io/v1beta2"
CONFIGURATION = {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration"}
# Of a ClusterQueue and of a ResourceFlavor, by Kueue's own schemas.
_MAX_FLAVORS, _MAX_LABELS = 64, 8
_CONFIGURATION_HEAD = (
    "# Merge this into Kueue's own Configuration (ConfigMap kueue-manager-config) and restart it.\n"
)
_QUEUE_HEAD = (
    "# All that the pools have, each resource alone: a GPU that is claimed in one way is missing "
    "in the others.\n"
    "# Divide it among a ClusterQueue for each team, and add cpu and memory.\n"
)


def kueue_objects(quota: KueueQuota) -> str:
    """Return the Configuration, ResourceFlavors and a ClusterQueue (Kueue 0.19) as YAML.

    Comments say what is charged or refused otherwise than a user would expect.
    """
    return "---\n".join(_documents(quota))


def _documents(quota: KueueQuota) -> Iterator[str]:
    if quota.mappings:
        notes = "".join(f"# {note}\n" for note in quota.notes)
        yield notes + _CONFIGURATION_HEAD + plain_yaml(_configuration(quota))
    for flavor in quota.flavors:
        spec = {"nodeLabels": dict(flavor.labels)} if flavor.labels else {}
        labels = len(flavor.labels)
        note = (
            f"# Kueue takes {_MAX_LABELS} labels of these {labels}: keep those that tell the nodes "
            "apart.\n"
        )
        yield (note if labels > _MAX_LABELS else "") + plain_yaml(
            kueue_object("ResourceFlavor", flavor.pool, spec)
        )
    left_out = "".join(
        f"# Pool {pool} is left out: nothing is known of its hardware.\n" for pool in quota.unknown
    )
    if any(flavor.quota for flavor in quota.flavors):
        head = left_out + _QUEUE_HEAD
        for at in range(0, len(quota.flavors), _MAX_FLAVORS):
            name = f"divvy-{at // _MAX_FLAVORS + 1}" if at else "divvy"
            flavors = quota.flavors[at : at + _MAX_FLAVORS]
            yield head + plain_yaml(_cluster_queue(name, quota, flavors))
            head = ""
    elif left_out:
        yield left_out


def _configuration(quota: KueueQuota) -> dict[str, Any]:
    gates = {"KueueDRAIntegrationConsumableCapacity": True}
    shares = any(mapping.source == "capacity" for mapping in quota.mappings)
    return {
        **CONFIGURATION,
        **({"featureGates": gates} if shares else {}),
        "resources": {"deviceClassMappings": [_mapping(mapping) for mapping in quota.mappings]},
    }


def _mapping(mapping: ClassMapping) -> dict[str, Any]:
    classes = {"name": mapping.resource, "deviceClassNames": list(mapping.classes)}
    if mapping.source == "count":
        return classes
    source = {
        "name": MEMORY,
        "driver": CLAIMS_DRIVER,
        # The class selects the devices.
        "deviceSelector": {"cel": {"expression": f'device.driver == "{CLAIMS_DRIVER}"'}},
    }
    return {**classes, "sources": [{mapping.source: source}]}


def _cluster_queue(name: str, quota: KueueQuota, flavors: Sequence[Flavor]) -> dict[str, Any]:
    in_mib = {mapping.resource for mapping in quota.mappings if mapping.source != "count"}
    group = {
        "coveredResources": list(flavors[0].quota),
        "flavors": [
            {
                "name": flavor.pool,
                "resources": [
                    {
                        "name": resource,
                        "nominalQuota": mib_quantity(amount)
                        if amount and resource in in_mib
                        else str(amount),
                    }
                    for resource, amount in flavor.quota.items()
                ],
            }
            for flavor in flavors
        ],
    }
    spec = {"namespaceSelector": {}, "resourceGroups": [group]}
    return kueue_object("ClusterQueue", name, spec)


def kueue_object(kind: str, name: str, spec: dict[str, Any], **meta: str) -> dict[str, Any]:
    """Return an object of Kueue's; ``meta`` is what its metadata have beside its name."""
    return {"apiVersion": _API, "kind": kind, "metadata": {"name": name, **meta}, "spec": spec}
