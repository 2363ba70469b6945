"""The agent on real kubelets with the simulated driver: changes of profile, faults, restarts."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import pytest

from conformance.image import build_and_push
from tests.agent.tenants import GPU, NODE, POOL, SHARED, events, kill_agent, phase, pod, run
from tests.deployment import NAMESPACE, Deployment

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300), pytest.mark.usefixtures("original")]
PLANNED = {
    "whole": {GPU: 4},
    "slice-4": {SHARED: 16},
    "cern-mix": {"nvidia.com/mig-2g.10gb": 8, "nvidia.com/mig-1g.5gb": 12},
    "split": {
        "nvidia.com/mig-3g.20gb": 2,
        "nvidia.com/mig-2g.10gb": 2,
        "nvidia.com/mig-1g.5gb": 4,
        SHARED: 6,
        GPU: 1,
    },
}


def test_changes_the_nodes_offer_by_one_line_of_the_stack_file(deployed: Deployment) -> None:
    agent = deployed.agent(NODE)
    for profile in ("whole", "slice-4", "cern-mix", "split"):
        deployed.set_profile(POOL, profile)
        deployed.up()
        deployed.until(lambda: deployed.status(NODE)["profile"] == profile)  # noqa: B023
        deployed.until(lambda: deployed.offered(NODE) == PLANNED[profile], 30)  # noqa: B023
    new_agent = deployed.agent(NODE)
    assert new_agent["metadata"]["uid"] == agent["metadata"]["uid"]
    (before,), (after,) = (pod["status"]["containerStatuses"] for pod in (agent, new_agent))
    assert after["containerID"] == before["containerID"]


def test_prefers_a_label_on_the_node_to_the_file(deployed: Deployment) -> None:
    lab = deployed.lab
    lab.kubectl("label", "node", NODE, "divvy.gpu/profile=slice-4")
    try:
        deployed.until(lambda: deployed.offered(NODE) == PLANNED["slice-4"])
        assert deployed.status(NODE)["source"] == "label:divvy.gpu/profile"
        lab.kubectl("label", "node", NODE, "divvy.gpu/profile=unheard-of", "--overwrite")
        deployed.until(lambda: "unheard-of" in deployed.status(NODE)["reason"])
        assert deployed.offered(NODE) == PLANNED["slice-4"]
    finally:
        lab.kubectl("label", "node", NODE, "divvy.gpu/profile-")
    deployed.until(lambda: deployed.offered(NODE) == PLANNED["split"])


def test_withdraws_every_share_after_an_xid_until_it_is_calm(
    deployed: Deployment,
) -> None:
    # Longer than the kubelet's status period, or the node never shows the gap.
    deployed.cluster["health"] = {"recoverAfter": "12s"}
    deployed.up()
    with deployed.lab.namespace() as namespace:
        run(deployed, namespace, pod("tenant", SHARED))
        deployed.until(lambda: phase(deployed, namespace, "tenant") == "Running")
        simulator = "/run/nvidia/driver/usr/bin/divvy-sim"
        deployed.on_node(NODE, simulator, "fault", "xid", "2", "79")
        deployed.until(lambda: "XID 79" in deployed.status(NODE)["reason"])
        deployed.until(lambda: deployed.offered(NODE).get(SHARED) is None)
        assert phase(deployed, namespace, "tenant") == "Running"
        deployed.until(lambda: deployed.offered(NODE).get(SHARED) == 6, 40)


def test_restores_the_same_instances_after_a_kill(deployed: Deployment) -> None:
    before = deployed.status(NODE)["gpus"]
    restarts = deployed.agent(NODE)["status"]["containerStatuses"][0]["restartCount"]
    kill_agent(deployed, NODE)
    deployed.until(
        lambda: (
            deployed.agent(NODE)["status"]["containerStatuses"][0]["restartCount"] == restarts + 1
        )
    )
    deployed.until(lambda: deployed.offered(NODE) == PLANNED["split"], 40)
    assert deployed.status(NODE)["gpus"] == before


def test_follows_the_driver_to_another_version(deployed: Deployment) -> None:
    simulator = "/run/nvidia/driver/usr/bin/divvy-sim"
    with deployed.lab.namespace() as namespace:
        run(deployed, namespace, pod("tenant", SHARED))
        deployed.until(lambda: phase(deployed, namespace, "tenant") == "Running")
        deployed.on_node(NODE, simulator, "driver", "570.133.20")
        try:
            deployed.until(lambda: deployed.status(NODE)["driver"] == "570.133.20")
            deployed.until(lambda: deployed.offered(NODE) == PLANNED["split"], 40)
            assert phase(deployed, namespace, "tenant") == "Running"
        finally:
            deployed.on_node(NODE, simulator, "driver", "550.163.01")
            deployed.until(lambda: deployed.status(NODE)["driver"] == "550.163.01")


def test_offers_device_files_and_gives_them_as_files(deployed: Deployment) -> None:
    deployed.on_node(NODE, "mknod", "-m", "666", "/dev/divvy-test0", "c", "1", "3")
    try:
        made_up = {"resource": "divvy.test/null", "paths": ["/dev/divvy-test*"], "count": 2}
        deployed.cluster["devices"] = [made_up]
        deployed.up()
        deployed.until(lambda: allocatable(deployed, "divvy.test/null") == "2", 60)
        with deployed.lab.namespace() as namespace:
            script = "ls /dev/divvy-test0 && echo gone > /dev/divvy-test0 && exit 0"
            run(deployed, namespace, pod("user", "divvy.test/null", script))
            deployed.until(lambda: phase(deployed, namespace, "user") == "Succeeded")
    finally:
        deployed.on_node(NODE, "rm", "/dev/divvy-test0")


def allocatable(deployed: Deployment, resource: str) -> str | None:
    quantity = deployed.lab.get("node", NODE)["status"]["allocatable"].get(resource)
    return None if quantity is None else str(quantity)


def test_steps_back_beside_another_device_plugin(deployed: Deployment) -> None:
    script = (
        "import socket, time; s = socket.socket(socket.AF_UNIX); "
        "s.bind('/var/lib/kubelet/device-plugins/nvidia-gpu.sock'); s.listen(); time.sleep(60)"
    )
    command = deployed.lab.machine(NODE).enter_command((sys.executable, "-c", script))
    with subprocess.Popen(command) as other:
        try:
            deployed.until(lambda: "NVIDIA's device plugin" in deployed.status(NODE)["reason"])
            deployed.until(lambda: deployed.offered(NODE) == {})
        finally:
            other.kill()
            deployed.on_node(NODE, "rm", "/var/lib/kubelet/device-plugins/nvidia-gpu.sock")
    deployed.until(lambda: deployed.offered(NODE) == PLANNED["split"], 40)


def test_warns_a_pod_above_its_memory_limit(deployed: Deployment) -> None:
    image = build_and_push(deployed.registry, deployed.base_image, insecure=True)
    with deployed.lab.namespace() as namespace:
        manifest = pod("hog", SHARED)
        manifest["spec"]["containers"][0].update(
            image=image, command=["mem-hog", "--mib", "7000", "--hold", "40"]
        )
        run(deployed, namespace, manifest)
        over = "GpuMemoryOverLimit"
        deployed.until(lambda: bool(events(deployed, namespace, over)), 60)
        (message,) = events(deployed, namespace, over)
        assert re.fullmatch(r"container main uses 7\d{3} MiB of GPU-.* is 6826 MiB .*", message)
        assert phase(deployed, namespace, "hog") == "Running"


def test_ends_only_the_pod_above_an_enforced_limit(
    deployed: Deployment,
) -> None:
    image = build_and_push(deployed.registry, deployed.base_image, insecure=True)
    rules = deployed.cluster["profiles"]["split"]
    rules[1]["timeSlicing"]["memoryLimit"] = {"limit": "auto", "action": "enforce"}
    deployed.up()
    with deployed.lab.namespace() as namespace:
        manifest = pod("pair", SHARED)
        (first,) = manifest["spec"]["containers"]
        manifest["spec"]["containers"] = [
            {**first, "image": image, "name": name, "command": ["mem-hog", "--mib", mib, *hold]}
            for hold in [("--hold", "1000")]
            for name, mib in (("over", "7000"), ("under", "100"))
        ]
        run(deployed, namespace, manifest)

        def states() -> dict[str, Any]:
            status = deployed.lab.get("pod", "pair", f"-n={namespace}")["status"]
            return {
                container_status["name"]: container_status["state"]
                for container_status in status.get("containerStatuses", ())
            }

        deployed.until(lambda: "terminated" in states().get("over", {}), 60)
        # It has no handler for SIGTERM, and as the first process of its container ignores it.
        assert states()["over"]["terminated"]["exitCode"] == 137
        assert "running" in states()["under"]
        (message,) = events(deployed, namespace, "GpuMemoryLimitEnforced")
        assert re.match(r"container over uses 7\d{3} MiB of GPU-.* is 6826 MiB", message)


def test_gives_containers_the_driver_and_reports_one_too_old(deployed: Deployment) -> None:
    with deployed.lab.namespace() as namespace:
        script = "ldconfig -p | grep -q libcuda.so.1 && nvidia-smi -L && exit 0; exit 1"
        fit, late = pod("fit", SHARED, script), pod("late", SHARED)
        for manifest, needed in ((fit, "12.8"), (late, "13.0")):
            variable = {"name": "NVIDIA_REQUIRE_CUDA", "value": f"cuda>={needed}"}
            manifest["spec"]["containers"][0]["env"] = [variable]
            manifest["spec"]["containers"][0]["command"] = ["/bin/sh", "-c", script]
            run(deployed, namespace, manifest)
        deployed.until(lambda: phase(deployed, namespace, "fit") == "Succeeded")
        deployed.until(lambda: phase(deployed, namespace, "late") == "Failed")
        reason = "NVIDIA_REQUIRE_CUDA=cuda>=13.0, but driver 550.163.01 supports CUDA 12.4"
        assert any(reason in event for event in events(deployed, namespace, "Failed"))


def test_gives_devices_and_libraries_on_a_node_without_cdi(
    deployed: Deployment,
) -> None:
    node, drop_in = "gpu-t4", "/etc/containerd/conf.d/90-divvy.toml"
    root = deployed.on_node(node, "cat", "/etc/containerd/config.toml")
    assert "enable_cdi = false" in root
    kept = f"{drop_in}.kept"
    deployed.on_node(node, "mv", drop_in, kept)
    try:
        deployed.divvy("lab", "restart", node, "containerd")
        # Any change of the node's object lets the agent look at once.
        deployed.lab.kubectl("label", "node", node, "divvy-test=look")
        log = ("logs", deployed.agent(node)["metadata"]["name"], f"-n={NAMESPACE}", "--tail=3")
        deployed.until(lambda: "given without CDI" in deployed.lab.kubectl(*log))
        with deployed.lab.namespace() as namespace:
            cuda = "import ctypes; print(ctypes.CDLL('libcuda.so.1').cuInit(0))"
            manifest = pod("user", SHARED, node=node)
            script = f'ls /dev | grep -c "nvidia[0-9]"; nvidia-smi -L; python3 -c "{cuda}"'
            manifest["spec"]["containers"][0]["command"] = ["/bin/sh", "-c", script]
            run(deployed, namespace, manifest)
            deployed.until(lambda: phase(deployed, namespace, "user") == "Succeeded")
            lines = deployed.lab.kubectl("logs", "user", f"-n={namespace}").splitlines()
        assert (lines[0], lines[-1]) == ("1", "0")
        assert "Tesla T4" in lines[1]
    finally:
        deployed.on_node(node, "mv", kept, drop_in)
        deployed.divvy("lab", "restart", node, "containerd")
        deployed.lab.kubectl("label", "node", node, "divvy-test-")
    deployed.until(lambda: "by CDI names" in deployed.lab.kubectl(*log))
