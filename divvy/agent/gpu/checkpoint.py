"""``Checkpoint``: what survives the agent on the node's disk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from divvy.agent.gpu.hardware import Gpu
from divvy.agent.gpu.holders import Holder, Remembered, Version
from divvy.agent.gpu.transition import Decision
from divvy.model import DesiredGpu
from divvy.model.api_names import State


@dataclass(frozen=True)
class Checkpoint:
    """What the agent remembers.

    ``config`` is the canonical JSON last accepted; ``labels`` the node's labels
    then; ``runtime`` its container runtime; ``profile`` what was selected;
    ``assignment`` maps GPU indices to UUIDs as first seen; ``applied`` the layout
    advertised per GPU, and ``changing`` the GPUs whose change was under way, which may be
    advertised otherwise now; ``gpus`` what the driver showed last; ``last_seen`` maps UUIDs to
    the boot in which the driver showed them last; ``faults`` why devices were unhealthy, as
    (GPU UUID, GPU instance or None for the whole GPU, reason); ``kubelet``, ``shown`` and
    ``forgotten`` are what is remembered of holders.
    """

    config: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    profile: str | None = None
    assignment: Mapping[int, str] = field(default_factory=dict)
    applied: Mapping[str, DesiredGpu] = field(default_factory=dict)
    gpus: tuple[Gpu, ...] = ()
    runtime: str = ""
    last_seen: Mapping[str, str] = field(default_factory=dict)
    faults: tuple[tuple[str, int | None, str], ...] = ()
    changing: tuple[str, ...] = ()
    kubelet: Version = None
    shown: tuple[Holder, ...] = ()
    forgotten: tuple[Holder, ...] = ()

    def remembered(self, boot: str) -> Remembered:
        """Return what is remembered of holders: nothing after a boot, which no container outlives.

        The kubelet fails their pods then, and may list them until they are deleted.
        """
        if boot not in self.last_seen.values():
            return Remembered()
        return Remembered(self.kubelet, self.shown, self.forgotten)


def changing(before: Checkpoint, decided: Mapping[str, Decision]) -> tuple[str, ...]:
    """Return the GPUs whose change is under way: from its first decision until they are ready."""
    known = {uuid: decision for uuid, decision in decided.items() if not decision.provisional}
    ready = {uuid for uuid, decision in known.items() if decision.state is State.READY}
    newly_changing = {
        uuid
        for uuid, decision in known.items()
        if decision.advertise.layout != before.applied.get(uuid)
    }
    return tuple(sorted((newly_changing | set(before.changing)) - ready))


def misleading(saved: Checkpoint, decided: Mapping[str, Decision]) -> frozenset[str]:
    """Return the GPUs of which an agent that starts from ``saved`` would believe another layout."""
    return frozenset(
        uuid
        for uuid, decision in decided.items()
        if uuid in saved.applied
        and uuid not in saved.changing
        and decision.advertise.layout != saved.applied[uuid]
    )
