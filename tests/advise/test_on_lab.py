"""Pods of known sizes on the lab waste their GPUs; what `advise` writes serves them on fewer."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from conformance.image import build_and_push
from divvy.model import parse_cluster
from divvy.render.objects.observability import observability_objects
from lab.fakes.ports import free_port
from tests.agent.tenants import phase, pod, run
from tests.conformance.scene import Scene
from tests.deployment import Deployment
from tests.observability.prometheus import Prometheus, running

pytestmark = [pytest.mark.lab, pytest.mark.timeout(1800)]
MIB = 3000
# An A100 each; a half of a T4 each, of which a quarter would do.
PODS = {
    **{f"whole-{number}": ("nvidia.com/gpu", "gpu-a100") for number in range(4)},
    **{f"half-{number}": ("nvidia.com/gpu.shared", "gpu-t4") for number in range(3)},
}
HALVES = {
    "timeSlicing": {
        "replicas": 2,
        "memoryLimit": {"limit": "auto", "action": "prevent"},
        "compute": "share",
    }
}


@pytest.fixture
def wasteful(deployed: Deployment) -> Iterator[Deployment]:
    """Give the pods more than they use; the stack is as it was in the end, and is deployed."""
    before = copy.deepcopy(deployed.cluster)
    deployed.cluster["profiles"]["halves"] = HALVES
    deployed.set_profile("research", "whole")
    deployed.set_profile("notebooks", "halves")
    # No other pool offers nvidia.com/gpu: parts may go by that name.
    deployed.set_profile("training", "hopper-mix")
    # The T4s that pods leave free stay free.
    deployed.cluster["placement"] = {"replicas": "pack"}
    deployed.up()
    yield deployed
    deployed.cluster = before
    deployed.up()


def start(deployed: Deployment, namespace: str, image: str) -> None:
    """Start the pods, which hold memory and compute nothing."""
    for name, (resource, node) in PODS.items():
        manifest = pod(name, resource, f"mem-hog --mib {MIB} --hold 1000", node)
        manifest["spec"]["containers"][0]["image"] = image
        run(deployed, namespace, manifest)
    deployed.until(lambda: all(phase(deployed, namespace, name) == "Running" for name in PODS), 120)


def held(prometheus: Prometheus, namespace: str) -> dict[str, set[str]]:
    """Return the GPUs of each node that the pods hold something of, once all hold something."""
    query = f'divvy_device_held{{namespace="{namespace}"}}'
    series = [entry["metric"] for entry in prometheus.ask("query", query=query)["result"]]
    if {labels["pod"] for labels in series} != set(PODS):
        return {}
    nodes = {labels["node"] for labels in series}
    return {node: {labels["gpu"] for labels in series if labels["node"] == node} for node in nodes}


def is_recorded(prometheus: Prometheus, namespace: str) -> bool:
    """Return whether all pods hold their memory, and were seen at a full minute with it."""
    query = f"""
        count(max by (pod) (last_over_time(
            {{__name__=~"divvy_(pod|share)_memory_used_mib", namespace="{namespace}"}}[5m:1m]
        ) >= {MIB}))
    """
    return any(
        int(entry["value"][1]) == len(PODS)
        for entry in prometheus.ask("query", query=query)["result"]
    )


def test_leads_from_a_profile_that_wastes_to_fewer_gpus(
    wasteful: Deployment, tmp_path: Path
) -> None:
    lab, deployed = wasteful.lab, wasteful
    cluster = parse_cluster({**deployed.cluster, "observability": {"serviceMonitor": True}})
    monitor = observability_objects(cluster, "")[-1]
    image = build_and_push(deployed.registry, deployed.base_image, insecure=True)
    with (
        lab.namespace() as namespace,
        running(tmp_path, lab.kubeconfig, monitor, free_port()) as prometheus,
    ):
        start(deployed, namespace, image)
        deployed.until(lambda: is_recorded(prometheus, namespace), 150)
        gpus = {node: len(uuids) for node, uuids in held(prometheus, namespace).items()}
        assert gpus == {"gpu-a100": 4, "gpu-t4": 2}
        where = f"--prometheus=http://{prometheus.address}"
        advice = json.loads(
            deployed.divvy("advise", "--stack=lab", where, "--since=5m", "--write", "-o", "json")
        )
        answers = {answer["pool"]: answer for answer in advice["pools"]}
        assert answers["training"]["reason"].startswith("no pod held one of its GPUs")
        assert advised(answers["research"]) == ("7 × 1g.5gb", 4, 1)
        assert advised(answers["notebooks"]) == ("4 limited shares", 2, 1)
        # What it has written is deployed once the pods have ended, and the same pods start again.
        lab.kubectl("delete", "pods", "--all", f"-n={namespace}")
        stack = yaml.safe_load((deployed.folder / "stacks/Pulumi.lab.yaml").read_text())
        deployed.cluster = stack["config"]["divvy:cluster"]
        deployed.up()
        start(deployed, namespace, image)
        deployed.until(lambda: bool(held(prometheus, namespace)))
        gpus = {node: len(uuids) for node, uuids in held(prometheus, namespace).items()}
        assert gpus == {"gpu-a100": 1, "gpu-t4": 1}
        scene = Scene(deployed, image, tmp_path)
        for pool in ("research", "notebooks"):
            scene.verify(f"--pool={pool}", expect=0)


def advised(answer: dict[str, Any]) -> tuple[str, int, int]:
    """Return what is recommended for a pool, and its GPUs at the peak today and then."""
    assert answer["recommended"] is not None, answer
    best = answer["best"][answer["recommended"]]
    # No pod has to ask for something else, and none is worse off.
    assert (best["requests"], best["allow"], answer["podsNotMeasured"]) == ([], [], 0)
    return best["words"], answer["today"]["gpus"], best["gpus"]
