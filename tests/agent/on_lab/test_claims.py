"""GPUs as pods ask for them, on real kubelets with the stock scheduler and simulated GPUs."""

from __future__ import annotations

import json
import random
import re
import shlex
import subprocess
from collections import Counter
from datetime import datetime
from typing import Any

import pytest

from conformance.image import build_and_push
from divvy.model.api_names import FRACTION_BEFORE
from divvy.model.nvidia_claims import (
    GPU_CLASS,
    INSTEAD_OF_INTERVAL,
    INSTEAD_OF_MPS,
    MIG_CLASS,
    MPS,
)
from lab.cluster.paths import REPOSITORY
from lab.cluster.tools import KUBERNETES
from tests.agent.on_lab.claim_watch import watched_claims
from tests.agent.on_lab.unchanged_manifests import (
    claiming,
    listing,
    parameters,
    request,
    slicing,
    template,
)
from tests.agent.tenants import events, kill_agent
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


@pytest.fixture(scope="module")
def others(claims: Deployment) -> Deployment:
    """Deploy what pods of NVIDIA's DRA driver and of KAI need: one line of the stack file."""
    claims.cluster["names"] = {"classes": "nvidia", "fraction": "gpu-fraction"}
    claims.up()
    return claims


def create(claims: Deployment, namespace: str, *objects: dict[str, Any]) -> None:
    whole = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
    claims.lab.kubectl("apply", f"-n={namespace}", "--filename=-", stdin=json.dumps(whole))


def logs(claims: Deployment, namespace: str, pod: str, container: str = "ctr0") -> str:
    return claims.lab.kubectl("logs", pod, f"-n={namespace}", f"--container={container}")


def gpus_in(text: str) -> list[str]:
    """Return the UUIDs of the GPUs that nvidia-smi -L lists."""
    return re.findall(r"UUID: (GPU-[0-9a-f-]+)", text)


def test_serves_nvidias_claims_unchanged(others: Deployment, image: str) -> None:
    profiles = {"one": "1g.5gb", "another": "1g.5gb", "two": "2g.10gb", "three": "3g.20gb"}
    slices = [request(MIG_CLASS, f"profile == '{profiles[name]}'", name) for name in profiles]
    one_gpu = [{"requests": [], "matchAttribute": "gpu.nvidia.com/parentUUID"}]
    resources = {
        "extended": GPU,
        "by-class": f"deviceclass.resource.kubernetes.io/{GPU_CLASS}",
        "mig": "nvidia.com/mig-1g.5gb",
    }
    objects = [
        template("first", request(GPU_CLASS)),
        template("second", request(GPU_CLASS)),
        template("slices", *slices, constraints=one_gpu),
        template("sized", request(GPU_CLASS, capacity={"requests": {"memory": "4Gi"}})),
        template("chosen", request(GPU_CLASS, "index == 1"), config=slicing()),
        claiming("distinct", image, {"name": "first"}, {"name": "second"}),
        claiming("shared", image, {"name": "first"}, {"name": "first"}),
        claiming("sliced", image, *({"name": "slices", "request": name} for name in profiles)),
        claiming("part", image, {"name": "sized"}),
        claiming("chosen", image, {"name": "chosen"}),
        *(listing(name, image, {"limits": {key: "1"}}) for name, key in resources.items()),
    ]
    pods = sum(item["kind"] == "Pod" for item in objects)
    with others.lab.namespace() as namespace:
        create(others, namespace, *objects)
        others.until(lambda: phases(others, namespace) == ["Succeeded"] * pods, 180)
        seen = {
            pod: "".join(logs(others, namespace, pod, f"ctr{index}") for index in range(containers))
            for pod, containers in {"distinct": 2, "shared": 2, "sliced": 4}.items()
        }
        times = {pod: sorted(Counter(gpus_in(text)).values()) for pod, text in seen.items()}
        assert times == {"distinct": [1, 1], "shared": [2], "sliced": [4]}, "containers by GPU"
        devices = re.findall(r"MIG (\S+) +Device +0: \(UUID: (MIG-\S+)\)", seen["sliced"])
        assert [profile for profile, _ in devices] == [*profiles.values()]
        assert len({uuid for _, uuid in devices}) == 4
        assert "0MiB /   4096MiB" in logs(others, namespace, "part")
        assert "L40S" in logs(others, namespace, "chosen"), "no other GPU has the index 1"
        assert logs(others, namespace, "mig").count("MIG 1g.5gb") == 1
        for pod in ("extended", "by-class", "part", "chosen"):
            assert len(gpus_in(logs(others, namespace, pod))) == 1


def test_gives_two_pods_one_of_nvidias_claims(others: Deployment, image: str) -> None:
    claim = template("global", request(GPU_CLASS))
    claim |= {"kind": "ResourceClaim", "spec": claim["spec"]["spec"]}
    pods = [
        claiming(name, image, {"name": "gpu"}, resourceClaimName="global")
        for name in ("first", "second")
    ]
    for pod in pods:
        # A claim that no pod uses any more may be allocated elsewhere.
        pod["spec"]["containers"][0]["command"][-1] += "; sleep infinity"
    with others.lab.namespace() as namespace:
        create(others, namespace, claim, *pods)
        others.until(lambda: phases(others, namespace) == ["Running"] * 2, 120)
        others.until(lambda: all(logs(others, namespace, name) for name in ("first", "second")))
        (first,), (second,) = (
            gpus_in(logs(others, namespace, name)) for name in ("first", "second")
        )
        assert first == second


def test_refuses_other_parameters_for_nvidias_driver_in_the_pods_events(
    others: Deployment, image: str
) -> None:
    refused = {
        "mps": (parameters(sharing={"strategy": MPS}), INSTEAD_OF_MPS),
        "interval": (slicing(timeSlicingConfig={"interval": "Long"}), INSTEAD_OF_INTERVAL),
        "kind": (parameters("VfioDeviceConfig"), "VfioDeviceConfig of resource.nvidia.com/v1beta1"),
    }
    with others.lab.namespace() as namespace:
        for name, (config, _) in refused.items():
            claim = template(name, request(GPU_CLASS), config=config)
            create(others, namespace, claim, claiming(name, image, {"name": name}))

        def sentences() -> str:
            return " ".join(events(others, namespace, "FailedPrepareDynamicResources"))

        others.until(lambda: all(words in sentences() for _, words in refused.values()), 120)
        assert phases(others, namespace) == ["Pending"] * len(refused)


def test_serves_kais_pods_unchanged(others: Deployment, image: str) -> None:
    lab = others.lab
    half = {"gpu-fraction": "0.5"}
    two = {**half, "gpu-fraction-num-devices": "2", "gpu-fraction-container-name": "ctr1"}
    init = listing("init", image, {}, annotations={**half, "gpu-fraction-container-name": "init"})
    init["spec"]["initContainers"] = [{**init["spec"]["containers"][0], "name": "init"}]
    pods = [
        listing("half", image, {}, annotations=half),
        listing("memory", image, {}, annotations={"gpu-memory": "2000"}),
        listing("two", image, {}, {}, annotations=two),
        init,
    ]
    waits = listing("waits", image, {}, annotations=half, schedulerName="kai-scheduler")
    with lab.namespace() as namespace:
        create(others, namespace, waits, *pods)
        others.until(lambda: phases(others, namespace).count("Succeeded") == len(pods), 120)
        assert re.search(r"0MiB / +(20480|23034)MiB", logs(others, namespace, "half"))
        assert "0MiB /   2000MiB" in logs(others, namespace, "memory")
        assert gpus_in(logs(others, namespace, "two")) == []
        assert len(gpus_in(logs(others, namespace, "two", "ctr1"))) == 2
        assert logs(others, namespace, "two", "ctr1").count("0MiB /  23034MiB") == 2
        assert len(gpus_in(logs(others, namespace, "init", "init"))) == 1
        assert gpus_in(logs(others, namespace, "init")) == []
        pod = lab.get("pod", "waits", f"-n={namespace}")
        assert pod["metadata"]["annotations"][FRACTION_BEFORE] == "gpu-fraction=0.5"
        assert pod["spec"]["schedulerName"] == "kai-scheduler"
        assert (pod["status"]["phase"], pod["spec"].get("nodeName")) == ("Pending", None)


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
