"""Which pods use more of a shared device's memory than their shares allow.

NVML names processes by their PID on the host; the process's cgroup names its
pod. A pod's limit on one device is the sum of the shares it holds of it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from divvy.agent.holders import Holder

# ".../kubepods/burstable/pod<uid>/<container>" (cgroupfs) and
# ".../kubepods-burstable-pod<uid with _ for ->.slice/cri-containerd-<container>.scope"
# (systemd), under any parent; the UID of a static pod is a hash without dashes.
_POD = re.compile(
    r"(?:[/-])pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?:\.slice)?(?:/|$)",
    re.MULTILINE,
)
_LOG_FOLDER = re.compile(r"([^_]+)_([^_]+)_([^_]+)")


@dataclass(frozen=True)
class Use:
    """Device memory that one process of a pod uses on one GPU or MIG device."""

    pod_uid: str
    uuid: str
    used_mib: int


@dataclass(frozen=True, order=True)
class Excess:
    """A pod ("namespace/name") above the limit of its shares of one device."""

    pod: str
    pod_uid: str
    resource: str
    uuid: str
    used_mib: int
    limit_mib: int

    @property
    def sentence(self) -> str:
        """Say how much, of what, and which limit."""
        return (
            f"uses {self.used_mib} MiB of {self.uuid}; its share of {self.resource} "
            f"is {self.limit_mib} MiB (memoryLimit of the stack file)"
        )


def pod_uid(cgroup: str) -> str | None:
    """Return the pod that a process belongs to, from its /proc/<pid>/cgroup; None outside pods."""
    found = _POD.search(cgroup) if "kubepods" in cgroup else None
    return found.group(1).replace("_", "-") if found else None


def pods_by_uid(log_folders: Iterable[str]) -> dict[str, str]:
    """Return pod UID → "namespace/name" from the names of the folders in /var/log/pods."""
    matches = (_LOG_FOLDER.fullmatch(name) for name in log_folders)
    return {found[3]: f"{found[1]}/{found[2]}" for found in matches if found}


def excesses(
    uses: Iterable[Use],
    pods: Mapping[str, str],
    held: Mapping[str, tuple[Holder, ...]],
    limits: Mapping[str, int],
) -> tuple[Excess, ...]:
    """Return every pod above its limit, sorted.

    ``held`` maps GPU and MIG UUIDs to their holders, ``limits`` resources to the
    MiB of one share. A process of a pod that holds no share there has no limit.
    """
    used: Counter[tuple[str, str]] = Counter()
    for use in uses:
        used[use.pod_uid, use.uuid] += use.used_mib
    found = []
    for (uid, uuid), mib in used.items():
        pod = pods.get(uid)
        shares = [h for h in held.get(uuid, ()) if h.pod == pod and h.resource in limits]
        limit = sum(limits[share.resource] for share in shares)
        if pod is not None and shares and mib > limit:
            found.append(Excess(pod, uid, shares[0].resource, uuid, mib, limit))
    return tuple(sorted(found))
