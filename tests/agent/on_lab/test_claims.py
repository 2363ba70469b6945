"""GPUs as pods ask for them, on real kubelets with the stock scheduler and simulated GPUs."""

from __future__ import annotations

import random
import re
import shlex
import subprocess
from datetime import datetime
from typing import Any

import pytest

from conformance.image import build_and_push
from lab.cluster.paths import REPOSITORY
from lab.cluster.tools import KUBERNETES
from tests.agent.on_lab.claim_watch import watched_claims
from tests.agent.tenants import kill_agent
from tests.deployment import Deployment
from tests.divvy_command import divvy_command, divvy_environment

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]
NODE, POOL = "gpu-by-size", "sizes"
GPU, MEMORY, CORES = "nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpucores"
L40S_MIB = 46_068


@pytest.fixture(scope="module")
def image(claims: Deployment) -> str:
    return build_and_push(claims.registry, claims.base_image, insecure=True)


def sized(name: str, namespace: str, image: str, limits: dict[str, Any], *command: str) -> Any:
    """Return a pod on the node with shares alone."""
    container = {
        "name": "main",
        "image": image,
        "command": list(command) or ["sleep", "infinity"],
        "resources": {"limits": {key: str(value) for key, value in limits.items()}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "nodeSelector": {"kubernetes.io/hostname": NODE},
            # A kubelet that is killed while it starts a container counts that as a failure.
            "restartPolicy": "OnFailure",
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
        },
    }


def gpus_of(claims: Deployment) -> dict[str, int]:
    """Return the MiB of each GPU of the node, by the name that its devices begin with."""
    slices = claims.lab.get("resourceslices")["items"]
    names = [
        device["name"]
        for resource_slice in slices
        if resource_slice["spec"].get("nodeName") == NODE
        for device in resource_slice["spec"].get("devices", [])
    ]
    return {name[:40]: L40S_MIB for name in names}


def phases(claims: Deployment, namespace: str) -> list[str]:
    pods = claims.lab.get("pods", f"-n={namespace}")["items"]
    return [str(pod["status"].get("phase")) for pod in pods]


def seconds_to_running(pod: dict[str, Any]) -> float:
    (container,) = pod["status"]["containerStatuses"]
    state = container["state"]
    began = (state.get("running") or state["terminated"])["startedAt"]
    created = pod["metadata"]["creationTimestamp"]
    return (datetime.fromisoformat(began) - datetime.fromisoformat(created)).total_seconds()


def test_shares_then_gives_whole_then_cuts_one_gpu_as_pods_change(
    claims: Deployment, image: str
) -> None:
    kubectl = f"{KUBERNETES.bin / 'kubectl'} --kubeconfig={claims.lab.kubeconfig}"
    divvy = claims.folder / "divvy"
    divvy.write_text(f'#!/bin/sh\nexec {shlex.join(divvy_command())} "$@"\n')
    divvy.chmod(0o755)
    completed = subprocess.run(
        [REPOSITORY / "demo/on-demand.sh"],
        cwd=claims.folder,
        env=divvy_environment(
            {
                "KUBECTL": kubectl,
                "DIVVY": str(divvy),
                "STACK": "lab",
                "IMAGE": image,
                "COLUMNS": "200",
            }
        ),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr
    shares, waits, whole, cut, free = completed.stdout.split("\n-- ")
    waits = " ".join(waits.split())
    assert "0MiB /   3000MiB" in shares
    assert "0MiB /   6000MiB" in shares
    assert "default/whole: does not fit" in waits, "its selector keeps it off the free GPUs"
    assert "held by default/share-" in waits
    assert {"default/share-3000", "default/share-6000"} <= set(
        re.findall(r"default/share-\d+", waits)
    )
    assert whole.count("GPU 0: NVIDIA A100-SXM4-40GB") == 1
    assert cut.count("1g.5gb  default/seven-") == 7
    assert "0 pods" in free


def test_serves_a_hami_manifest_unchanged(claims: Deployment, image: str) -> None:
    lab = claims.lab
    limits = {GPU: 2, MEMORY: 3000, CORES: 30}
    with lab.namespace() as namespace:
        script = "nvidia-smi -L; nvidia-smi; echo; echo training; train --seconds=2"
        lab.apply(sized("gpu-pod", namespace, image, limits, "bash", "-c", script))
        claims.until(lambda: phases(claims, namespace) == ["Succeeded"], 120)
        logs = lab.kubectl("logs", "gpu-pod", f"-n={namespace}")
        seen, training = logs.split("\ntraining\n")
        assert seen.count("UUID: GPU-") == 2
        assert seen.count("0MiB /   3000MiB") == 2
        assert "the same again: equal" in training


def test_starts_forty_sizes_at_once_without_the_kubelets_minute(
    claims: Deployment, image: str
) -> None:
    lab = claims.lab
    chosen = random.Random(40)
    # Forty of these are more than half and less than all of two GPUs, whichever GPU takes which.
    sizes = [chosen.randrange(300, 2700) for _ in range(40)]
    claims.cluster["profiles"]["by-size"] = {"claims": {"shares": {"max": 24}}}
    claims.up()
    with lab.namespace() as namespace, watched_claims(lab, gpus_of(claims)) as watch:
        lab.apply(
            *(
                sized(f"share-{index}", namespace, image, {GPU: 1, MEMORY: size})
                for index, size in enumerate(sizes)
            )
        )
        claims.until(lambda: phases(claims, namespace) == ["Running"] * 40, 120)
        pods = lab.get("pods", f"-n={namespace}")["items"]
        claims.until(lambda: sum(watch.sums_mib.values()) == sum(sizes), 10)
        assert watch.wrong == []
        times = sorted(seconds_to_running(pod) for pod in pods)
        print(f"{watch.sums_mib} MiB; {times[20]:.0f} s median, {times[-1]:.0f} s at most")
        assert times[-1] < 60
    claims.until(claims.is_unclaimed, 90)


def test_separates_sixty_pods_of_two_tenants_through_kills(claims: Deployment, image: str) -> None:
    lab = claims.lab
    shares = {"shares": {}, "tenants": ["prod", "dev"]}
    claims.cluster["profiles"]["by-size"] = {"claims": shares}
    claims.up()
    with (
        lab.namespace({"divvy.gpu/tenant": "prod"}) as production,
        lab.namespace({"divvy.gpu/tenant": "dev"}) as development,
        watched_claims(lab, gpus_of(claims)) as watch,
    ):
        both = (production, development)
        lab.apply(
            *(
                sized(f"pod-{index}", namespace, image, {GPU: 1, MEMORY: 2000}, "sleep", "4")
                for index in range(30)
                for namespace in both
            )
        )

        def ended() -> int:
            return sum(phases(claims, name).count("Succeeded") for name in both)

        claims.until(lambda: ended() >= 5, 120)
        kill_agent(claims, NODE)
        claims.until(lambda: ended() >= 20, 120)
        lab.machine(NODE).restart("kubelet")
        claims.until(lambda: ended() == 60, 240)
        assert watch.wrong == []
        assert {tenant for _, tenant in watch.tenants_seen} == {"prod", "dev"}
        print(f"{watch.events} events, {watch.most_shares} shares at most: {watch.tenants_seen}")
