"""What a pod of the suite asks for, at each level of Pod Security."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Level = Literal["restricted", "baseline", "privileged"]
OWN: dict[str, Any] = {"divvy.gpu/conformance": "yes"}
_LONGEST_SECONDS = 1800
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
class Wish:
    """A pod for one node: what runs in it, and which devices it asks for.

    ``command`` None and ``arguments`` leave an image its own program;
    ``past_scheduler`` names the node instead of selecting it by label;
    ``resources`` replaces limits and requests altogether.
    """

    node: str
    image: str
    command: Sequence[str] | None = None
    arguments: Sequence[str] = ()
    resource: str | None = None
    count: int = 1
    past_scheduler: bool = False
    resources: Mapping[str, Any] = field(default_factory=dict)


def pod_spec(wish: Wish, level: Level, priority_class: str) -> dict[str, Any]:
    """Return the specification of a pod that ends by itself and that nobody is moved for."""
    limits = {} if wish.resource is None else {wish.resource: str(wish.count)}
    container = {
        "name": "main",
        "image": wish.image,
        **({} if wish.command is None else {"command": list(wish.command)}),
        **({"args": list(wish.arguments)} if wish.arguments else {}),
        "resources": {
            "limits": {**limits, "memory": "2Gi"},
            "requests": {"cpu": "1m", "memory": "1Mi"},
            **wish.resources,
        },
        "securityContext": dict(_CONTAINER[level]),
    }
    return {
        "restartPolicy": "Never",
        "priorityClassName": priority_class,
        "activeDeadlineSeconds": _LONGEST_SECONDS,
        "terminationGracePeriodSeconds": 1,
        "automountServiceAccountToken": False,
        **_POD[level],
        # By label, not by nodeName: the scheduler has to see the resource.
        **(
            {"nodeName": wish.node}
            if wish.past_scheduler
            else {"nodeSelector": {"kubernetes.io/hostname": wish.node}}
        ),
        "tolerations": [{"operator": "Exists"}],
        "containers": [container],
    }
