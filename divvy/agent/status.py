"""What the node tells about itself: the ``divvy.gpu/status`` annotation."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from divvy.agent.hardware import Snapshot
from divvy.agent.health import Health, gpu_fault
from divvy.agent.inventory import Resource
from divvy.agent.turn import Decision

STATUS_ANNOTATION = "divvy.gpu/status"
# From good to bad: a node shows the worst state of its GPUs.
_SEVERITY = ("Ready", "Changing", "Waiting", "Blocked", "Degraded", "Failed")


@dataclass(frozen=True)
class GpuStatus:
    """State of one GPU: a word of ``decide`` (or Degraded while unhealthy) and the reason."""

    index: int
    uuid: str
    state: str
    reason: str
    layout: Mapping[str, int] | None
    resources: tuple[str, ...]


@dataclass(frozen=True)
class NodeStatus:
    """State of the node; ``problem`` concerns the whole node (driver, configuration)."""

    generation: str
    pool: str | None
    profile: str | None
    source: str
    problem: str
    driver: str
    simulated: bool
    gpus: tuple[GpuStatus, ...]
    resources: Mapping[str, int]

    @property
    def state(self) -> str:
        """Return the worst state of all."""
        states = [gpu.state for gpu in self.gpus]
        if self.problem:
            states.append("Degraded")
        return max(states, key=_SEVERITY.index, default="Ready")

    @property
    def reason(self) -> str:
        """Return all reasons in one line."""
        reasons = [f"GPU {gpu.index}: {gpu.reason}" for gpu in self.gpus if gpu.reason]
        return "; ".join(([self.problem] if self.problem else []) + reasons)

    def annotation(self) -> str:
        """Render the annotation's value: compact JSON, the same value gives the same text."""
        value = {
            "generation": self.generation,
            "pool": self.pool,
            "profile": self.profile,
            "source": self.source,
            "state": self.state,
            "reason": self.reason,
            "driver": self.driver,
            "simulated": self.simulated,
            "resources": dict(sorted(self.resources.items())),
            "gpus": [
                {
                    "index": gpu.index,
                    "uuid": gpu.uuid,
                    "state": gpu.state,
                    **({"reason": gpu.reason} if gpu.reason else {}),
                    **({} if gpu.layout is None else {"mig": dict(sorted(gpu.layout.items()))}),
                    "resources": list(gpu.resources),
                }
                for gpu in self.gpus
            ],
        }
        return json.dumps(value, separators=(",", ":"))


def gpu_states(
    snapshot: Snapshot | None,
    decisions: Mapping[str, Decision],
    failed: Mapping[str, str],
    health: Health,
) -> tuple[GpuStatus, ...]:
    """Return the state of every GPU that was decided about.

    ``failed`` maps UUIDs to why the last attempt to cut them failed.
    """
    found = []
    for gpu in () if snapshot is None else snapshot.gpus:
        decision = decisions.get(gpu.uuid)
        if decision is None:
            continue
        state, reason = decision.state, decision.reason
        fault = gpu_fault(gpu, health)
        if gpu.uuid in failed and decision.recut:
            state, reason = "Failed", failed[gpu.uuid]
        elif fault and state == "Ready":
            state, reason = "Degraded", fault
        names = tuple(sorted({offer.resource for offer in decision.offer.offers}))
        found.append(GpuStatus(gpu.index, gpu.uuid, state, reason, decision.offer.mig, names))
    return tuple(found)


def healthy_counts(resources: Sequence[Resource]) -> dict[str, int]:
    """Count the healthy devices of every resource: what the node's allocatable should become."""
    return {
        resource.name: sum(device.unhealthy is None for device in resource.devices)
        for resource in resources
    }
