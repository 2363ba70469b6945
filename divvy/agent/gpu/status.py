"""``NodeStatus``: the node's annotation ``divvy.gpu/status``."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from divvy.agent.claims.claim_status import ClaimsStatus
from divvy.agent.gpu.hardware import Snapshot
from divvy.agent.gpu.health import Health, gpu_fault
from divvy.agent.gpu.holders import Holder, bounded_names, by_uuid, on_gpu
from divvy.agent.gpu.transition import Decision
from divvy.agent.mps.supervision import STARTING
from divvy.agent.plugin.inventory import Resource
from divvy.model.api_names import State

LEFT_BEHIND = "its node moves to claims without it"
# Whoever may annotate the node chooses its length.
_MAX_ECHO = 64


@dataclass(frozen=True)
class GpuStatus:
    """State of one GPU (Degraded while unhealthy) and the reason.

    ``owner`` is one line: who owns it, and what it waits for; ``enforcement`` is "driver" where
    the driver itself limits the memory of its shares.
    """

    index: int
    uuid: str
    state: State
    reason: str
    layout: Mapping[str, int] | None
    resources: tuple[str, ...]
    owner: str = ""
    enforcement: str = ""


@dataclass(frozen=True)
class NodeStatus:
    """State of the node; ``problem`` concerns the whole node (driver, configuration).

    ``build`` names the sources of the agent's image, ``echo`` is what `divvy verify` has asked.
    """

    generation: str
    pool: str | None
    profile: str | None
    source: str
    problem: str
    driver: str
    simulated: bool
    gpus: tuple[GpuStatus, ...]
    resources: Mapping[str, int]
    build: str = ""
    echo: str = ""

    @property
    def state(self) -> State:
        """Return the worst state of all."""
        states = [State(gpu.state) for gpu in self.gpus]
        if self.problem:
            states.append(State.DEGRADED)
        return max(states, key=severity, default=State.READY)

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
                    **({"owner": gpu.owner} if gpu.owner else {}),
                    **({"enforcement": gpu.enforcement} if gpu.enforcement else {}),
                }
                for gpu in self.gpus
            ],
            **({"build": self.build} if self.build else {}),
            **({"echo": self.echo[:_MAX_ECHO]} if self.echo else {}),
        }
        return json.dumps(value, separators=(",", ":"))


def severity(state: State) -> int:
    """Return how bad a state is."""
    return state.severity


def gpu_states(
    snapshot: Snapshot | None,
    decisions: Mapping[str, Decision],
    health: Health,
    claims: Mapping[str, ClaimsStatus],
    forgotten: Iterable[Holder] = (),
    mps_problem: Callable[[str], str] = lambda _: "",
    mps_full: Callable[[str], str] = lambda _: "",
) -> tuple[GpuStatus, ...]:
    """Return the state of every GPU that was decided about; ``claims`` is of those that have it.

    ``forgotten`` are holders that the kubelet has forgotten; ``mps_problem`` says why a GPU has no
    MPS daemon that answers, and ``mps_full`` that its clients' /dev/shm has no room.
    """
    states = []
    held = by_uuid(forgotten)
    for gpu in () if snapshot is None else snapshot.gpus:
        decision = decisions.get(gpu.uuid)
        if decision is None:
            continue
        state, reason, mig = decision.state, decision.reason, decision.advertise.layout.mig
        if decision.excluded_from_move:
            state = max(state, State.WAITING, key=severity)
            reason = "; ".join(filter(None, (reason, LEFT_BEHIND)))
        of_claims = claims.get(gpu.uuid)
        if of_claims is not None:
            mig = of_claims.layout
            state = max(state, of_claims.state, key=severity)
            reason = "; ".join(filter(None, (reason, of_claims.reason)))
        lost = {holder for holders in on_gpu(gpu, held).values() for holder in holders}
        if any(offer.sharing.by_mps for offer in decision.advertise.layout.offers):
            of_mps = mps_problem(gpu.uuid)
            worse = State.CHANGING if of_mps == STARTING else State.DEGRADED
            if of_mps and gpu.uuid not in decision.advertise.withheld:
                state = max(state, worse, key=severity)
                reason = "; ".join(filter(None, (reason, of_mps)))
        full = mps_full(gpu.uuid)
        faults = (gpu_fault(gpu, health), full, _forgotten(lost.difference(decision.in_the_way)))
        for fault in filter(None, faults):
            state = max(state, State.DEGRADED, key=severity)
            reason = f"{fault}; {reason}" if reason else fault
        layout = decision.advertise.layout
        names = tuple(sorted({offer.resource for offer in layout.offers}))
        owner = decision.ownership.line
        enforcement = "driver" if any(offer.sharing.by_driver for offer in layout.offers) else ""
        states.append(GpuStatus(gpu.index, gpu.uuid, state, reason, mig, names, owner, enforcement))
    return tuple(states)


def _forgotten(holders: Iterable[Holder]) -> str:
    names = bounded_names({holder.text for holder in holders})
    return names and (
        f"the kubelet has forgotten that {names} hold devices of it: no other pod gets them"
    )


def healthy_counts(resources: Sequence[Resource]) -> dict[str, int]:
    """Count the healthy devices of every resource: what the node's allocatable should become."""
    return {
        resource.name: sum(device.unhealthy is None for device in resource.devices)
        for resource in resources
    }
