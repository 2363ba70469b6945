"""Who else is at work on this node's GPUs: NVIDIA's device plugin, GFD, the MIG manager, HAMi.

Two programs that offer or cut the same GPUs hand one device out twice, or undo
each other for ever. The agent steps back and names the other.
"""

from __future__ import annotations

import contextlib
import re
import socket
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

import grpc

from divvy.agent.cluster import NodeView
from divvy.agent.holders import PodResources

_NVIDIA = "NVIDIA's device plugin"
_SOCKETS = (
    (re.compile(r"nvidia-.*\.sock"), _NVIDIA),
    (re.compile(r"nvidiaGPU.*\.sock"), "GKE's GPU device plugin"),
    (re.compile(r"volcano\.sock"), "Volcano's device plugin"),
    (re.compile(r"aliyungpushare\.sock"), "Aliyun's gpushare device plugin"),
)
# HAMi's plugin is a fork of NVIDIA's with the same sockets; it registers its GPUs here.
_HAMI_ANNOTATION = "hami.io/node-nvidia-register"
# A label that only the other program writes, and the names of its containers:
# the label alone may be left over from a program that is gone, and a container's
# name alone may be any tenant's.
_PROGRAMS = (
    ("nvidia.com/gfd.timestamp", re.compile(r"gpu-feature-discovery.*"), "GPU Feature Discovery"),
    ("nvidia.com/mig.config.state", re.compile(r"nvidia-mig-manager.*"), "NVIDIA's MIG manager"),
)


def sockets_of_others(names: Iterable[str]) -> dict[str, str]:
    """Return socket name → whose it is, for those in the plugin folder that others serve on."""
    return {name: who for name in sorted(names) for form, who in _SOCKETS if form.fullmatch(name)}


async def programs_beside(
    sockets: Mapping[str, str], node: NodeView, pod_resources: PodResources
) -> str:
    """Name the programs beside which an agent must not work, "" where there are none."""
    containers: frozenset[str] = frozenset()
    # Only where a label hints at another program it is worth asking for containers.
    if any(label in node.labels for label, _, _ in _PROGRAMS):
        with contextlib.suppress(grpc.RpcError):
            containers = await pod_resources.containers()
    return others_at_work(sockets, node.labels, node.annotations, containers)


def others_at_work(
    sockets: Mapping[str, str],
    labels: Mapping[str, str],
    annotations: Collection[str],
    containers: Collection[str],
) -> str:
    """Return one sentence that names every other program at work, "" where there is none.

    ``sockets`` are those of ``serving_sockets``; labels and annotations the node's,
    ``containers`` the names of the containers on it.
    """
    hami = "HAMi's device plugin" if _HAMI_ANNOTATION in annotations else _NVIDIA
    names = {name: hami if who == _NVIDIA else who for name, who in sockets.items()}
    found = [f"{who} ({name})" for name, who in sorted(names.items())]
    for label, form, who in _PROGRAMS:
        running = sorted({name for name in containers if form.fullmatch(name)})
        if label in labels and running:
            found.append(f"{who} (container {running[0]})")
    if not found:
        return ""
    return f"at work on this node already: {', '.join(found)}; Divvy offers nothing beside it"


def serving_sockets(folder: Path) -> dict[str, str]:
    """Return the sockets of others in the plugin folder on which somebody listens."""
    try:
        names = [entry.name for entry in folder.iterdir()]
    except OSError:
        return {}
    found = sockets_of_others(names)
    return {name: who for name, who in found.items() if _listens(folder / name)}


def _listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(0.2)
        try:
            client.connect(str(path))
        except OSError:
            return False  # left over from a plugin that is gone
    return True
