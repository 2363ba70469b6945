"""Finds containers that use more of a shared device's memory than their shares allow.

A container's limit on one device is the sum of the shares it holds of it.
"""

from __future__ import annotations

import signal
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from divvy.agent.containers import Container, Member, Process
from divvy.agent.gpu.holders import Holder

# How long a process may take to end by itself.
_GRACE_SECONDS = 10.0


@dataclass(frozen=True)
class Limit:
    """What each replica of a resource may use, and whether a container above it is ended.

    ``source`` says for people where it comes from.
    """

    mib: int
    enforced: bool = False
    source: str = "memoryLimit of the stack file"


@dataclass(frozen=True)
class ClaimLimits:
    """The holders of shares of one GPU, and each claim's limit by the resource of its holders."""

    holders: tuple[Holder, ...]
    limits: Mapping[str, Limit]


@dataclass(frozen=True)
class Use:
    """Device memory that one process of a container uses on one GPU or MIG device."""

    member: Member
    process: Process
    uuid: str
    used_mib: int


@dataclass(frozen=True, order=True)
class Excess:
    """A container above the limit of its shares of one device."""

    pod: str
    pod_uid: str
    container: str
    resource: str
    uuid: str
    used_mib: int
    limit_mib: int
    enforced: bool
    processes: tuple[Process, ...]
    source: str = Limit.source

    @property
    def key(self) -> tuple[str, str, str]:
        """Return what stays the same while the same container is above the same limit."""
        return self.pod_uid, self.container, self.uuid

    @property
    def sentence(self) -> str:
        """Describe who uses how much of what, which limit that is above, and what follows."""
        follows = ": its processes on the device are terminated" if self.enforced else ""
        return (
            f"container {self.container} uses {self.used_mib} MiB of {self.uuid}; its limit for "
            f"{self.resource} is {self.limit_mib} MiB ({self.source}){follows}"
        )


def excesses(
    uses: Iterable[Use],
    containers: Mapping[str, Container],
    held: Mapping[str, tuple[Holder, ...]],
    limits: Mapping[str, Limit],
) -> tuple[Excess, ...]:
    """Return every container above its limit, sorted.

    ``held`` maps GPU and MIG UUIDs to their holders, ``limits`` resources to those of one
    share. A process of a container that holds no share there has no limit.
    """
    together: defaultdict[tuple[Member, str], list[Use]] = defaultdict(list)
    for use in uses:
        together[use.member, use.uuid].append(use)
    over_limit = []
    for (who, uuid), mine in together.items():
        container = containers.get(who.container_id)
        if container is None:
            continue
        shares = [
            holder
            for holder in held.get(uuid, ())
            if holder.container == container.name
            and (holder.pod == container.pod or holder.pod_uid == who.pod_uid)
            and holder.resource in limits
        ]
        used = sum(use.used_mib for use in mine)
        allowed = sum(limits[share.resource].mib for share in shares)
        if not shares or used <= allowed:
            continue
        resource = shares[0].resource
        over_limit.append(
            Excess(
                *(container.pod, who.pod_uid, container.name, resource, uuid, used, allowed),
                enforced=limits[resource].enforced,
                processes=tuple(sorted(use.process for use in mine)),
                source=limits[resource].source,
            )
        )
    return tuple(sorted(over_limit))


def enforcement(
    above: Iterable[Process], sigterm_times: Mapping[Process, float], now: float
) -> tuple[dict[Process, float], list[tuple[Process, signal.Signals]]]:
    """Return since when processes above an enforced limit know, and what each is sent now.

    SIGTERM at first; SIGKILL from 10 s later on, while it is still above the limit.
    """
    due: list[tuple[Process, signal.Signals]] = []
    since: dict[Process, float] = {}
    for process in dict.fromkeys(above):
        since[process] = sigterm_times.get(process, now)
        if process not in sigterm_times:
            due.append((process, signal.SIGTERM))
        elif now - since[process] >= _GRACE_SECONDS:
            due.append((process, signal.SIGKILL))
    return since, due
