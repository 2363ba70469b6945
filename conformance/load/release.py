"""Checks that devices are free again: after many pods, init containers, restarts, deletion."""

from __future__ import annotations

import time
from collections.abc import Callable

from conformance.cluster.last_look import last_look
from conformance.cluster.pods import Outcome, PodNamespace, is_turned_away
from conformance.promise import DevicePromise

_LIST = ("nvidia-smi", "-L")
_HOLD = ("/bin/sh", "-c", "nvidia-smi -L && sleep 60")
# Fails once: the file is on a volume that outlives the container.
_AGAIN = (
    "/bin/sh",
    "-c",
    "[ -e /scratch/again ] || { touch /scratch/again; exit 1; }; nvidia-smi -L",
)
_PATIENCE = 45
# One after the other, as many as the time allows: a kubelet needs about a second for each.
MAX_PODS_IN_A_ROW, MIN_PODS_IN_A_ROW = 50, 10


def release(pods: PodNamespace, promise: DevicePromise, row_seconds: float) -> tuple[str, str]:
    """Have pods of each kind come and go, with all devices where a pod may have them.

    Each begins when the one before is gone: a device that was not freed keeps it from running.
    After ``row_seconds`` those that come one after the other are enough. Return what must become of
    them, and what did until the first that did not run.
    """
    node, resource = promise.node.name, promise.resource
    count = 1 if promise.one_per_container and promise.device.shares > 1 else promise.count
    steps: dict[str, Callable[[], Outcome]] = {
        "init container": lambda: pods.run(
            node, _LIST, resource, _PATIENCE, count=count, init=True
        ),
        "restarted": lambda: pods.run(
            node, _AGAIN, resource, _PATIENCE, count=count, restarts=True
        ),
        "after forced deletion": lambda: _after_force(pods, promise, count),
    }
    expected = [f"{what}: Succeeded" for what in steps]
    seen: list[str] = []
    for what, step in steps.items():
        outcome = step()
        seen.append(f"{what}: {outcome.phase}")
        if outcome.phase != "Succeeded":
            return ", ".join(expected), ", ".join(filter(None, [*seen, outcome.reason]))
    number, last = _in_a_row(pods, promise, count, row_seconds)
    expected.append(f"{number} in a row: Succeeded")
    seen.append(f"{number} in a row: {last.phase}")
    if last.phase != "Succeeded":
        seen.append(f"pod {number}: {last.reason}")
    return ", ".join(expected), ", ".join(seen)


def _in_a_row(
    pods: PodNamespace, promise: DevicePromise, count: int, seconds: float
) -> tuple[int, Outcome]:
    """Run pods one after the other; return how many, and the last or the first that failed.

    If each has all devices, the one after a leak finds too few. If each has one replica, as
    many must leak as there are.
    """
    ends = time.monotonic() + seconds
    number = 0
    while True:
        number += 1
        outcome = pods.run(promise.node.name, _LIST, promise.resource, _PATIENCE, count=count)
        enough = number >= MIN_PODS_IN_A_ROW and time.monotonic() > ends
        if outcome.phase != "Succeeded" or enough or number == MAX_PODS_IN_A_ROW:
            return number, outcome


def _after_force(pods: PodNamespace, promise: DevicePromise, count: int) -> Outcome:
    """Delete a running pod by force and start the next one, which waits for the devices."""
    node, resource = promise.node.name, promise.resource
    forced = pods.start(node, _HOLD, resource, count=count)
    try:
        if not pods.until(lambda: "UUID" in pods.log(forced), _PATIENCE):
            return pods.wait(forced, 0)
    finally:
        pods.remove(forced, at_once=True)
    # The API has forgotten the pod; the kubelet still ends its container.
    return last_look(
        lambda: pods.run(node, _LIST, resource, _PATIENCE, count=count),
        lambda after: not is_turned_away(after),
        _PATIENCE,
    )
