"""Assigns GPUs to the stack file's indices: once, kept until the GPU is replaced."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from divvy.agent.gpu.hardware import Gpu, Snapshot


@dataclass(frozen=True)
class Assignment:
    """Index → UUID, and the GPUs that others have taken the place of."""

    uuids: Mapping[int, str]
    replaced: frozenset[str] = frozenset()


def assign(
    before: Mapping[int, str],
    snapshot: Snapshot,
    last_seen: Mapping[str, str],
    boot: str,
    expected: int | None,
) -> Assignment:
    """Give new GPUs an index, those of lost GPUs that they replace first.

    ``last_seen`` maps UUIDs to the boot in which the GPU was seen last; ``expected`` is how many
    the stack file says there are. A lost GPU is replaced by one at its PCI address; and all that
    are lost, when the node was restarted since and the number of GPUs is as expected: a virtual
    machine that starts on another host, a card exchanged for one in another slot. One that is
    lost within a boot, or leaves the node short of GPUs, stays lost and is reported.
    """
    lost = [gpu for gpu in snapshot.gpus if gpu.lost]
    new = [gpu for gpu in snapshot.gpus if not gpu.lost and gpu.uuid not in before.values()]
    replaced: dict[str, Gpu | None] = {}
    # An agent that ended while it replaced a GPU may have saved it once more beside its successor.
    pci_bus_ids = {gpu.pci_bus_id for gpu in snapshot.gpus if not gpu.lost}
    for gone in lost:
        if gone.uuid not in before.values() and gone.pci_bus_id in pci_bus_ids:
            replaced[gone.uuid] = None
            continue
        match = next((gpu for gpu in new if gpu.pci_bus_id == gone.pci_bus_id), None)
        if match is not None:
            replaced[gone.uuid] = match
            new.remove(match)
    present = sum(not gpu.lost for gpu in snapshot.gpus)
    if present == (len(before) if expected is None else expected):
        for gone in lost:
            restarted = bool(boot) and last_seen.get(gone.uuid, boot) != boot
            if gone.uuid not in replaced and restarted:
                replaced[gone.uuid] = new.pop(0) if new else None
    uuids = dict(before)
    for index, uuid in before.items():
        if uuid in replaced:
            successor = replaced[uuid]
            if successor is None:
                del uuids[index]
            else:
                uuids[index] = successor.uuid
    for gpu in new:
        uuids.setdefault(gpu.index, gpu.uuid)
    return Assignment(dict(sorted(uuids.items())), frozenset(replaced))


def without(snapshot: Snapshot, replaced: frozenset[str]) -> tuple[Gpu, ...]:
    """Return the GPUs of a snapshot less those that others have taken the place of."""
    return tuple(gpu for gpu in snapshot.gpus if gpu.uuid not in replaced)
