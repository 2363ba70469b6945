"""Fill a resource: as many pods as the plan promises devices, then some that must not run."""

from __future__ import annotations

import time
from dataclasses import dataclass

from conformance.cluster.pods import Outcome, PodNamespace
from conformance.observe.identities import visible_devices
from conformance.observe.probes import Part, adds, burns, device_mib, part, script
from conformance.promise import DevicePromise
from conformance.skips import not_made
from divvy.model.pod_phase import FINISHED

# What every tenant does before it stays: the device's identity, then all that it must be able to.
_PARTS = {
    "list": "nvidia-smi -L",
    "vector-add": "cuda-vector-add",
    "memory": "mem-hog --mib 1",
    # Long enough for a replica among many: what has computed nothing counts as faulty.
    "burn": "gpu-burn -m 64 -stts 1 {seconds}",
}
_DONE = "@@ all done"
_TENANT = f"{script(_PARTS)}\necho '{_DONE}'\nsleep 600"
_BURN, _BURN_PER_SHARE = 5, 1
_PATIENCE_FOR_ALL, _PATIENCE_PER_DEVICE = 120, 5
_EVENT, _REFUSAL = 60, 30


@dataclass(frozen=True)
class Tenant:
    """One pod of a full node: its phase, what its parts said, and the UUIDs of its devices."""

    phase: str
    vector_add: Part
    memory: Part
    burn: Part
    devices: tuple[str, ...]

    @property
    def adds(self) -> bool:
        """Return whether vectors were added without an error."""
        return adds(self.vector_add)

    @property
    def burns(self) -> bool:
        """Return whether gpu-burn found no error."""
        return burns(self.burn)

    @property
    def memory_mib(self) -> int | None:
        """Return the memory that the driver gives the device, None if it said nothing."""
        return device_mib(self.memory.log)

    @property
    def name(self) -> str:
        """Return the UUID of its device."""
        return ", ".join(self.devices) or "no device"


@dataclass(frozen=True)
class FillResult:
    """What came of filling: the tenants, and two pods too many (None: the node was not full)."""

    tenants: tuple[Tenant, ...]
    extra: Outcome | None
    events: tuple[str, ...]
    forced: Outcome | None

    @property
    def devices(self) -> tuple[str, ...]:
        """Return the UUID of every tenant's device."""
        return tuple(uuid for tenant in self.tenants for uuid in tenant.devices)

    @property
    def running(self) -> int:
        """Return how many tenants ran at the same time."""
        return sum(tenant.phase == "Running" for tenant in self.tenants)

    @property
    def together(self) -> bool:
        """Return whether all pods ran at the same time."""
        return bool(self.tenants) and self.running == len(self.tenants)


def fill(pods: PodNamespace, promise: DevicePromise, shortage: str) -> FillResult:
    """Fill a resource with pods that name their device; then add one, and one with `nodeName`.

    ``shortage`` is what the scheduler says of a pod for which there is no device left.
    """
    node, resource = promise.node.name, promise.resource
    tenant = _TENANT.format(seconds=_BURN + _BURN_PER_SHARE * promise.device.shares)
    held: list[str] = []
    try:
        for _ in range(promise.count):
            held.append(pods.start(node, ["/bin/sh", "-c", tenant], resource))
        settled: set[str] = set()
        began = time.monotonic()

        def all_settled() -> bool:
            settled.update(name for name in held if name not in settled and _settled(pods, name))
            waiting = [name for name in held if name not in settled]
            # Those that find no device stay Pending: all others are given the time to end.
            refused = time.monotonic() > began + _REFUSAL
            return (refused and all(map(pods.unschedulable, waiting))) or not waiting

        pods.until(all_settled, _PATIENCE_FOR_ALL + _PATIENCE_PER_DEVICE * promise.count)
        tenants = tuple(_tenant(pods, name) for name in held)
        if not all(tenant.phase == "Running" for tenant in tenants):
            reasons = [pods.unschedulable(name) for name in held if name not in settled]
            if other := next((why for why in reasons if why and shortage not in why), ""):
                # A kubelet runs 110 pods by default, however many shares its GPUs have.
                not_made(f"{len(reasons)} of {promise.count} pods find no place: {other}")
            return FillResult(tenants, None, (), None)
        extra = pods.start(node, ["true"], resource)
        held.append(extra)
        forced = pods.start(node, ["true"], resource, past_scheduler=True)
        held.append(forced)
        pods.until(lambda: bool(pods.events(extra)), _EVENT)
        events = tuple(pods.events(extra))
        return FillResult(tenants, pods.wait(extra, 0), events, pods.wait(forced, _REFUSAL))
    finally:
        pods.remove(*held)


def _tenant(pods: PodNamespace, name: str) -> Tenant:
    outcome = pods.wait(name, 0)
    parts = {kind: part(outcome, kind) for kind in _PARTS}
    return Tenant(
        outcome.phase,
        parts["vector-add"],
        parts["memory"],
        parts["burn"],
        visible_devices(parts["list"].log),
    )


def _settled(pods: PodNamespace, name: str) -> bool:
    phase = pods.phase(name)
    return phase in (*FINISHED, "Deleted") or (phase == "Running" and _DONE in pods.log(name))
