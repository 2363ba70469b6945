"""Preemption for claimed GPUs on real kubelets, as a user sees it; the GPUs are simulated."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.deployment import Deployment

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]

# Two L40S of 46,068 MiB each: two pods fill them, and fit on no other node.
SIZE = {"nvidia.com/gpumem": "44000"}
PRIORITIES = {"batch": 0, "urgent": 1000}


@pytest.fixture
def preempting(deployed: Deployment) -> Iterator[Deployment]:
    with deployed.claims():
        deployed.cluster["preemption"] = True
        deployed.up()
        kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
        classes = [
            {**kind, "metadata": {"name": name}, "value": PRIORITIES[name]} for name in PRIORITIES
        ]
        deployed.lab.apply(*classes)
        yield deployed
        deployed.lab.kubectl("delete", "priorityclass", *PRIORITIES)


def test_serves_a_high_priority_pod_on_a_full_node(preempting: Deployment) -> None:
    lab = preempting.lab
    with lab.namespace() as namespace:
        place = f"-n={namespace}"

        def start(name: str, priority: str) -> None:
            container = {"resources": {"limits": SIZE}}
            pod = lab.pod(name, "sleep 1000", container=container, priorityClassName=priority)
            pod["metadata"]["namespace"] = namespace
            lab.apply(pod)

        def runs(name: str) -> bool:
            pod = lab.api.try_get("pod", name, place)
            return pod is not None and pod["status"].get("phase") == "Running"

        def messages(reason: str) -> list[str]:
            events = lab.get("events", place)["items"]
            return [event["message"] for event in events if event["reason"] == reason]

        for name in ("first", "second"):
            start(name, "batch")
        lab.until(lambda: runs("first") and runs("second"), 120)
        began = time.monotonic()
        start("urgent", "urgent")
        lab.until(lambda: runs("urgent"), 120)
        print(f"urgent runs after {time.monotonic() - began:.1f} s")
        assert runs("first") != runs("second")
        (evicted,) = messages("Preempted")
        (evicting,) = messages("Preempting")
        print(evicted, evicting, sep="\n")
        assert "of priority 1000 on node gpu-by-size, to free what its claims need" in evicted
        assert evicting == (
            "1 pod of a lower priority on node gpu-by-size was evicted to free what its claims need"
        )
