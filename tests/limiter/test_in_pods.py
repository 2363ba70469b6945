"""Limited shares in real pods, given by CDI names and without CDI."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from divvy.model.api_names import METRICS_PORT
from tests.deployment import Deployment
from tests.limited_shares import followed, limited_shares
from tests.running_lab import RunningLab

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]
# By the specification's names, and by what Allocate answers.
NODES = {"research": "gpu-a100", "notebooks": "gpu-t4"}
TENANT = r"""
import ctypes as c, json, subprocess, sys, time
cuda, pointer, context = c.CDLL("libcuda.so.1"), c.c_uint64(), c.c_void_p()
free, total, MIB = c.c_size_t(), c.c_size_t(), 1 << 20
codes = [cuda.cuInit(0), cuda.cuCtxCreate_v2(c.byref(context), 0, 0)]
codes += [cuda.cuMemAlloc_v2(c.byref(pointer), c.c_size_t(s * MIB)) for s in (2000, 1500, 900)]
cuda.cuMemGetInfo_v2(c.byref(free), c.byref(total))
query = ["nvidia-smi", "--format=csv,noheader,nounits"]
ask = lambda what: subprocess.run([*query, what], capture_output=True, text=True).stdout.strip()
print(json.dumps({
    "codes": codes, "info": [free.value // MIB, total.value // MIB],
    "smi": ask("--query-gpu=memory.total,memory.used"),
    "processes": ask("--query-compute-apps=pid"),
}), flush=True)
time.sleep(600)
"""


@pytest.fixture(autouse=True)
def empty_gpus(deployed: Deployment) -> Iterator[None]:
    """Begin and end with idle GPUs: pods that end hold their memory for a while."""
    deployed.lab.until(lambda: not gpus_in_use(deployed))
    yield
    deployed.lab.until(lambda: not gpus_in_use(deployed))


@pytest.fixture
def limited(deployed: Deployment) -> Iterator[Deployment]:
    with limited_shares(deployed, *NODES, one_each=False):
        yield deployed


def tenant(
    lab: RunningLab, name: str, node: str, image: str, count: int, program: str = TENANT
) -> dict[str, Any]:
    container = {
        "image": image,
        "command": ["python3", "-c", program],
        "resources": {"limits": {"nvidia.com/gpu.shared": count}},
        # Whom the image runs as makes no difference.
        "securityContext": {"runAsUser": 1000},
    }
    selector = {"kubernetes.io/hostname": node}
    return lab.pod(name, "", container=container, nodeSelector=selector)


def log(lab: RunningLab, name: str, namespace: str) -> str:
    return lab.try_kubectl("logs", name, f"-n={namespace}").stdout


def test_keeps_pods_to_their_shares_and_shows_them(limited: Deployment) -> None:
    lab = limited.lab
    with lab.namespace() as namespace:
        pods = [
            tenant(lab, f"{node}-{number}", node, limited.base_image, 1)
            for node in NODES.values()
            for number in (1, 2)
        ]
        for pod in pods:
            pod["metadata"]["namespace"] = namespace
        lab.apply(*pods)
        names = [pod["metadata"]["name"] for pod in pods]
        lab.until(lambda: all(log(lab, name, namespace) for name in names), 120)
        for name in names:
            report = json.loads(log(lab, name, namespace))
            assert report == {
                "codes": [0, 0, 0, 2, 0],
                "info": [100, 3000],
                "smi": "3000, 2900",
                "processes": "1",
            }, name


def test_gives_two_replicas_both_sizes(limited: Deployment) -> None:
    lab = limited.lab
    with lab.namespace() as namespace:
        both = tenant(lab, "both", "gpu-t4", limited.base_image, 2)
        both["metadata"]["namespace"] = namespace
        lab.apply(both)
        lab.until(lambda: bool(log(lab, "both", namespace)), 120)
        report = json.loads(log(lab, "both", namespace))
    # The two replicas may be of one GPU or of both.
    assert report["info"][1] in (3000, 6000)


# 3 × 7,000 MiB on a T4 of 15,360 MiB.
OVERSUBSCRIBED = {
    "timeSlicing": {
        "replicas": 3,
        "memoryLimit": {"limit": "auto", "action": "prevent", "oversubscribe": 1.5},
    }
}
GREEDY = r"""
import ctypes as c, time
cuda, pointer, context, MIB = c.CDLL("libcuda.so.1"), c.c_uint64(), c.c_void_p(), 1 << 20
codes = [cuda.cuInit(0), cuda.cuCtxCreate_v2(c.byref(context), 0, 0)]
codes += [cuda.cuMemAlloc_v2(c.byref(pointer), c.c_size_t(s * MIB)) for s in (7000, 700)]
print(codes, flush=True)
time.sleep(600)
"""


def test_gives_oversubscribed_pods_their_shares(deployed: Deployment) -> None:
    lab = deployed.lab
    with followed(deployed, OVERSUBSCRIBED, "notebooks"), lab.namespace() as namespace:
        names = [f"greedy-{number}" for number in range(6)]
        pods = [tenant(lab, n, "gpu-t4", deployed.base_image, 1, GREEDY) for n in names]
        for pod in pods:
            pod["metadata"]["namespace"] = namespace
        lab.apply(*pods)
        lab.until(lambda: all(log(lab, name, namespace) for name in names), 120)
        # All have 7,000 MiB, none has more than its 7,680.
        assert [log(lab, name, namespace).strip() for name in names] == ["[0, 0, 0, 2]"] * 6
        lab.until(lambda: to_host(deployed, namespace) == 2)


def gpus_in_use(deployed: Deployment) -> bool:
    """Return whether any process of the nodes is on a GPU."""
    query = ("nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader")
    return any(deployed.on_node(node, *query).strip() for node in NODES.values())


def to_host(deployed: Deployment, namespace: str) -> float:
    """Return how many requests of a namespace's pods the host's memory took."""
    address = f"http://{deployed.agent('gpu-t4')['status']['podIP']}:{METRICS_PORT}/metrics"
    read = f"from urllib.request import urlopen; print(urlopen({address!r}).read().decode())"
    page = deployed.on_node("gpu-t4", "python3", "-c", read)
    figures = re.findall(r"^divvy_share_requests_to_host_memory\{(.*)\} (\S+)$", page, re.M)
    return sum(float(value) for labels, value in figures if f'namespace="{namespace}"' in labels)
