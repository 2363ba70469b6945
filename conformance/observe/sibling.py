"""The view that a container has of the GPU of another container of its pod."""

from __future__ import annotations

from typing import Any

from conformance.cluster.pods import Outcome, PodNamespace
from conformance.evidence import Verdict
from conformance.observe.identities import visible_devices
from conformance.observe.probes import LOOK, part, script

# Both containers live while they look; a device that comes or goes with the other's start counts.
_HOLDER = f"""
({LOOK}) > /scratch/look 2>&1
touch /scratch/holds
for second in $(seq 60); do [ -e /scratch/seen ] && exit 0; sleep 1; done
"""
_SIBLING = """
for second in $(seq 60); do [ -e /scratch/holds ] && break; sleep 1; done
"""
_PATIENCE = 150


def look_beside(pods: PodNamespace, node: str, resource: str | None = None, **more: Any) -> Outcome:
    """Run a pod of two containers, of which one gets the devices; both look around."""
    look = script({"holder": "cat /scratch/look", "look": LOOK})
    command = ["/bin/sh", "-c", f"{_SIBLING}{look}\ntouch /scratch/seen"]
    holder = ["/bin/sh", "-c", _HOLDER]
    return pods.run(node, command, resource, _PATIENCE, beside=holder, **more)


def sibling_sees_nothing(pod: Outcome) -> Verdict:
    """Judge both looks: one that sees nothing shows nothing if the other sees no GPU either."""
    holder, sibling = part(pod, "holder"), part(pod, "look")
    held = len(visible_devices(holder.log))
    lines = "; ".join(line for line in sibling.log.splitlines() if line.strip())
    seen = lines or "nothing" if sibling.code == 0 else str(sibling)
    return (
        "the container with the device sees 1 GPU, the other: nothing",
        f"the container with the device sees {held} GPU, the other: {seen}",
    )
