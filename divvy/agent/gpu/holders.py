"""``Holder``: a container that holds a device.

Four accounts, and a device is held that stands in any of them: the kubelet's PodResources (which
leaves ordinary init containers out, and everything until the kubelet has its pods), the kubelet's
own checkpoint (which has both, and also pods that ended since it was last written), our record
of Allocate calls that neither shows yet, and what we saw before a kubelet that has lost its
checkpoint.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from divvy.agent.gpu.device_id import physical
from divvy.agent.gpu.hardware import Gpu

# The kubelet records an Allocate at once and writes it down when the container's other devices
# are allocated; a pod that it refuses after our answer never appears.
_PENDING_SECONDS = 10.0
# One that was stopped in between may write its checkpoint before it takes our answer, and after
# it the next time: lists that make it write are sent every 5 s while a change waits.
_WRITTEN_SECONDS = 6.0
# The status is an annotation, and tenants choose the names of their pods.
_MAX_NAMES = 10

_JUST_ALLOCATED = "claims that were just allocated"

# What tells one version of the kubelet's checkpoint from another; None without a file.
# Not a time alone: clocks jump.
Version = tuple[int, int] | None


@dataclass(frozen=True, order=True)
class Holder:
    """A container that holds a device.

    ``pod`` is "namespace/name", ``pod_uid`` its UID: each empty if the account that showed the
    holder does not tell; both while the device is only allocated.
    """

    pod: str
    container: str
    resource: str
    device_id: str
    pod_uid: str = ""

    @property
    def only_allocated(self) -> bool:
        """Return whether nothing but an Allocate tells of it."""
        return not (self.pod or self.pod_uid)

    @property
    def text(self) -> str:
        """Name the holder for a person."""
        if self.pod:
            return self.pod
        if self.pod_uid:
            return f"container {self.container} of the pod with UID {self.pod_uid}"
        if not self.resource:
            # What may be allocated by claims; where that cannot be read, ``container`` says why.
            return f"claims whose {self.container}" if self.container else _JUST_ALLOCATED
        return f"a pod being admitted ({self.device_id})"


Held = Mapping[str, tuple[Holder, ...]]


@dataclass(frozen=True)
class Remembered:
    """What is remembered of holders, for when a kubelet has lost its checkpoint.

    ``known`` are those whom ``kubelet`` (the version of its socket) showed last; ``forgotten``
    those whom one before it showed, and it does not.
    """

    kubelet: Version = None
    known: tuple[Holder, ...] = ()
    forgotten: tuple[Holder, ...] = ()


def joined(
    listed: Iterable[Holder], recorded: Iterable[Holder], names: Mapping[str, str]
) -> tuple[Holder, ...]:
    """Join what PodResources lists with what the kubelet's checkpoint records.

    One that stands in both has name and UID. ``names`` maps the UIDs of pods to their names, as
    learnt from earlier joins.
    """
    by_device = {_key(holder): holder for holder in listed}
    holders = []
    for holder in recorded:
        match = by_device.pop(_key(holder), None)
        name = names.get(holder.pod_uid, "") if match is None else match.pod
        holders.append(replace(holder, pod=name))
    return tuple(sorted((*holders, *by_device.values())))


def forgotten(
    before: Iterable[Holder],
    known: Iterable[Holder],
    pods: Collection[str],
    settled: bool,
) -> tuple[Holder, ...]:
    """Return who held a device before a kubelet's restart and is shown without it now.

    A kubelet that finds no checkpoint, or a damaged one, takes the devices of running pods for
    free. ``pods`` are those that it lists; before it is ``settled`` one that is not listed may not
    be known to it yet. An ordinary init container is never listed, its pod is.
    """
    known_containers = {
        (name, holder.container, holder.resource) for holder in known for name in _names(holder)
    }
    return tuple(
        holder
        for holder in before
        if holder.pod
        and not any(
            (name, holder.container, holder.resource) in known_containers for name in _names(holder)
        )
        and not (settled and holder.pod not in pods)
    )


def _names(holder: Holder) -> tuple[str, ...]:
    return tuple(filter(None, (holder.pod, holder.pod_uid)))


def _key(holder: Holder) -> tuple[str, str, str]:
    return holder.container, holder.resource, holder.device_id


@dataclass(frozen=True)
class Allocated:
    """An answered Allocate: when, and which checkpoint there was; when there was another first."""

    answered: float
    checkpoint: Version
    written: float | None = None

    def seen(self, checkpoint: Version, now: float) -> Allocated:
        """Return it after a look at the checkpoint."""
        if self.written is not None or checkpoint == self.checkpoint:
            return self
        return replace(self, written=now)

    def judged(self, now: float) -> bool:
        """Return whether the kubelet shows it, if it has it at all."""
        if self.written is None or now - self.answered < _PENDING_SECONDS:
            return False
        return now - self.written >= _WRITTEN_SECONDS


@dataclass
class Ledger:
    """Allocations that the kubelet may not show yet, by (resource, device ID)."""

    allocations: dict[tuple[str, str], Allocated] = field(default_factory=dict)

    def record(
        self, resource: str, device_ids: Iterable[str], checkpoint: Version, now: float
    ) -> None:
        """Note an Allocate; ``now`` is of a monotonic clock."""
        for device_id in device_ids:
            self.allocations[resource, device_id] = Allocated(now, checkpoint)

    def pending(
        self, known: Collection[Holder], checkpoint: Version, now: float
    ) -> tuple[Holder, ...]:
        """Return allocations that the kubelet does not show; forget what it has judged.

        An allocation that was answered long before the kubelet wrote its checkpoint, and is in no
        account, was refused.
        """
        seen = {
            key: allocation.seen(checkpoint, now) for key, allocation in self.allocations.items()
        }
        self.allocations = {
            key: allocation for key, allocation in seen.items() if not allocation.judged(now)
        }
        # What is shown now may be a pod's that has ended, and is not forgotten for that.
        known_devices = {(holder.resource, holder.device_id) for holder in known}
        return tuple(
            Holder("", "", *key) for key in sorted(self.allocations.keys() - known_devices)
        )


def by_uuid(holders: Iterable[Holder]) -> Held:
    """Group holders by the GPU or MIG device behind what they hold."""
    grouped: dict[str, list[Holder]] = {}
    for holder in sorted(holders):
        grouped.setdefault(physical(holder.device_id), []).append(holder)
    return {uuid: tuple(group) for uuid, group in grouped.items()}


def on_gpu(gpu: Gpu, held: Held) -> dict[str, tuple[Holder, ...]]:
    """Return the holders of this GPU and of its MIG devices."""
    uuids = [gpu.uuid, *(uuid for instance in gpu.instances for uuid in instance.uuids)]
    return {uuid: held[uuid] for uuid in uuids if uuid in held}


def bounded_names(names: Collection[str]) -> str:
    """Return names for a person, in one line that tenants cannot make long."""
    listed = sorted(names)
    more = [f"{len(listed) - _MAX_NAMES} more"] if len(listed) > _MAX_NAMES else []
    return ", ".join((*listed[:_MAX_NAMES], *more))
