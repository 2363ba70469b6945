"""Crowds and losses on real kubelets: every pod has the device that the kubelet chose for it."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from lab.cluster.machine import Machine
from tests.agent.tenants import (
    GPU,
    NODE,
    POOL,
    SHARED,
    devices,
    kill_agent,
    phase,
    pod,
    run,
)
from tests.deployment import NAMESPACE, Deployment

pytestmark = [pytest.mark.lab, pytest.mark.timeout(400), pytest.mark.usefixtures("original")]
CROWD = 50


def crowd(deployed: Deployment, namespace: str) -> dict[str, dict[str, Any]]:
    """Return the running pods of the crowd by name."""
    pods = deployed.lab.get("pods", f"-n={namespace}", "--selector=app=crowd")["items"]
    return {
        crowd_pod["metadata"]["name"]: crowd_pod
        for crowd_pod in pods
        if crowd_pod["status"].get("phase") == "Running"
        and "deletionTimestamp" not in crowd_pod["metadata"]
    }


def seen_by_pods(deployed: Deployment, namespace: str) -> dict[str, str]:
    """Return pod → the UUID that it sees, from its log."""
    search = f"grep -rH 'GPU 0: .*UUID' /var/log/pods/{namespace}_*/main || true"
    listing = deployed.on_node(NODE, "sh", "-c", search)
    form = rf"^/var/log/pods/{namespace}_([^_]+)_.*UUID: (GPU-[^)]+)"
    return dict(re.findall(form, listing, re.MULTILINE))


def check(deployed: Deployment, namespace: str) -> dict[str, str]:
    """Compare what the kubelet chose with what the pods see; return pod → device."""
    held, _ = devices(deployed, NODE)
    chosen = {name.removeprefix(f"{namespace}/"): held[name] for name in held}
    running = crowd(deployed, namespace)
    mine = {name: chosen[name] for name in running}
    seen = seen_by_pods(deployed, namespace)
    assert {name: device.split("::")[0] for name, device in mine.items()} == {
        name: seen[name] for name in running
    }
    assert len(set(mine.values())) == len(running) == CROWD
    return mine


def test_serves_fifty_pods_at_once_while_the_agent_is_killed(deployed: Deployment) -> None:
    deployed.cluster["profiles"]["crowd"] = {"timeSlicing": {"replicas": 13}}
    deployed.set_profile(POOL, "crowd")
    deployed.up()
    deployed.until(lambda: deployed.offered(NODE) == {SHARED: 52}, 40)
    template = pod("crowd", SHARED, "nvidia-smi -L; sleep 1000")
    del template["spec"]["restartPolicy"]
    template["spec"]["containers"][0]["image"] = deployed.base_image
    replicas = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "spec": {
            "replicas": CROWD,
            "selector": {"matchLabels": {"app": "crowd"}},
            "template": {"metadata": {"labels": {"app": "crowd"}}, "spec": template["spec"]},
        },
    }
    with deployed.lab.namespace() as namespace:
        deployed.lab.apply({**replicas, "metadata": {"name": "crowd", "namespace": namespace}})
        deployed.until(lambda: len(crowd(deployed, namespace)) == CROWD, 120)
        every = deployed.lab.get("pods", f"-n={namespace}")["items"]
        assert {pod["status"]["phase"] for pod in every} == {"Running"}
        deployed.until(lambda: len(seen_by_pods(deployed, namespace)) == CROWD)
        before = check(deployed, namespace)
        per_gpu = Counter(device.split("::")[0] for device in before.values())
        assert sorted(per_gpu.values()) == [12, 12, 13, 13]

        pods = crowd(deployed, namespace)
        leaving, staying = sorted(pods)[:10], sorted(pods)[10:]
        deployed.lab.kubectl("delete", "pods", *leaving, f"-n={namespace}", "--wait=false")
        kill_agent(deployed, NODE)
        # What the kubelet refuses meanwhile, the ReplicaSet replaces.
        deployed.until(lambda: len(crowd(deployed, namespace)) == CROWD, 120)
        deployed.until(
            lambda: crowd(deployed, namespace).keys() <= seen_by_pods(deployed, namespace).keys()
        )
        after = check(deployed, namespace)
        now = crowd(deployed, namespace)
        for name in staying:
            assert after[name] == before[name]
            assert now[name]["metadata"]["uid"] == pods[name]["metadata"]["uid"]
            assert now[name]["status"]["containerStatuses"][0]["restartCount"] == 0


def test_starts_pods_and_recovers_while_the_api_is_silent(deployed: Deployment) -> None:
    node, names = "gpu-t4", [f"p{number}" for number in range(6)]
    with deployed.lab.namespace() as namespace:
        for name in names:
            run(deployed, namespace, pod(name, SHARED, "nvidia-smi -L; sleep 1000", node))
        deployed.until(
            lambda: all(
                pod["spec"].get("nodeName")
                for pod in deployed.lab.get("pods", f"-n={namespace}")["items"]
            )
        )
        # Longer than a node's lease.
        with deployed.lab.silent_api(60):
            mine = {f"{namespace}/{name}" for name in names}
            deployed.until(lambda: mine <= devices(deployed, node)[0].keys())
            held, _ = devices(deployed, node)
            kill_agent(deployed, node)
            deployed.until(lambda: not devices(deployed, node)[1])
            deployed.until(lambda: len(devices(deployed, node)[1]) == 8, 60)
            assert devices(deployed, node)[0] == held
        deployed.until(
            lambda: all(phase(deployed, namespace, name) == "Running" for name in names), 60
        )
        pods = deployed.lab.get("pods", f"-n={namespace}")["items"]
        counts = {pod["status"]["containerStatuses"][0]["restartCount"] for pod in pods}
        assert counts == {0}


def test_reports_a_gpu_missing_after_a_reboot_until_it_returns(
    deployed: Deployment,
) -> None:
    lab, name = deployed.lab.description, "gpu-h100"
    node = lab.node(name)
    assert node.gpus is not None
    before = {gpu["uuid"]: gpu["resources"] for gpu in deployed.status(name)["gpus"]}
    assert deployed.offered(name) == {GPU: 2}

    def restart(gpus: int) -> None:
        machine = Machine(lab, replace(node, gpus=replace(node.gpus, count=gpus)))
        machine.kill()
        machine.boot()
        machine.join()

    restart(1)
    try:
        deployed.until(lambda: deployed.status(name)["state"] == "Degraded", 90)
        assert "GPU 1: the GPU is lost" in deployed.status(name)["reason"]
        assert {gpu["uuid"]: gpu["resources"] for gpu in deployed.status(name)["gpus"]} == before
        deployed.until(lambda: deployed.offered(name) == {GPU: 1}, 60)
        assert deployed.lab.get("node", name)["status"]["capacity"][GPU] == "2"
    finally:
        restart(2)
    deployed.until(lambda: deployed.status(name)["state"] == "Ready", 90)
    deployed.until(lambda: deployed.offered(name) == {GPU: 2}, 60)


def test_waits_as_a_second_agent_and_names_the_first(deployed: Deployment) -> None:
    first = deployed.agent(NODE)
    privileged = {"pod-security.kubernetes.io/enforce": "privileged"}
    with deployed.lab.namespace(privileged) as namespace:
        spec = {key: first["spec"][key] for key in ("containers", "volumes", "hostPID", "nodeName")}
        container = dict(spec["containers"][0])
        container["volumeMounts"] = [
            volume_mount
            for volume_mount in container["volumeMounts"]
            if "kube-api" not in volume_mount["name"]
        ]
        del container["livenessProbe"]
        spec["volumes"] = [volume for volume in spec["volumes"] if "kube-api" not in volume["name"]]
        manifest = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "second", "namespace": namespace},
            "spec": {**spec, "containers": [container]},
        }
        deployed.lab.apply(manifest)
        words = f"the Divvy agent of {NAMESPACE}/divvy is already running on this node"
        deployed.until(
            lambda: words in deployed.lab.try_kubectl("logs", "second", f"-n={namespace}").stdout
        )
        second = deployed.lab.get("pod", "second", f"-n={namespace}")
        assert not second["status"]["containerStatuses"][0]["ready"]
        same = deployed.agent(NODE)
        assert json.dumps(same["status"]["containerStatuses"]) == json.dumps(
            first["status"]["containerStatuses"]
        )
        assert deployed.status(NODE)["state"] == "Ready"
