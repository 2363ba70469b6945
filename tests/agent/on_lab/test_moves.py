"""Nodes move from the device plugin to claims and back while Jobs come: each of them is served.

The kubelet refuses a pod that the scheduler sends in the seconds before the node's status says
what it offers now; then the Job makes another. Every pod requests one GPU by its resource name,
which nodes of both kinds serve. The orders of the model are in tests/agent/pool_walk.py; these
are all that two nodes have, of a real scheduler and real kubelets.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from functools import partial
from itertools import pairwise, permutations
from random import Random
from typing import Any, NamedTuple

import pytest

from tests.agent.tenants import GPU, pod
from tests.deployment import Deployment

pytestmark = [pytest.mark.lab, pytest.mark.timeout(900)]
NODES = {"training": "gpu-h100", "experiments": "gpu-on-demand"}
PLUGIN, CLAIMS = "whole", "by-size"
MOVES = [(pool, profile) for profile in (CLAIMS, PLUGIN) for pool in NODES]
# Each node goes to claims before it comes back; between the nodes any order may be: six in all.
ORDERS = [
    order
    for order in permutations(MOVES)
    if all(order.index((pool, CLAIMS)) < order.index((pool, PLUGIN)) for pool in NODES)
]


class Hold(NamedTuple):
    """When a container held a GPU; they sort by when they began to hold it."""

    gpu: str
    started: datetime
    finished: datetime
    pod: str


@pytest.fixture
def moving(deployed: Deployment) -> Iterator[Deployment]:
    """Give two pools that the device plugin serves, and whose pods are waited for."""
    with deployed.claims():
        deployed.cluster["change"] = {"policy": "wait", "deadline": "20s"}
        for pool in NODES:
            deployed.set_profile(pool, PLUGIN)
        deployed.up()
        yield deployed


def _job(name: str, seconds: int) -> dict[str, Any]:
    """Return a Job of one pod, which any of the nodes may run."""
    manifest = pod(name, GPU, f"nvidia-smi -L; sleep {seconds}")
    nodes = {"key": "kubernetes.io/hostname", "operator": "In", "values": [*NODES.values()]}
    term = {"nodeSelectorTerms": [{"matchExpressions": [nodes]}]}
    del manifest["spec"]["nodeSelector"]
    manifest["spec"]["affinity"] = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": term}
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"template": {"spec": manifest["spec"]}},
    }


def _held(deployed: Deployment, namespace: str, pod: dict[str, Any]) -> Hold:
    name = pod["metadata"]["name"]
    (container,) = pod["status"]["containerStatuses"]
    ended = container["state"]["terminated"]
    (gpu,) = re.findall(r"UUID: (GPU-[^)]+)", deployed.lab.kubectl("logs", name, f"-n={namespace}"))
    started, finished = (datetime.fromisoformat(ended[key]) for key in ("startedAt", "finishedAt"))
    return Hold(gpu, started, finished, name)


def _owners(deployed: Deployment, node: str) -> set[str]:
    return {gpu["owner"] for gpu in deployed.status(node)["gpus"]}


def _served_as(deployed: Deployment, node: str, profile: str) -> bool:
    owner = "plugin" if profile == PLUGIN else "claims"
    return deployed.status(node).get("state") == "Ready" and _owners(deployed, node) == {owner}


@pytest.mark.parametrize("seed", range(6))
def test_serves_every_job_while_nodes_move_to_claims_and_back(
    moving: Deployment, seed: int
) -> None:
    random = Random(seed)
    names = iter(range(100))

    def create(namespace: str) -> None:
        for _ in range(random.randrange(1, 4)):
            job = _job(f"job-{next(names)}", random.randrange(1, 12))
            job["metadata"]["namespace"] = namespace
            (container,) = job["spec"]["template"]["spec"]["containers"]
            container["image"] = moving.base_image
            moving.lab.apply(job)

    with moving.lab.namespace() as namespace:
        create(namespace)
        for pool, profile in ORDERS[seed]:
            moving.set_profile(pool, profile)
            # It waits for what pods hold, and goes on where they do not end in time.
            moving.up()
            create(namespace)

        def all_complete() -> bool:
            jobs = moving.lab.get("jobs", f"-n={namespace}")["items"]
            return all(job["status"].get("succeeded") for job in jobs)

        moving.until(all_complete, 180)
        pods = moving.lab.get("pods", f"-n={namespace}")["items"]
        failed = [pod["status"] for pod in pods if pod["status"]["phase"] != "Succeeded"]
        refusals = {f"OutOf{GPU}", "UnexpectedAdmissionError"}
        assert {status.get("reason") for status in failed} <= refusals, failed
        holds = sorted(
            _held(moving, namespace, pod) for pod in pods if pod["status"]["phase"] == "Succeeded"
        )
        for first, second in pairwise(holds):
            apart = first.gpu != second.gpu or first.finished <= second.started
            assert apart, f"{first.pod} and {second.pod} held {first.gpu} at the same time"
        for node in NODES.values():
            moving.until(partial(_served_as, moving, node, PLUGIN), 60)
