"""The shape of pods and of claims: which fields there are, and which of them fit reads.

A field that Kubernetes does not have may be one that it will have, or a typing error that takes a
request or a condition away: whatever has one is unknown. Field names are those of Kubernetes 1.37.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from divvy.model import Problem
from divvy.model.problems import Keys, problem, value_text

# Stands for every key of a mapping.
ANY = "*"
# Quantities are read, and found wrong, elsewhere.
QUANTITY = object()
# A kind of value, a mapping of keys to shapes, or a list of one shape; None is a field that is
# there and not looked at. Keys may be absent or empty.
Shape = Any


def _fields(names: str) -> dict[str, Shape]:
    return dict.fromkeys(names.split())


_EXPRESSION = {"key": str, "operator": str, "values": [str]}
_TERM = {"matchExpressions": [_EXPRESSION], "matchFields": [_EXPRESSION]}
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_NODES = {
    "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [_TERM]},
    _PREFERRED: None,
}
_PODS = {"requiredDuringSchedulingIgnoredDuringExecution": None, _PREFERRED: None}
_RESOURCES = {
    "limits": {ANY: QUANTITY},
    "requests": {ANY: QUANTITY},
    "claims": [{"name": str, "request": str}],
}
_CONTAINER = {
    **_fields(
        "args command env envFrom image imagePullPolicy lifecycle livenessProbe readinessProbe "
        "resizePolicy restartPolicyRules securityContext startupProbe stdin stdinOnce "
        "terminationMessagePath terminationMessagePolicy tty volumeDevices volumeMounts workingDir"
    ),
    "name": str,
    "restartPolicy": str,
    "resources": _RESOURCES,
    "ports": [{"hostPort": int, **_fields("containerPort hostIP name protocol")}],
}
META = {
    "name": str,
    "generateName": str,
    "namespace": str,
    "labels": {ANY: str},
    "annotations": {ANY: None},
    ANY: None,
}
# What every object has beside its own fields.
OBJECT = {"apiVersion": str, "kind": str, "metadata": META, "status": {ANY: None}}
CLASS = {"spec": {"extendedResourceName": str, ANY: None}, ANY: None}
POD_META = {
    **_fields(
        "creationTimestamp deletionGracePeriodSeconds deletionTimestamp finalizers generation "
        "managedFields ownerReferences resourceVersion selfLink uid"
    ),
    "name": str,
    "generateName": str,
    "namespace": str,
    "labels": {ANY: str},
    "annotations": {ANY: str},
}
POD_SPEC = {
    **_fields(
        "activeDeadlineSeconds automountServiceAccountToken dnsConfig dnsPolicy enableServiceLinks "
        "ephemeralContainers hostAliases hostIPC hostNetwork hostPID hostUsers hostname "
        "hostnameOverride imagePullSecrets os preemptionPolicy readinessGates restartPolicy "
        "runtimeClassName schedulingGroup securityContext serviceAccount serviceAccountName "
        "setHostnameAsFQDN shareProcessNamespace subdomain terminationGracePeriodSeconds "
        "topologySpreadConstraints workloadRef"
    ),
    "containers": [_CONTAINER],
    "initContainers": [_CONTAINER],
    "resources": _RESOURCES,
    "overhead": {ANY: QUANTITY},
    "nodeName": str,
    "nodeSelector": {ANY: str},
    "tolerations": [
        {"key": str, "operator": str, "value": str, "effect": str, "tolerationSeconds": int}
    ],
    "affinity": {"nodeAffinity": _NODES, "podAffinity": _PODS, "podAntiAffinity": _PODS},
    "resourceClaims": [{"name": str, "resourceClaimName": str, "resourceClaimTemplateName": str}],
    "schedulingGates": [{"name": str}],
    "schedulerName": str,
    "priorityClassName": str,
    "priority": int,
    "volumes": [{ANY: None}],
}
_DEVICES = {
    **_fields("adminAccess tolerations"),
    "deviceClassName": str,
    "allocationMode": str,
    "count": int,
    "capacity": {"requests": {ANY: QUANTITY}},
    "selectors": [{"cel": {"expression": str}}],
}
_NAMED_DEVICES = {"name": str, **_DEVICES}


def _claim_spec(request: Mapping[str, Shape]) -> Shape:
    alternatives = {"name": str, "firstAvailable": [_NAMED_DEVICES]}
    return {
        "devices": {"requests": [{**alternatives, **request}], "constraints": None, "config": None}
    }


# By version of resource.k8s.io: before v1beta2 a request has its devices beside its name.
CLAIM_SPECS = {
    "v1": _claim_spec({"exactly": _DEVICES}),
    "v1beta2": _claim_spec({"exactly": _DEVICES}),
    "v1beta1": _claim_spec(_DEVICES),
}
# Fields of a pod that decide about it: they have no effect where they are not expected.
DECIDING = frozenset(POD_SPEC) - frozenset(_fields("volumes priority")) - {
    name for name, shape in POD_SPEC.items() if shape is None
} | {"limits", "nodeAffinity", "nodeSelectorTerms", "annotations"}
_WORDS = {str: "a string", int: "a whole number"}


def shape_problems(keys: Keys, value: object, shape: Shape) -> Iterator[Problem]:
    """Yield what of a value is not as the shape says, each with its keys."""
    if value is None or shape is None or shape is QUANTITY:
        return
    if isinstance(shape, Mapping):
        if not isinstance(value, Mapping):
            yield problem(keys, f"is {value_text(value)}; a mapping is expected")
            return
        for key, item in value.items():
            known = shape.get(key, shape.get(ANY))
            yield from shape_problems((*keys, str(key)), item, known)
    elif isinstance(shape, list):
        if not isinstance(value, list):
            yield problem(keys, f"is {value_text(value)}; a list is expected")
            return
        for number, item in enumerate(value):
            if item is None:
                yield problem((*keys, number), "is empty; leave it out")
            yield from shape_problems((*keys, number), item, shape[0])
    elif not isinstance(value, shape) or isinstance(value, bool):
        reason = f"is {value_text(value)}; {_WORDS[shape]} is expected"
        plain = isinstance(value, bool | int | float) and shape is str
        yield problem(keys, reason, f'write "{value_text(value)}"' if plain else "")


def unknown_fields(keys: Keys, value: object, shape: Shape) -> Iterator[Keys]:
    """Yield where a value of that shape has fields that the shape does not have.

    In what is not looked at, fields that decide about a pod are out of place.
    """
    if shape is None:
        yield from misplaced(keys, value)
    elif isinstance(shape, Mapping) and isinstance(value, Mapping):
        for key, item in value.items():
            if key not in shape and ANY not in shape:
                yield (*keys, str(key))
            elif key != "volumes":
                yield from unknown_fields((*keys, str(key)), item, shape.get(key, shape.get(ANY)))
    elif isinstance(shape, list) and isinstance(value, list):
        for number, item in enumerate(value):
            yield from unknown_fields((*keys, number), item, shape[0])


def misplaced(keys: Keys, value: object) -> Iterator[Keys]:
    """Yield the fields in a value, at any depth, that decide about a pod elsewhere."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            if key in DECIDING:
                yield (*keys, str(key))
            else:
                yield from misplaced((*keys, str(key)), item)
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from misplaced((*keys, number), item)
