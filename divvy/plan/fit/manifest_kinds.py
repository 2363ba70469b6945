"""Objects of manifests: which of their kinds make pods, and which are claims of devices."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from divvy.model.problems import Keys
from divvy.plan.fit.workloads import group_of

# The kinds of Kubernetes that make pods: the version that is served, and where the pod is.
_TEMPLATE = ("spec", "template", "spec")
MAKERS: Mapping[str, tuple[str, Keys]] = {
    "Pod": ("v1", ("spec",)),
    "PodTemplate": ("v1", ("template", "spec")),
    "Deployment": ("apps/v1", _TEMPLATE),
    "ReplicaSet": ("apps/v1", _TEMPLATE),
    "ReplicationController": ("v1", _TEMPLATE),
    "StatefulSet": ("apps/v1", _TEMPLATE),
    "DaemonSet": ("apps/v1", _TEMPLATE),
    "Job": ("batch/v1", _TEMPLATE),
    "CronJob": ("batch/v1", ("spec", "jobTemplate", *_TEMPLATE)),
}
CLAIMS = {"ResourceClaim": ("spec",), "ResourceClaimTemplate": ("spec", "spec")}
CLAIM_GROUP = "resource.k8s.io"
# Its requests name their devices themselves; later versions have them below `exactly`.
FLAT_VERSION = "v1beta1"
# Values of a template that nothing has rendered: Helm's, Go's, Jinja's, OpenShift's.
_TO_RENDER = re.compile(r"\{\{|\{%|\$\{")


@dataclass(frozen=True)
class Document:
    """One document of a file: ``source`` says which, for errors."""

    source: str
    value: Any


def is_maker(value: Mapping[str, Any]) -> bool:
    """Return whether Kubernetes makes pods of an object: a kind is its group and its name."""
    version = MAKERS.get(value["kind"], ("", ()))[0]
    return bool(version) and (
        "apiVersion" not in value or group_of(value) == version.rpartition("/")[0]
    )


def is_claim(value: Mapping[str, Any]) -> bool:
    """Return whether an object is a claim of devices, or a template of claims."""
    return value["kind"] in CLAIMS and group_of(value) in ("", CLAIM_GROUP)


def is_class(value: Mapping[str, Any]) -> bool:
    """Return whether an object is a class of devices."""
    return value["kind"] == "DeviceClass" and group_of(value) == CLAIM_GROUP


def claim_version(value: Mapping[str, Any]) -> str:
    """Return the version of the API that a claim is written for, the current one if none is."""
    return str(value.get("apiVersion") or "v1").rpartition("/")[2]


def value_at(value: object, keys: Keys) -> tuple[Any, Keys]:
    """Return what is below some keys, None with the first keys that lead nowhere."""
    for number, key in enumerate(keys):
        if not isinstance(value, Mapping):
            return None, keys[:number]
        value = value.get(key)
    return value, keys


def is_to_render(value: object) -> bool:
    """Return whether a text is one that a template engine has not rendered."""
    return isinstance(value, str) and bool(_TO_RENDER.search(value))
