"""Fill a resource: as many pods as the plan promises devices, then some that must not run."""

from __future__ import annotations

import re
from dataclasses import dataclass

from conformance.pods import Outcome, Workplace
from conformance.promise import DevicePromise

_TENANT = "cuda-vector-add; sleep 300"


@dataclass(frozen=True)
class Filled:
    """What came of filling: the tenants' phases and devices, and of two pods too many."""

    phases: tuple[str, ...]
    devices: tuple[str, ...]
    extra: Outcome
    events: tuple[str, ...]
    forced: Outcome

    @property
    def together(self) -> bool:
        """Tell whether all pods ran at the same time."""
        return all(phase == "Running" for phase in self.phases)


def fill(pods: Workplace, promise: DevicePromise) -> Filled:
    """Fill a resource with pods that name their device; then add one, and one with `nodeName`."""
    node, resource = promise.node.name, promise.resource
    held = [pods.start(node, ["/bin/sh", "-c", _TENANT], resource) for _ in range(promise.count)]
    try:
        pods.until(lambda: all(_settled(pods, name) for name in held), 120)
        phases = tuple(pods.phase(name) for name in held)
        found = tuple(
            uuid for name in held for uuid in re.findall(r"UUID: (\S+)\)", pods.log(name))
        )
        extra = pods.start(node, ["true"], resource)
        forced = pods.start(node, ["true"], resource, past_scheduler=True)
        held += [extra, forced]
        pods.until(lambda: bool(pods.events(extra)), 10)
        events = tuple(pods.events(extra))
        return Filled(phases, found, pods.wait(extra, 0), events, pods.wait(forced, 10))
    finally:
        pods.remove(*held)


def _settled(pods: Workplace, name: str) -> bool:
    phase = pods.phase(name)
    return phase in ("Succeeded", "Failed") or (phase == "Running" and "Done" in pods.log(name))
