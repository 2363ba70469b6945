"""The shapes of the API's objects, as far as Divvy reads them.

The API server keeps to them. What does not is of somebody's own server, or of a version to come.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Stands for every key of a mapping. A key that ends with "!" has to be there.
_ANY = "*"
_QUANTITY = (str, int, float)
# A type or several, a mapping of keys to shapes, or a list of one shape. What is absent is right.
Shape = Any

_TEXTS = {_ANY: str}
_QUANTITIES = {_ANY: _QUANTITY}
_METADATA = {
    "name!": str,
    "namespace": str,
    "uid": str,
    "resourceVersion": str,
    "labels": _TEXTS,
    "annotations": _TEXTS,
    "creationTimestamp": str,
    "deletionTimestamp": str,
    "ownerReferences": [{"uid": str}],
}
_CONTAINER = {
    "name": str,
    "image": str,
    "resources": {"limits": _QUANTITIES, "requests": _QUANTITIES, "claims": [{"name!": str}]},
    "ports": [{"hostPort": int}],
}
_CONTAINER_STATUS = {"state": {_ANY: {}}, "ready": bool}
_CONDITION = {"type!": str, "status!": str, "reason": str, "message": str}
_POD_SPEC = {
    "containers": [_CONTAINER],
    "initContainers": [_CONTAINER],
    "overhead": _QUANTITIES,
    "nodeName": str,
    "nodeSelector": _TEXTS,
    "tolerations": [{}],
    "affinity": {_ANY: {}},
    "resourceClaims": [
        {"name!": str, "resourceClaimName": str, "resourceClaimTemplateName": str},
    ],
    "schedulingGates": [{"name": str}],
    "volumes": [{}],
}
# Only what is read: releases of Kubernetes add fields of other types, such as
# runningInUserNamespace.
_NODE_INFO = dict.fromkeys(
    (
        *("architecture", "operatingSystem", "osImage", "kernelVersion"),
        *("kubeletVersion", "containerRuntimeVersion", "bootID"),
    ),
    str,
)
_DEVICES = dict.fromkeys(("driver", "pool", "device"), str)
_CLAIM_SPEC = {"devices": {"requests": [{"name": str, "exactly": {}, "firstAvailable": [{}]}]}}
_RESULT = {
    "driver!": str,
    "pool!": str,
    "device!": str,
    "request": str,
    "shareID": str,
    "adminAccess": bool,
    "consumedCapacity": _QUANTITIES,
}
_WORKLOAD = {"spec!": {"template!": {"spec!": {"containers": [{**_CONTAINER, "args": [str]}]}}}}
SHAPES: Mapping[str, Shape] = {
    "nodes": {
        "spec": {"taints": [{"key!": str, "effect!": str}]},
        "status": {
            "allocatable": _QUANTITIES,
            "capacity": _QUANTITIES,
            "nodeInfo": _NODE_INFO,
            "conditions": [_CONDITION],
        },
    },
    "pods": {
        "spec!": _POD_SPEC,
        "status": {
            "phase": str,
            "conditions": [_CONDITION],
            "containerStatuses": [_CONTAINER_STATUS],
            "initContainerStatuses": [_CONTAINER_STATUS],
            "resourceClaimStatuses": [{"name!": str, "resourceClaimName": str}],
            "extendedResourceClaimStatus": {
                "resourceClaimName": str,
                "requestMappings": [{"containerName!": str, "resourceName!": str}],
            },
        },
    },
    "resourceclaims": {
        "spec": _CLAIM_SPEC,
        "status": {
            "allocation": {"devices": {"results": [_RESULT]}},
            "reservedFor": [{"name!": str, "resource": str, "uid": str}],
        },
    },
    "resourceclaimtemplates": {"spec!": {"spec!": _CLAIM_SPEC}},
    "resourceslices": {
        "spec!": {
            "driver!": str,
            "nodeName": str,
            "pool!": {"name!": str, "generation": int},
            "devices": [{"name!": str, "attributes": {_ANY: {}}, "capacity": {_ANY: {}}}],
            "sharedCounters": [{"name!": str, "counters": {_ANY: {}}}],
        }
    },
    "deviceclasses": {"spec": {"extendedResourceName": str}},
    "devicetaintrules": {
        "spec!": {"taint!": {"key!": str, "effect!": str}, "deviceSelector": _DEVICES}
    },
    "priorityclasses": {"value": int, "globalDefault": bool},
    "resourcequotas": {"spec": {"hard": _QUANTITIES}, "status": {"hard": _QUANTITIES}},
    "configmaps": {"data": _TEXTS},
    "leases": {"spec": {"holderIdentity": str, "renewTime": str, "leaseDurationSeconds": int}},
    "daemonsets": _WORKLOAD,
    "deployments": _WORKLOAD,
    "events": {"reason": str, "message": str},
    "endpointslices": {"endpoints": [{"addresses": [str]}], "ports": [{}]},
}


def shape_problem(obj: object, resource: str) -> str:
    """Return what of an object is not as the API has it, "" if nothing is."""
    shape = {"metadata!": _METADATA, "spec": {}, "status": {}, **SHAPES.get(resource, {})}
    return next(_problems(obj, shape, "it"), "")


def _problems(value: object, shape: Shape, where: str) -> Any:
    if isinstance(shape, Mapping):
        if not isinstance(value, Mapping):
            yield f"{where} is not an object"
            return
        required = {key[:-1] for key in shape if key.endswith("!")}
        for key in sorted(required):
            if value.get(key) in (None, ""):
                yield f"{_inside(where, key)} is missing"
        for key, item in value.items():
            wanted = shape.get(f"{key}!", shape.get(key, shape.get(_ANY)))
            if wanted is not None and item is not None:
                yield from _problems(item, wanted, _inside(where, str(key)))
    elif isinstance(shape, list):
        if not isinstance(value, list):
            yield f"{where} is not a list"
            return
        for item in value:
            yield from _problems(item, shape[0], where)
    elif not isinstance(value, shape) or (isinstance(value, bool) and shape is not bool):
        yield f"{where} is {type(value).__name__}"


def _inside(where: str, key: str) -> str:
    # Of maps a tenant chooses the keys.
    return key[:100] if where == "it" else f"{where}.{key[:100]}"
