"""When a workload is ready, and when it never will be: a function per kind, on values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from divvy.model.conditions import condition_of, is_ready

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
# A container with one of these is ready only after it has answered.
_PROBES = {"readinessProbe", "startupProbe"}
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
    """Return None when a DaemonSet or Deployment is ready, else what is missing."""
    return CHECKS[obj["kind"]](obj)


def is_observed(obj: Mapping[str, Any]) -> bool:
    """Tell whether the controller has seen a workload's present specification."""
    observed = (obj.get("status") or {}).get("observedGeneration", 0)
    return bool(observed >= obj["metadata"].get("generation", 0))


def _daemon_set(obj: Mapping[str, Any]) -> str | None:
    status = obj.get("status") or {}
    if not is_observed(obj):
        return "the controller has not seen it yet"
    wanted = status.get("desiredNumberScheduled", 0)
    updated = status.get("updatedNumberScheduled", 0)
    if updated < wanted:
        return f"{updated} of {wanted} pods are updated"
    return _not_ready(wanted, status.get("numberReady", 0))


def _deployment(obj: Mapping[str, Any]) -> str | None:
    status = obj.get("status") or {}
    if not is_observed(obj):
        return "the controller has not seen it yet"
    wanted = obj["spec"].get("replicas", 1)
    # The API leaves numbers out while they are 0.
    updated = status.get("updatedReplicas", 0)
    if updated < wanted:
        refused = condition_of(obj, "ReplicaFailure")
        is_refused = refused.get("status") == "True" and refused.get("message")
        reason = f": {refused['message']}" if is_refused else ""
        if obj["spec"].get("paused"):
            reason = ": the Deployment is paused"
        return f"{updated} of {wanted} pods are updated{reason}"
    outdated = status.get("replicas", 0) - updated
    if outdated > 0:
        return f"{outdated} pods of an older revision are still running"
    return _not_ready(wanted, status.get("readyReplicas", 0))


def _not_ready(wanted: int, ready: int) -> str | None:
    """Return how many pods are ready, None if all are."""
    return None if ready >= wanted else f"{ready} of {wanted} pods are ready"


CHECKS = {
    "DaemonSet": _daemon_set,
    "Deployment": _deployment,
}
# The pods' label that names the revision of their template.
REVISION_LABELS = {"DaemonSet": "controller-revision-hash", "Deployment": "pod-template-hash"}
_REVISION = "deployment.kubernetes.io/revision"


def revision_of(obj: Mapping[str, Any], revisions: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the revision label of pods of a workload's present template, None if not known yet.

    ``revisions`` are ControllerRevisions (of a DaemonSet) or ReplicaSets (of a Deployment).
    """
    uid = obj["metadata"].get("uid")
    own = [
        revision
        for revision in revisions
        if any(
            owner.get("uid") == uid for owner in revision["metadata"].get("ownerReferences") or ()
        )
    ]
    if obj["kind"] == "Deployment":
        wanted = (obj["metadata"].get("annotations") or {}).get(_REVISION)
        own = [
            revision
            for revision in own
            if (revision["metadata"].get("annotations") or {}).get(_REVISION) == wanted
        ]
    newest = max(own, key=lambda revision: int(revision.get("revision", 0)), default=None)
    if newest is None:
        return None
    label: str | None = newest["metadata"]["labels"].get(REVISION_LABELS[obj["kind"]])
    return label


def pending_reason(pods: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the scheduler's or the kubelet's reason why a pod is not ready, None for none."""
    for kind in ("PodScheduled", "Ready"):
        for pod in pods:
            condition = condition_of(pod, kind)
            if condition.get("status") == "False" and condition.get("message"):
                return f"pod {pod['metadata']['name']}: {condition['message']}"
    return None


def terminal_failure(pods: Sequence[Mapping[str, Any]]) -> ContainerFailure | None:
    """Return the first container that will not start by itself, None for none."""
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


def not_stable(pods: Sequence[Mapping[str, Any]], now: datetime) -> str | None:
    """Name a pod that has not stayed ready yet, None for none.

    A container without a probe is ready the moment it starts, even if it ends a moment later;
    and the workload may still count a pod that has just ended.
    """
    for pod in pods:
        status = pod.get("status") or {}
        leaving = pod["metadata"].get("deletionTimestamp")
        if leaving or status.get("phase") in ("Succeeded", "Failed"):
            continue
        name = pod["metadata"]["name"]
        since = ready_since(pod)
        if since is None:
            return f"pod {name} is not ready"
        containers = pod["spec"].get("containers") or ()
        probed = all(_PROBES & set(container) for container in containers)
        failed = _has_failed(status)
        # Of a clock that is behind the cluster's by more than that, nothing can be learnt.
        if not probed and abs(now - since) < (_SETTLING_AGAIN if failed else _SETTLING):
            return f"pod {name} has just become ready{' again' if failed else ''}"
    return None


def _has_failed(status: Mapping[str, Any]) -> bool:
    """Tell whether a container is running again after it ended with an error."""
    for container in status.get("containerStatuses") or ():
        ended = (container.get("lastState") or {}).get("terminated") or {}
        if ended.get("exitCode"):
            return True
    return False


def ready_since(pod: Mapping[str, Any]) -> datetime | None:
    """Return when a pod became ready, None if it is not."""
    if not is_ready(pod):
        return None
    # The API does not demand the time; a virtual kubelet may leave it out.
    since = condition_of(pod, "Ready").get("lastTransitionTime")
    return datetime.fromisoformat(since or pod["metadata"]["creationTimestamp"])


def selector_text(obj: Mapping[str, Any], **more: str) -> str:
    """Return the labels that a workload's selector names, and more of them, as a query.

    A selector may have expressions alone: then all objects of the namespace are looked at.
    """
    labels = {**(obj["spec"]["selector"].get("matchLabels") or {}), **more}
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
