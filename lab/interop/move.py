"""Move a lab from NVIDIA's DRA driver to Divvy and back: make field-move.

The steps are those of docs/coming-from.md. On one node a pod keeps its GPU all the while; on the
other, the same pod runs again after each move, unchanged.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from divvy.stack.file import read_stack
from lab.cluster import lifecycle
from lab.cluster.paths import KUBECONFIG, NAME
from lab.cluster.section import read_lab
from lab.cluster.tools import FIELD_TOOLS, HELM, NVIDIA_DEVICE_PLUGIN, NVIDIA_DRA_DRIVER
from lab.interop import deployment, dra_driver
from lab.interop.configurations import CONFIGURATIONS, DriverConfiguration
from lab.interop.deployment import DRIVER_ROOT, GpuNode, kubectl, until
from lab.setup.parts import build_tool
from lab.setup.steps import Step, run_steps

_STACK = Path(__file__).parent / "stack.yaml"
_DIVVY = Path(sys.executable).with_name("divvy")
_STAYS, _MOVES = "gpu-a100", "gpu-t4"
_OFF_LABELLED = {
    "kubeletPlugin": {
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {
                            "matchExpressions": [
                                {"key": "gpu-sharing", "operator": "NotIn", "values": ["divvy"]}
                            ]
                        }
                    ]
                }
            }
        }
    }
}
_TEMPLATE = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaimTemplate",
    "metadata": {"name": "single-gpu"},
    "spec": {
        "spec": {
            "devices": {
                "requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]
            }
        }
    },
}


def main() -> int:
    """Move there and back; anything that differs from the page ends it."""
    if NAME != "field":
        sys.exit(f"the lab is {NAME}: run it as DIVVY_LAB=field python -m lab.interop.move")
    if not run_steps([Step(f"Go tools: {tool.name}", build_tool(tool)) for tool in FIELD_TOOLS]):
        return 1
    lab = read_lab(read_stack(None, _STACK))
    place = yaml.safe_load(_STACK.read_text())["config"]["divvy:cluster"]["plugin"]["image"]
    try:
        lifecycle.down()
        lifecycle.up(lab, _tell)
        _deploy_dra_driver(place)
        with tempfile.TemporaryDirectory(prefix="divvy-move-") as project:
            _move(Path(project), place)
    finally:
        lifecycle.down()
    return 0


def _deploy_dra_driver(place: Mapping[str, str]) -> None:
    configuration = CONFIGURATIONS["dra-whole"]
    assert isinstance(configuration, DriverConfiguration)
    programs = [tool.bin for tool in (NVIDIA_DEVICE_PLUGIN, NVIDIA_DRA_DRIVER)]
    image = deployment.build_image(place["registry"], place["base"], programs, dra_driver.files())
    nodes = [GpuNode(_STAYS, 2, has_mig=True), GpuNode(_MOVES, 1, has_mig=False)]
    for node in nodes:
        deployment.install_hook(node)
    deployment.prepare(nodes)
    dra_driver.deploy(configuration, image, _OFF_LABELLED)
    _tell("NVIDIA's DRA driver serves both nodes")


def _move(project: Path, place: Mapping[str, Any]) -> None:
    kubectl("apply", "--filename=-", stdin=yaml.safe_dump(_TEMPLATE))
    image = f"{place['registry']}/{place['base'].partition('/')[2]}"
    stays = _start("stays", _STAYS, image)
    before = _start("moves", _MOVES, image)
    _require(before["driver"] == "gpu.nvidia.com", f"NVIDIA's driver serves {_MOVES} at first")
    file = _stack_file(project, place)
    _divvy(project, "up", "-s", "prod", "--yes", "--take-over")
    for mover, driver in (("divvy", "divvy.gpu"), ("", "gpu.nvidia.com"), ("divvy", "divvy.gpu")):
        kubectl("delete", "pod", "moves", "--wait")
        value = f"gpu-sharing={mover}" if mover else "gpu-sharing-"
        kubectl("label", "node", _MOVES, "--overwrite", value)
        _until_only(driver)
        after = _start("moves", _MOVES, image)
        _require(after["driver"] == driver, f"{driver} serves the pod, as it is, on {_MOVES}")
        _require("GPU 0: Tesla T4" in after["smi"], f"its nvidia-smi shows the GPU: {after['smi']}")
        if mover:
            # The other node is in no pool yet.
            _divvy(project, "status", "-s", "prod", ends=2)
            _divvy(project, "verify", "-s", "prod")
        _require(_pod("stays") == stays, f"the pod on {_STAYS} has run on, with its GPU")
    # What Helm would take along with NVIDIA's release is made again.
    kubectl("delete", "deviceclass", "gpu.nvidia.com", "mig.nvidia.com")
    _divvy(project, "up", "-s", "prod", "--yes")
    kubectl("delete", "pod", "moves", "--wait")
    _require(_start("moves", _MOVES, image)["driver"] == "divvy.gpu", "classes are there again")
    _tell(f"all of it held; {file.name} was written by divvy init")


def _stack_file(project: Path, place: Mapping[str, Any]) -> Path:
    """Have `divvy init` write the stack file, and add what the page says, and where images are."""
    _divvy(project, "init", "prod", f"--kubeconfig={KUBECONFIG}")
    file = project / "stacks" / "Pulumi.prod.yaml"
    document = yaml.safe_load(file.read_text())
    cluster = document["config"]["divvy:cluster"]
    _require(cluster.get("names") == {"classes": "nvidia"}, "init names NVIDIA's classes")
    pools = {pool["hardware"]["model"]: pool for pool in cluster["pools"].values()}
    _require({*pools} == {"A100-SXM4-40GB", "T4"}, f"init makes a pool of each: {sorted(pools)}")
    for pool in pools.values():
        pool["select"]["gpu-sharing"] = "divvy"
    cluster["plugin"] = {"image": dict(place)}
    cluster["driver"] = {"root": DRIVER_ROOT}
    file.write_text(yaml.safe_dump(document, sort_keys=False))
    return file


def _start(name: str, node: str, image: str) -> dict[str, str]:
    """Start a pod with a claim on a node; return who serves it, what it is and what it sees."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "nodeSelector": {"kubernetes.io/hostname": node},
            "terminationGracePeriodSeconds": 1,
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "single-gpu"}],
            "containers": [
                {
                    "name": "main",
                    "image": image,
                    "command": ["sleep", "infinity"],
                    "resources": {"claims": [{"name": "gpu"}]},
                }
            ],
        },
    }
    kubectl("apply", "--filename=-", stdin=yaml.safe_dump(pod))
    return until(lambda: _pod(name), f"{name} runs")


def _pod(name: str) -> dict[str, str]:
    """Return a running pod: UID, restarts, its driver and nvidia-smi's list; empty if it waits."""
    pod = json.loads(kubectl("get", "pod", name, "--output=json"))
    status = pod["status"]
    if status.get("phase") != "Running" or not status["containerStatuses"][0]["ready"]:
        return {}
    (statuses,) = status["resourceClaimStatuses"]
    claim = statuses["resourceClaimName"]
    allocated = json.loads(kubectl("get", "resourceclaim", claim, "--output=json"))
    (result,) = allocated["status"]["allocation"]["devices"]["results"]
    return {
        "uid": pod["metadata"]["uid"],
        "restarts": str(status["containerStatuses"][0]["restartCount"]),
        "driver": result["driver"],
        "device": result["device"],
        "smi": kubectl("exec", name, "--", "nvidia-smi", "-L").strip(),
    }


def _until_only(driver: str) -> None:
    """Wait until one driver alone publishes devices of the node that moves."""

    def drivers() -> dict[str, str]:
        slices = json.loads(kubectl("get", "resourceslices", "--output=json"))["items"]
        own = {item["spec"]["driver"] for item in slices if item["spec"]["nodeName"] == _MOVES}
        return {driver: _MOVES} if own == {driver} else {}

    until(drivers, f"{driver} alone serves {_MOVES}")


def _divvy(project: Path, *arguments: str, ends: int = 0) -> None:
    path = f"{HELM.bin}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path}
    done = subprocess.run([str(_DIVVY), *arguments], cwd=project, env=environment, check=False)
    _require(done.returncode == ends, f"divvy {' '.join(arguments)}: exit {done.returncode}")


def _require(is_so: bool, what: str) -> None:
    if not is_so:
        raise deployment.DeploymentFailed(f"not so: {what}")
    _tell(what)


def _tell(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {line}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
