"""The shape of pods and of what makes them, as far as fit reads them."""

from collections.abc import Iterator, Mapping
from typing import Any

from divvy.model import Problem
from divvy.model.problems import Keys, problem, value_text

# Stands for every key of a mapping.
ANY = "*"
# Quantities are read, and found wrong, elsewhere.
QUANTITY = object()
# A kind of value, a mapping of keys to shapes, or a list of one shape. Keys may be absent or empty.
Shape = Any

_EXPRESSION = {"key": str, "operator": str, "values": [str]}
_TERM = {"matchExpressions": [_EXPRESSION], "matchFields": [_EXPRESSION]}
_RESOURCES = {"limits": {ANY: QUANTITY}, "requests": {ANY: QUANTITY}}
_CONTAINER = {
    "name": str,
    "restartPolicy": str,
    "resources": _RESOURCES,
    "ports": [{"hostPort": int}],
}
META = {"name": str, "generateName": str, "namespace": str, "labels": {ANY: str}, ANY: None}
POD_META = {**META, "annotations": {ANY: str}}
POD_SPEC = {
    "containers": [_CONTAINER],
    "initContainers": [_CONTAINER],
    "resources": _RESOURCES,
    "overhead": {ANY: QUANTITY},
    "nodeName": str,
    "nodeSelector": {ANY: str},
    "tolerations": [{"key": str, "operator": str, "value": str, "effect": str}],
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [_TERM]}
        }
    },
    "resourceClaims": [{"name": str, "resourceClaimName": str, "resourceClaimTemplateName": str}],
    "schedulingGates": [{"name": str}],
    "schedulerName": str,
    "priorityClassName": str,
    "priority": int,
    "volumes": [{}],
}
_DEVICES = {
    "deviceClassName": str,
    "count": int,
    "capacity": {"requests": {ANY: QUANTITY}},
    "selectors": [{"cel": {"expression": str}}],
}
CLAIM_SPEC = {
    "devices": {"requests": [{"name": str, "exactly": _DEVICES, "firstAvailable": [_DEVICES]}]}
}
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
