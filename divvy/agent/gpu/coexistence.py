"""Other programs that manage this node's GPUs.

Two device plugins hand one GPU out twice, so the agent advertises nothing beside another, or beside
a driver of claims. What counts is a socket that somebody serves in one of the kubelet's folders,
where only root can write: never a label left behind, nor a name that a tenant chose.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

_NVIDIA = "NVIDIA's device plugin"
_SOCKETS = (
    (re.compile(r"nvidia-.*\.sock"), _NVIDIA),
    (re.compile(r"nvidiaGPU.*\.sock"), "GKE's GPU device plugin"),
    (re.compile(r"volcano\.sock"), "Volcano's device plugin"),
    (re.compile(r"aliyungpushare\.sock"), "Aliyun's gpushare device plugin"),
)
# As k8s.io/dynamic-resource-allocation/kubeletplugin calls it, with the pod's UID in updates.
_DRIVERS = ((re.compile(r"gpu\.nvidia\.com(-.+)?-reg\.sock"), "NVIDIA's DRA driver"),)
# HAMi's plugin is a fork of NVIDIA's with the same sockets; it registers its GPUs here.
_HAMI_ANNOTATION = "hami.io/node-nvidia-register"
# GPU Feature Discovery only writes labels: what both write flips, nothing breaks.
_GFD_LABEL = "nvidia.com/gfd.timestamp"
# NVIDIA's MIG manager writes this label, and repartitions GPUs while it has one of these values
# (NVIDIA/mig-parted, deployments/container/reconfigure-mig.sh).
_MIG_MANAGER_LABEL = "nvidia.com/mig.config.state"
_MIG_MANAGER_AT_WORK = frozenset({"pending", "rebooting"})


def sockets_of_others(names: Iterable[str]) -> dict[str, str]:
    """Return the sockets of other device plugins and drivers of claims: name → whose."""
    return {
        name: who
        for name in sorted(names)
        for pattern, who in (*_SOCKETS, *_DRIVERS)
        if pattern.fullmatch(name)
    }


def others_at_work(sockets: Mapping[str, str], annotations: Collection[str]) -> str:
    """Return one sentence that names every other device plugin and driver, or "".

    ``sockets`` are those of ``serving_sockets``; ``annotations`` the node's.
    """
    if not sockets:
        return ""
    hami = "HAMi's device plugin" if _HAMI_ANNOTATION in annotations else _NVIDIA
    names = {name: hami if who == _NVIDIA else who for name, who in sockets.items()}
    others = ", ".join(f"{who} ({name})" for name, who in sorted(names.items()))
    are_drivers = {*names.values()} <= {who for _, who in _DRIVERS}
    beside = (
        "another DRA driver runs on this node"
        if are_drivers
        else "another device plugin runs on this node"
    )
    return f"{beside}: {others}; Divvy advertises nothing until it stops"


def mig_manager_at_work(labels: Mapping[str, str]) -> str:
    """Return a message if NVIDIA's MIG manager is repartitioning this node now, else ""."""
    state = labels.get(_MIG_MANAGER_LABEL)
    if state not in _MIG_MANAGER_AT_WORK:
        return ""
    return (
        f"NVIDIA's MIG manager is repartitioning this node ({_MIG_MANAGER_LABEL}={state}): Divvy "
        "changes no MIG layout until it has finished"
    )


def feature_discovery_beside(labels: Mapping[str, str]) -> str:
    """Return a message if GPU Feature Discovery may write the same labels, else ""."""
    if _GFD_LABEL not in labels:
        return ""
    return (
        f"GPU Feature Discovery has labelled this node ({_GFD_LABEL}): it and Divvy write the same "
        "labels; remove it, and this label if it is gone already"
    )
