"""From a process of the host to its container.

NVML names processes by their PID on the host; the process's cgroup names its container, and the
kubelet's links to logs the pod.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from divvy.agent.gpu.holders import Holder

# ".../kubepods/burstable/pod<uid>/<container>" (cgroupfs) and
# ".../kubepods-burstable-pod<uid with _ for ->.slice/cri-containerd-<container>.scope"
# (systemd), under any parent; the UID of a static pod is a hash without dashes.
_CONTAINER = re.compile(
    r"[/-]pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?:\.slice)?"
    r"/(?:[a-z-]+-)?([0-9a-f]{32,64})(?:\.scope)?(?:/|$)",
    re.MULTILINE,
)
# The kubelet's links in /var/log/containers; none of the names has an underscore.
_LOG = re.compile(r"([^_]+)_([^_]+)_([^_]+)-([0-9a-f]{32,64})\.log")


@dataclass(frozen=True)
class Member:
    """Where a process belongs: UID of the pod, ID of the container."""

    pod_uid: str
    container_id: str


@dataclass(frozen=True, order=True)
class Container:
    """A container by its names; ``pod`` is "namespace/name"."""

    pod: str
    name: str


@dataclass(frozen=True, order=True)
class Process:
    """A process on the host, told from a later one of the same number by its start time."""

    pid: int
    started: int


def member(cgroup: str) -> Member | None:
    """Return where a process belongs, from its /proc/<pid>/cgroup; None outside pods."""
    match = _CONTAINER.search(cgroup) if "kubepods" in cgroup else None
    return Member(match[1].replace("_", "-"), match[2]) if match else None


def containers_by_id(log_links: Iterable[str]) -> dict[str, Container]:
    """Return container ID → container from the names of the links in /var/log/containers."""
    matches = (_LOG.fullmatch(name) for name in log_links)
    return {match[4]: Container(f"{match[2]}/{match[1]}", match[3]) for match in matches if match}


def is_of(where: Member, container: Container | None, holders: Iterable[Holder]) -> bool:
    """Return whether a process is in a container of one of the holders.

    A holder without a container is a pod of which any container may hold the device.
    """
    name = None if container is None else container.name
    pod = None if container is None else container.pod
    return any(
        (holder.pod_uid == where.pod_uid or holder.pod == pod)
        and (not holder.container or holder.container == name)
        for holder in holders
    )
