"""``Sharing``: how much of one device its holder may use, and who sees to it.

Made by ``sharing_of_replicas`` for the device plugin and by ``sharing_of_claims`` for claims; what
offers, holds or limits a device carries the whole value. ``limits_text`` writes it for the limiter
in a container, whose reader is plugin_image/limiter/share/share.c;
tests/limiter/share_vectors.yaml holds both to the same text.

The fields of the stack file that say so are in ``profile`` and ``claims``.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from divvy.model.claims import Shares
from divvy.model.profile import Mps, Rule, TimeSlicing
from divvy.model.quantities import memory_mib

Action = Literal["warn", "enforce", "prevent"]
Compute = Literal["share", "cap"]
Enforcement = Literal["auto", "driver", "limiter"]
ALL_COMPUTE = 100
NO_PAGE = "-"

_HEADER = "divvy-share 1"
# A newer agent may add fields to a line.
_LINE = re.compile(
    r"device (?P<uuid>\S+) memory (?P<bytes>\d+) compute (?P<compute>free|share|cap) "
    r"weight (?P<weight>\d+) page (?P<page>[^\s/]+) oversubscribed (?P<over>yes|no)( .*)?"
)


@dataclass(frozen=True)
class Sharing:
    """The part of a device that one holder gets; by default all of it, without a limit.

    ``replicas`` of the device are handed out, 1 if it is not shared; ``one_per_container`` refuses
    a container a second one. ``memory_mib`` is the memory limit of a part, None without one, and
    ``action`` what happens above it: a warning, the end of the process, or a refusal.
    ``compute`` is how the limiter divides the GPU's time, None if it does not, and ``weight`` the
    part of that time in per cent. ``oversubscribed`` parts add up to more memory than the device
    has; the rest goes to the host's. ``threads`` is the part of the SMs in per cent that MPS lets a
    process use at most, None if MPS does not share the device. ``enforcement`` is what refuses
    memory above the limit: auto where it depends on the node.
    """

    replicas: int = 1
    one_per_container: bool = False
    memory_mib: int | None = None
    action: Action = "warn"
    compute: Compute | None = None
    weight: int = ALL_COMPUTE
    oversubscribed: bool = False
    threads: int | None = None
    enforcement: Enforcement = "limiter"

    @property
    def by_mps(self) -> bool:
        """Return whether the holders are clients of the GPU's MPS daemon."""
        return self.threads is not None

    @property
    def is_shared(self) -> bool:
        """Return whether the device is handed out in replicas."""
        return self.replicas > 1

    @property
    def is_prevented(self) -> bool:
        """Return whether memory above the limit is refused."""
        return self.memory_mib is not None and self.action == "prevent"

    @property
    def by_driver(self) -> bool:
        """Return whether the driver itself refuses memory above the limit, not the limiter."""
        return self.is_prevented and self.enforcement == "driver"

    @property
    def by_limiter(self) -> bool:
        """Return whether the limiter refuses memory above the limit."""
        return self.is_prevented and not self.by_driver

    @property
    def needs_container(self) -> bool:
        """Return whether its container may have no other GPU."""
        return self.is_prevented or self.by_mps

    @property
    def is_enforced(self) -> bool:
        """Return whether processes above the limit are ended."""
        return self.memory_mib is not None and self.action == "enforce"

    def is_less_than(self, device_mib: int) -> bool:
        """Return whether the holder needs a limiter: all of a device needs none."""
        everything = (self.memory_mib or 0) >= device_mib and self.weight >= ALL_COMPUTE
        return self.oversubscribed or not everything

    def times(self, count: int) -> "Sharing":
        """Return what ``count`` replicas of one device are together."""
        memory = None if self.memory_mib is None else self.memory_mib * count
        weight = max(1, ALL_COMPUTE * count // self.replicas)
        threads = None if self.threads is None else min(ALL_COMPUTE, self.threads * count)
        return replace(self, memory_mib=memory, weight=weight, threads=threads)


@dataclass(frozen=True)
class DeviceShare:
    """What a container holds of one GPU or MIG device.

    ``page`` names the file by which the share tells others of its use, NO_PAGE without ``compute``.
    """

    uuid: str
    sharing: Sharing
    page: str = NO_PAGE

    @property
    def memory_mib(self) -> int:
        """Return its memory limit: a share always has one."""
        return self.sharing.memory_mib or 0


def sharing_of_replicas(slicing: TimeSlicing | Mps | None, device_mib: int | None) -> Sharing:
    """Return how a rule shares a device; ``device_mib`` is None if its memory is not known."""
    if slicing is None:
        return Sharing()
    one_per_container = slicing.fail_requests_greater_than_one
    if isinstance(slicing, Mps):
        part = slicing.active_thread_percentage
        threads = max(1, ALL_COMPUTE // slicing.replicas) if part == "auto" else part
        sharing = Sharing(slicing.replicas, one_per_container, threads=threads).times(1)
    else:
        sharing = Sharing(slicing.replicas, one_per_container, compute=slicing.compute).times(1)
    limit = slicing.memory_limit
    if limit is None or (limit.limit == "auto" and device_mib is None):
        return sharing
    if limit.limit == "auto":
        memory = int((device_mib or 0) * limit.oversubscribe) // slicing.replicas
    else:
        memory = memory_mib(limit.limit)
    over = limit.oversubscribe > 1
    if limit.enforcement == "mps":
        # MPS refuses each process; a container of several is watched, as without `prevent`.
        return replace(sharing, memory_mib=memory)
    return replace(
        sharing,
        memory_mib=memory,
        action=limit.action,
        oversubscribed=over,
        enforcement=_enforcement(limit.enforcement, over=over, compute=sharing.compute),
    )


def enforcement_of_gpus(rule: Rule) -> Enforcement | None:
    """Return what refuses memory of whole GPUs above a limit, None if nothing of a node does."""
    slicing = rule.sharing
    limit = slicing.memory_limit if slicing else None
    if limit is None or limit.enforcement == "mps" or rule.mig is not None:
        return None
    compute = slicing.compute if isinstance(slicing, TimeSlicing) else None
    return _enforcement(limit.enforcement, over=limit.oversubscribe > 1, compute=compute)


def _enforcement(wanted: Enforcement, *, over: bool, compute: Compute | None) -> Enforcement:
    needs_limiter = over or compute is not None
    return "limiter" if wanted == "auto" and needs_limiter else wanted


def sharing_of_claims(shares: Shares | None) -> Sharing:
    """Return how claims share a GPU; memory and weight of each come with its claim."""
    if shares is None:
        return Sharing(action="prevent", compute="share")
    over = shares.memory.oversubscribe > 1
    return Sharing(action="prevent", compute=shares.compute, oversubscribed=over)


def limits_text(devices: Iterable[DeviceShare]) -> str:
    """Render the file of limits that the limiter reads: a line per device, memory in bytes."""
    lines = (
        f"device {device.uuid} memory {device.memory_mib << 20} "
        f"compute {device.sharing.compute or 'free'} weight {device.sharing.weight} "
        f"page {device.page} oversubscribed {'yes' if device.sharing.oversubscribed else 'no'}\n"
        for device in devices
    )
    return f"{_HEADER}\n{''.join(lines)}"


def parse_limits(text: str) -> tuple[DeviceShare, ...]:
    """Read what ``limits_text`` of this release or a newer one wrote; raises ValueError."""
    header, *lines = text.split("\n")
    if header.split(" ")[:2] != _HEADER.split(" ") or lines[-1:] != [""]:
        raise ValueError("is not a file of limits")
    return tuple(map(_device_share, lines[:-1]))


def _device_share(line: str) -> DeviceShare:
    match = _LINE.fullmatch(line)
    if match is None:
        raise ValueError(f"has a line that is not understood: {line!r}")
    compute: dict[str, Compute | None] = {"free": None, "share": "share", "cap": "cap"}
    sharing = Sharing(
        memory_mib=int(match["bytes"]) >> 20,
        action="prevent",
        compute=compute[match["compute"]],
        weight=int(match["weight"]),
        oversubscribed=match["over"] == "yes",
    )
    return DeviceShare(match["uuid"], sharing, match["page"])
