"""When an object is ready, and when it never will be: one function per kind, on values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

# Waiting reasons of a container that time alone does not mend.
_HOPELESS = {
    "CrashLoopBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
    # The kubelet tries again; after its first back-off it rarely gets better by itself.
    "ImagePullBackOff",
}
# The API's times are whole seconds.
_SETTLING = timedelta(seconds=2)


@dataclass(frozen=True)
class Trouble:
    """A container that cannot start or keeps ending: where and why."""

    pod: str
    container: str
    reason: str
    message: str
    restarts: int


def readiness(obj: Mapping[str, Any]) -> str | None:
    """Return None when the object is ready, else what is missing."""
    check = _CHECKS.get(str(obj.get("kind")))
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
    for condition in (obj.get("status") or {}).get("conditions") or ():
        if condition["type"] in ("Complete", "Failed") and condition["status"] == "True":
            return None
    return "the job is not complete"


def _claim(obj: Mapping[str, Any]) -> str | None:
    phase = (obj.get("status") or {}).get("phase", "Pending")
    return None if phase == "Bound" else f"the claim is {phase}"


def _namespace(obj: Mapping[str, Any]) -> str | None:
    phase = (obj.get("status") or {}).get("phase", "Active")
    return None if phase == "Active" else f"the namespace is {phase}"


_CHECKS = {
    "DaemonSet": _daemon_set,
    "Deployment": _replicated,
    "StatefulSet": _replicated,
    "ReplicaSet": _replicated,
    "Pod": _pod,
    "Job": _job,
    "PersistentVolumeClaim": _claim,
    "Namespace": _namespace,
}


def hopeless(pods: Sequence[Mapping[str, Any]]) -> Trouble | None:
    """Return the first container that will not start however long one waits."""
    for pod in pods:
        if pod["metadata"].get("deletionTimestamp"):
            continue
        status = pod.get("status") or {}
        for found in [
            *(status.get("initContainerStatuses") or ()),
            *(status.get("containerStatuses") or ()),
        ]:
            waiting = (found.get("state") or {}).get("waiting") or {}
            reason, restarts = waiting.get("reason", ""), found.get("restartCount", 0)
            if reason in _HOPELESS:
                name = pod["metadata"]["name"]
                text = waiting.get("message", "")
                return Trouble(name, found["name"], reason, text, restarts)
            # Between two tries the kubelet may go on showing how the last one ended.
            ended = (found.get("state") or {}).get("terminated") or {}
            if ended.get("exitCode") and restarts >= 1:
                text = f"exit code {ended['exitCode']}, again"
                return Trouble(
                    pod["metadata"]["name"], found["name"], "CrashLoopBackOff", text, restarts
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


def unsettled(pods: Sequence[Mapping[str, Any]], now: datetime) -> str | None:
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
        since = _ready_since(status)
        if since is None:
            return f"pod {name} is not ready"
        containers = pod["spec"].get("containers") or ()
        probed = all("readinessProbe" in container for container in containers)
        if not probed and now - since < _SETTLING:
            return f"pod {name} has just become ready"
    return None


def _ready_since(status: Mapping[str, Any]) -> datetime | None:
    for condition in status.get("conditions") or ():
        if condition["type"] == "Ready" and condition["status"] == "True":
            return datetime.fromisoformat(condition["lastTransitionTime"])
    return None


def selector_text(obj: Mapping[str, Any]) -> str:
    """Return the label selector of a workload as a query."""
    labels = obj["spec"]["selector"].get("matchLabels") or {}
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
