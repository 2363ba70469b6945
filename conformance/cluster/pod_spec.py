"""Specifications of the suite's pods, at each level of Pod Security."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from divvy.model.api_names import CONFORMANCE_LABEL

Level = Literal["restricted", "baseline", "privileged"]
OWN: dict[str, Any] = {CONFORMANCE_LABEL: "yes"}
# The container, of whichever kind, that runs what is asked for.
WORKING = "main"
_LONGEST_SECONDS = 1800
_CLAIM = "gpu"
_SCRATCH = {"name": "scratch", "mountPath": "/scratch"}
_CONTAINER: Mapping[Level, Mapping[str, Any]] = {
    "restricted": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    # As most images run: root, with the runtime's usual capabilities, mknod among them.
    "baseline": {},
    "privileged": {"privileged": True},
}
_POD: Mapping[Level, Mapping[str, Any]] = {
    "restricted": {
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 65534,
            "seccompProfile": {"type": "RuntimeDefault"},
        }
    },
    "baseline": {},
    "privileged": {"hostPID": True},
}


@dataclass(frozen=True)
class PodRequest:
    """A pod for one node: what runs in it, and which devices it asks for.

    ``command`` None and ``arguments`` leave an image its own program;
    ``init`` runs it in an init container, before a main container that has nothing to do;
    ``past_scheduler`` names the node instead of having the scheduler choose it;
    ``restarts`` starts a container that fails again, with a volume at /scratch that stays;
    ``resources`` replaces limits and requests altogether; ``claim`` is a ResourceClaim of the
    pod's namespace, whose devices it gets; with ``beside`` another container has the devices, and
    runs this command: both have a volume at /scratch. ``host_folders`` are folders of the node by
    the path at which a privileged container sees them.
    """

    node: str
    image: str
    command: Sequence[str] | None = None
    arguments: Sequence[str] = ()
    resource: str | None = None
    count: int = 1
    init: bool = False
    past_scheduler: bool = False
    env: Mapping[str, str] = field(default_factory=dict)
    runtime_class: str | None = None
    restarts: bool = False
    resources: Mapping[str, Any] = field(default_factory=dict)
    claim: str | None = None
    beside: Sequence[str] | None = None
    host_folders: Mapping[str, str] = field(default_factory=dict)


def pod_spec(
    request: PodRequest, level: Level, priority_class: str, pull_secrets: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the specification of a pod that ends by itself and preempts no other."""
    mounts, volumes = _files(request)
    limits = {} if request.resource is None else {request.resource: str(request.count)}
    container: dict[str, Any] = {
        "name": WORKING,
        "image": request.image,
        **({} if request.command is None else {"command": list(request.command)}),
        **({"args": list(request.arguments)} if request.arguments else {}),
        "env": [{"name": name, "value": value} for name, value in request.env.items()],
        "resources": {
            "limits": {**limits, "memory": "2Gi"},
            "requests": {"cpu": "1m", "memory": "1Mi"},
            **request.resources,
            **({"claims": [{"name": _CLAIM}]} if request.claim else {}),
        },
        "securityContext": dict(_CONTAINER[level]),
        **({"volumeMounts": mounts} if mounts else {}),
    }
    return {
        "restartPolicy": "OnFailure" if request.restarts else "Never",
        "priorityClassName": priority_class,
        "activeDeadlineSeconds": _LONGEST_SECONDS,
        "terminationGracePeriodSeconds": 1,
        "automountServiceAccountToken": False,
        **_POD[level],
        "imagePullSecrets": [{"name": name} for name in pull_secrets],
        **(
            {"resourceClaims": [{"name": _CLAIM, "resourceClaimName": request.claim}]}
            if request.claim
            else {}
        ),
        **({"runtimeClassName": request.runtime_class} if request.runtime_class else {}),
        **_placed(request),
        **({"volumes": volumes} if volumes else {}),
        "tolerations": [{"operator": "Exists"}],
        **_containers(container, request),
    }


def _files(request: PodRequest) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the mounts and volumes of a pod."""
    mounts: list[dict[str, Any]] = []
    volumes: list[dict[str, Any]] = []
    if request.restarts or request.beside is not None:
        mounts.append(_SCRATCH)
        volumes.append({"name": "scratch", "emptyDir": {}})
    for number, (path, folder) in enumerate(request.host_folders.items()):
        mounts.append({"name": f"host-{number}", "mountPath": path})
        volumes.append({"name": f"host-{number}", "hostPath": {"path": folder}})
    return mounts, volumes


def _placed(request: PodRequest) -> dict[str, Any]:
    """Return what puts a pod on its node: by the scheduler, which has to see the resource.

    As DaemonSets do it, by the node's name: its label ``kubernetes.io/hostname`` may differ, and a
    long name is no label's value.
    """
    if request.past_scheduler:
        return {"nodeName": request.node}
    named = {"key": "metadata.name", "operator": "In", "values": [request.node]}
    required = {"nodeSelectorTerms": [{"matchFields": [named]}]}
    key = "requiredDuringSchedulingIgnoredDuringExecution"
    return {"affinity": {"nodeAffinity": {key: required}}}


def _containers(working: dict[str, Any], request: PodRequest) -> dict[str, Any]:
    without = {key: value for key, value in working["resources"].items() if key != "claims"}
    resources = {**without, "limits": {"memory": "2Gi"}}
    if request.beside is not None:
        holder = {**working, "name": "holder", "command": list(request.beside)}
        return {"containers": [{**working, "resources": resources}, holder]}
    if not request.init:
        return {"containers": [working]}
    idle = {**working, "name": "idle", "command": ["true"], "resources": resources}
    return {"initContainers": [working], "containers": [idle]}
