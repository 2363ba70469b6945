"""When an object is ready, and when it never will be: one function per kind, on values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

# Waiting reasons of a container that time alone does not resolve.
_CRASHING = "CrashLoopBackOff"
_HOPELESS = {
    _CRASHING,
    "InvalidImageName",
    "ErrImageNeverPull",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
    # The kubelet tries again; after its first back-off it rarely gets better by itself.
    "ImagePullBackOff",
}
# The kubelet waits 10 s, 20 s, 40 s … before it starts a container again: this is after 30 s.
_MIN_RESTARTS = 3
# The API's times are whole seconds.
_SETTLING = timedelta(seconds=2)
# What has failed before is ready for a moment at every new start.
_SETTLING_AGAIN = timedelta(seconds=10)


@dataclass(frozen=True)
class ContainerFailure:
    """A container that cannot start or keeps ending: where and why."""

    pod: str
    container: str
    reason: str
    message: str
    restarts: int


def readiness(obj: Mapping[str, Any]) -> str | None:
    """Return None when the object is ready, else what is missing."""
    check = CHECKS.get(str(obj.get("kind")))
    return None if check is None else check(obj)


def waits_for_pods(obj: Mapping[str, Any]) -> bool:
    """Tell whether the object's readiness is that of pods which its selector names."""
    return obj.get("kind") in ("DaemonSet", "Deployment", "StatefulSet", "ReplicaSet")


def _daemon_set(obj: Mapping[str, Any]) -> str | None:
    status = obj.get("status") or {}
    if status.get("observedGeneration", 0) < obj["metadata"].get("generation", 0):
        return "the controller has not seen it yet"
    wanted = status.get("desiredNumberScheduled", 0)
    if obj["spec"].get("updateStrategy", {}).get("type") != "OnDelete":
        updated = status.get("updatedNumberScheduled", 0)
        if updated < wanted:
            return f"{updated} of {wanted} pods are updated"
    ready = status.get("numberReady", 0)
    return None if ready >= wanted else f"{ready} of {wanted} pods are ready"


def _replicated(obj: Mapping[str, Any]) -> str | None:
    status = obj.get("status") or {}
    if status.get("observedGeneration", 0) < obj["metadata"].get("generation", 0):
        return "the controller has not seen it yet"
    wanted = obj["spec"].get("replicas", 1)
    updated = status.get("updatedReplicas", status.get("replicas", 0))
    if updated < wanted:
        return f"{updated} of {wanted} pods are updated"
    ready = status.get("readyReplicas", 0)
    return None if ready >= wanted else f"{ready} of {wanted} pods are ready"


def _pod(obj: Mapping[str, Any]) -> str | None:
    status = obj.get("status") or {}
    if status.get("phase") == "Succeeded":
        return None
    for condition in status.get("conditions") or ():
        if condition["type"] == "Ready" and condition["status"] == "True":
            return None
    return f"the pod is {status.get('phase', 'Pending')}"


def _job(obj: Mapping[str, Any]) -> str | None:
    return None if _condition(obj, "Complete") else "the job is not complete"


def _definition(obj: Mapping[str, Any]) -> str | None:
    return None if _condition(obj, "Established") else "the definition is not established"


def _service(obj: Mapping[str, Any]) -> str | None:
    if (obj.get("spec") or {}).get("type") != "LoadBalancer":
        return None
    balancer = (obj.get("status") or {}).get("loadBalancer") or {}
    return None if balancer.get("ingress") else "the service has no address yet"


def _condition(obj: Mapping[str, Any], kind: str) -> Mapping[str, Any] | None:
    for condition in (obj.get("status") or {}).get("conditions") or ():
        if condition["type"] == kind and condition["status"] == "True":
            return dict(condition)
    return None


def failure(obj: Mapping[str, Any]) -> str | None:
    """Return why an object never becomes ready, as its own status says, None where it may."""
    failed = _condition(obj, "Failed") if obj.get("kind") == "Job" else None
    if failed is None:
        return None
    return f"the job failed: {failed.get('message') or failed.get('reason') or 'no reason given'}"


def binds_late(storage_class: Mapping[str, Any]) -> bool:
    """Tell whether claims of a class stay unbound until a pod uses them."""
    return storage_class.get("volumeBindingMode") == "WaitForFirstConsumer"


def _claim(obj: Mapping[str, Any]) -> str | None:
    phase = (obj.get("status") or {}).get("phase", "Pending")
    return None if phase == "Bound" else f"the claim is {phase}"


def _namespace(obj: Mapping[str, Any]) -> str | None:
    phase = (obj.get("status") or {}).get("phase", "Active")
    return None if phase == "Active" else f"the namespace is {phase}"


CHECKS = {
    "DaemonSet": _daemon_set,
    "Deployment": _replicated,
    "StatefulSet": _replicated,
    "ReplicaSet": _replicated,
    "Pod": _pod,
    "Job": _job,
    "CustomResourceDefinition": _definition,
    "Service": _service,
    "PersistentVolumeClaim": _claim,
    "Namespace": _namespace,
}


def terminal_failure(pods: Sequence[Mapping[str, Any]]) -> ContainerFailure | None:
    """Return the first container that will not start however long one waits."""
    for pod in pods:
        if pod["metadata"].get("deletionTimestamp"):
            continue
        status = pod.get("status") or {}
        for container in [
            *(status.get("initContainerStatuses") or ()),
            *(status.get("containerStatuses") or ()),
        ]:
            waiting = (container.get("state") or {}).get("waiting") or {}
            reason, restarts = waiting.get("reason", ""), container.get("restartCount", 0)
            if reason == _CRASHING and restarts < _MIN_RESTARTS:
                continue  # it may only wait for what it needs, by ending
            if reason in _HOPELESS:
                name = pod["metadata"]["name"]
                text = waiting.get("message", "")
                return ContainerFailure(name, container["name"], reason, text, restarts)
            # Between two tries the kubelet may go on showing how the last one ended.
            ended = (container.get("state") or {}).get("terminated") or {}
            if ended.get("exitCode") and restarts >= _MIN_RESTARTS:
                text = f"exit code {ended['exitCode']}, again"
                return ContainerFailure(
                    pod["metadata"]["name"], container["name"], _CRASHING, text, restarts
                )
    return None


def of_current_template(
    workload: Mapping[str, Any], pods: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """Return the pods made from the workload's present template, not those it replaces.

    What an old template's pods suffer from says nothing about the new one.
    """
    wanted = _shape(workload["spec"]["template"]["spec"])
    return [pod for pod in pods if _shape(pod["spec"]) == wanted]


def _shape(spec: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    keys = ("name", "image", "command", "args")
    return [
        tuple(container.get(key) for key in keys)
        for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ()))
    ]


def not_stable(pods: Sequence[Mapping[str, Any]], now: datetime) -> str | None:
    """Name a pod whose readiness says nothing yet, None where there is none.

    A container without a readiness probe is ready the moment it starts, even if it
    ends a moment later; and the workload may still count a pod that has just ended.
    """
    for pod in pods:
        status = pod.get("status") or {}
        leaving = pod["metadata"].get("deletionTimestamp")
        if leaving or status.get("phase") in ("Succeeded", "Failed"):
            continue
        name = pod["metadata"]["name"]
        since = _ready_since(pod)
        if since is None:
            return f"pod {name} is not ready"
        containers = pod["spec"].get("containers") or ()
        probed = all("readinessProbe" in container for container in containers)
        failed = _has_failed(status)
        if not probed and now - since < (_SETTLING_AGAIN if failed else _SETTLING):
            return f"pod {name} has just become ready{' again' if failed else ''}"
    return None


def _has_failed(status: Mapping[str, Any]) -> bool:
    """Tell whether a container runs that has ended with an error before."""
    for container in status.get("containerStatuses") or ():
        ended = (container.get("lastState") or {}).get("terminated") or {}
        if ended.get("exitCode"):
            return True
    return False


def _ready_since(pod: Mapping[str, Any]) -> datetime | None:
    for condition in (pod.get("status") or {}).get("conditions") or ():
        if condition["type"] == "Ready" and condition["status"] == "True":
            # The API does not demand the time; a virtual kubelet may leave it out.
            since = condition.get("lastTransitionTime") or pod["metadata"]["creationTimestamp"]
            return datetime.fromisoformat(since)
    return None


def selector_text(obj: Mapping[str, Any]) -> str:
    """Return the label selector of a workload as a query."""
    labels = obj["spec"]["selector"].get("matchLabels") or {}
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
