"""Texts that stand for a chart's values in the pattern cluster, and the actions they become."""

from __future__ import annotations

import re
from typing import Any

from divvy.model.api_names import RUNBOOKS
from divvy.model.stack import Names

IMAGE = "image.invalid/agent"
GENERATION = "generation-of-the-configuration"
POOL = "pool-of-the-range"
RUNTIME = "containerd"
TENANT, MIG_PROFILE = "tenant-of-range", "1g.5gb+me"
_NAMESPACE = "release-namespace"
_DRIVER = "/driver-root-of-the-values"
_RUNBOOKS = "runbooks-of-the-values"
_REQUESTED = "nvidia_com_(gpu|mig).*|gpu_names_invalid_one"

EVERYTHING: dict[str, Any] = {
    "namespace": _NAMESPACE,
    "profiles": {
        "watched": {"timeSlicing": {"replicas": 2, "memoryLimit": "auto"}},
        "claimed": {"claims": {"shares": {}, "tenants": [TENANT], "mig": [MIG_PROFILE]}},
        "together": {"mps": {"replicas": 2}},
    },
    "names": {
        "gpu": "gpu.names.invalid/one",
        "memory": "memory.names.invalid/one",
        "memoryPercentage": "percentage.names.invalid/one",
        "cores": "cores.names.invalid/one",
        "fraction": "fraction.names.invalid/one",
        "classes": "nvidia",
    },
    "pools": {
        "another": {"select": {"example": "another"}, "profile": "watched"},
        POOL: {
            "select": {"example": "pool"},
            "profile": "watched",
            "runtime": {"name": RUNTIME, "configure": True},
            "tolerations": [{"operator": "Exists"}],
        },
    },
    "driver": {"root": f"{_DRIVER}/"},
    "change": {"policy": "evict"},
    "quota": {"shares": "required"},
    "devices": [{"resource": "example.com/device", "paths": ["/dev/example"]}],
    "imagePullSecrets": ["example"],
    "observability": {
        "serviceMonitor": True,
        "dashboard": True,
        "alerts": True,
        "networkPolicy": {"example": "readers"},
        "runbooks": _RUNBOOKS,
    },
}
"""A cluster in which everything is switched on."""

# The longer text first: one is the beginning of another.
_ACTIONS = (
    (f"{_DRIVER}/dev", 'include "divvy.driverRoot" @', "/dev"),
    (f"{_DRIVER}/", 'dig "driver" "root" "/" @.Values.AsMap', ""),
    (_DRIVER, 'include "divvy.driverRoot" @ | default "/"', ""),
    (_NAMESPACE, "@.Release.Namespace", ""),
    (IMAGE, 'include "divvy.image" @', ""),
    (POOL, "$name", ""),
    (_RUNBOOKS, f'dig "observability" "runbooks" "{RUNBOOKS}" @.Values.AsMap', ""),
    (_REQUESTED, 'include "divvy.requestedResources" @', ""),
    (GENERATION, 'include "divvy.generation" @', ""),
    *(
        (EVERYTHING["names"][key], f'dig "names" "{key}" "{default}" @.Values.AsMap', "")
        for key, default in (*Names().listed(), ("fraction", ""))
    ),
)


def with_actions(text: str, root: str = ".") -> str:
    """Return the text of a template; ``root`` is "$" where "." is something else.

    A whole scalar is quoted: a namespace may be a number.
    """
    for stands, action, rest in _ACTIONS:
        if not rest:
            whole = re.compile(rf"(?<=: ){re.escape(stands)}$", re.MULTILINE)
            quoted = f"{{{{ {action} | quote }}}}"
            text = whole.sub(quoted.replace("\\", r"\\"), text)
        text = text.replace(stands, f"{{{{ {action} }}}}{rest}")
    return re.sub(r"@(\.?)", lambda match: root if root == "." else root + match[1], text)
