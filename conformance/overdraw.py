"""Ask for more memory than a device has, while a neighbour of the same kind burns."""

from __future__ import annotations

from dataclasses import dataclass

from conformance.pods import Outcome, Workplace
from conformance.promise import DevicePromise

_SECONDS = 4
_BURN = ("gpu-burn", "-m", "64", "-stts", "1", str(_SECONDS))


@dataclass(frozen=True)
class Overdraw:
    """What came of asking for too much; ``neighbour`` is None where there was none."""

    command: tuple[str, ...]
    greedy: Outcome
    neighbour: Outcome | None


def overdraw(pods: Workplace, promise: DevicePromise) -> Overdraw:
    """Ask for a tenth more than the device's memory, with a neighbour if there is a second one."""
    mib = int((promise.device.memory_mib or 0) * 1.1)
    command = ("mem-hog", "--mib", str(mib), "--chunk", "256")
    node, resource = promise.node.name, promise.resource
    neighbour = pods.start(node, _BURN, resource) if promise.count > 1 else None
    try:
        greedy = pods.run(node, command, resource)
        burned = pods.wait(neighbour, _SECONDS + 60) if neighbour is not None else None
        return Overdraw(command, greedy, burned)
    finally:
        pods.remove(*filter(None, [neighbour]))
