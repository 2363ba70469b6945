"""Move a lab from one of NVIDIA's programs to Divvy and back: make field-move.

The steps are those of docs/coming-from.md, from the DRA driver and from the device plugin. On one
node a pod keeps its GPU all the while; on the other, the same pod runs again after each move,
unchanged.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from divvy.stack.file import read_stack
from lab.cluster import lifecycle
from lab.cluster.paths import KUBECONFIG, NAME, REPOSITORY
from lab.cluster.section import read_lab
from lab.cluster.tools import FIELD_TOOLS, HELM, NVIDIA_DEVICE_PLUGIN, NVIDIA_DRA_DRIVER
from lab.interop import deployment, device_plugin, dra_driver
from lab.interop.configurations import CONFIGURATIONS, DriverConfiguration, PluginConfiguration
from lab.interop.deployment import DRIVER_ROOT, GpuNode, kubectl, until
from lab.setup.parts import build_tool
from lab.setup.steps import Step, run_steps

_STACK = Path(__file__).parent / "stack.yaml"
_DIVVY = Path(sys.executable).with_name("divvy")
_PAGE = REPOSITORY / "docs/coming-from.md"
_STAYS, _MOVES = "gpu-a100", "gpu-t4"
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


@dataclass(frozen=True)
class Origin(ABC):
    """What a lab is moved from: the heading of its steps in the page, and how it serves pods."""

    heading: str
    resources: Mapping[str, Any]
    """The container's; what else the pod has is in ``claims``."""
    claims: tuple[Mapping[str, str], ...] = ()
    up: tuple[str, ...] = ()
    """Options of `divvy up`."""

    @abstractmethod
    def deploy(self, image: str, nodes: list[GpuNode], off_labelled: Mapping[str, Any]) -> None:
        """Deploy NVIDIA's program with its chart, and what the page adds to its values."""

    @abstractmethod
    def servers(self, node: str) -> set[str]:
        """Return who serves a node: "divvy", "nvidia" or both."""

    @abstractmethod
    def check(self, cluster: Mapping[str, Any]) -> None:
        """Check what `divvy init` made of it."""

    @abstractmethod
    def leave(self, project: Path) -> str:
        """Do the page's last step; return who serves the nodes from then on."""

    @property
    def off_labelled(self) -> dict[str, Any]:
        """Return the page's off-labelled-nodes.yaml."""
        _, _, steps = _PAGE.read_text().partition(self.heading)
        block = re.search(r"```yaml\n# off-labelled-nodes.yaml\n(.*?)```", steps, re.DOTALL)
        assert block is not None
        return dict(yaml.safe_load(block[1]))


class _DraDriver(Origin):
    def deploy(self, image: str, nodes: list[GpuNode], off_labelled: Mapping[str, Any]) -> None:
        configuration = CONFIGURATIONS["dra-whole"]
        assert isinstance(configuration, DriverConfiguration)
        # The page's first condition is on a label that feature discovery writes.
        kubectl("label", "node", *(node.name for node in nodes), "nvidia.com/gpu.present=true")
        dra_driver.deploy(configuration, image, off_labelled)
        kubectl("apply", "--filename=-", stdin=yaml.safe_dump(_TEMPLATE))

    def servers(self, node: str) -> set[str]:
        slices = json.loads(kubectl("get", "resourceslices", "--output=json"))["items"]
        drivers = {item["spec"]["driver"] for item in slices if item["spec"]["nodeName"] == node}
        return {"divvy" if driver == "divvy.gpu" else "nvidia" for driver in drivers}

    def check(self, cluster: Mapping[str, Any]) -> None:
        _require(cluster.get("names") == {"classes": "nvidia"}, "init names NVIDIA's classes")

    def leave(self, project: Path) -> str:
        # What Helm would take along with NVIDIA's release is made again.
        kubectl("delete", "deviceclass", "gpu.nvidia.com", "mig.nvidia.com")
        _divvy(project, "up", "-s", "prod", "--yes")
        return "divvy"


class _DevicePlugin(Origin):
    def deploy(self, image: str, nodes: list[GpuNode], off_labelled: Mapping[str, Any]) -> None:
        configuration = CONFIGURATIONS["time-slicing"]
        assert isinstance(configuration, PluginConfiguration)
        device_plugin.deploy(configuration, image, nodes, off_labelled)
        _require("replicas: 4" in _run_of_page("get configmap nvdp-"), "the page names its files")

    def servers(self, node: str) -> set[str]:
        """Return whose pods are there and ready, once the node has devices."""
        known = {"divvy-system": "divvy", device_plugin.NAMESPACE: "nvidia"}
        on_node = f"--field-selector=spec.nodeName={node}"
        listed = json.loads(kubectl("get", "pods", "-A", on_node, "--output=json"))["items"]
        pods = [pod for pod in listed if pod["metadata"]["namespace"] in known]
        live = json.loads(kubectl("get", "node", node, "--output=json"))
        has_devices = int(live["status"]["allocatable"].get("nvidia.com/gpu", 0)) > 0
        if not has_devices or not all(map(_is_ready, pods)):
            return set()
        return {known[pod["metadata"]["namespace"]] for pod in pods}

    def check(self, cluster: Mapping[str, Any]) -> None:
        (profile,) = cluster["profiles"].values()
        sharing = profile["timeSlicing"]
        is_same = (sharing["replicas"], sharing["renameByDefault"]) == (4, False)
        _require(is_same, f"init writes what the plugin offers, by its name: {profile}")

    def leave(self, project: Path) -> str:
        _divvy(project, "destroy", "-s", "prod", "--yes")
        kubectl("label", "node", _MOVES, "gpu-sharing-")
        _run_of_page("rollout status")
        return "nvidia"


def _run_of_page(words: str) -> str:
    """Run the page's kubectl with these words; return what it printed."""
    command = re.search(rf"^kubectl (.*{words}[^>\n]*)", _PAGE.read_text(), re.MULTILINE)
    assert command is not None
    return kubectl(*command[1].split())


def _is_ready(pod: Mapping[str, Any]) -> bool:
    statuses = pod["status"].get("containerStatuses") or ()
    return bool(statuses) and all(status["ready"] for status in statuses)


_CLAIM = {"name": "gpu", "resourceClaimTemplateName": "single-gpu"}
ORIGINS: dict[str, Origin] = {
    "dra": _DraDriver(
        "### Node by node, from NVIDIA's driver",
        {"claims": [{"name": "gpu"}]},
        (_CLAIM,),
        ("--take-over",),
    ),
    "plugin": _DevicePlugin("### Node by node\n", {"limits": {"nvidia.com/gpu": 1}}),
}


def main() -> int:
    """Move there and back; anything that differs from the page ends it."""
    if NAME != "field":
        sys.exit(f"the lab is {NAME}: run it as DIVVY_LAB=field python -m lab.interop.move")
    names = sys.argv[1:] or list(ORIGINS)
    if unknown := set(names) - ORIGINS.keys():
        sys.exit(f"unknown: {', '.join(sorted(unknown))}; known are {', '.join(ORIGINS)}")
    if not run_steps([Step(f"Go tools: {tool.name}", build_tool(tool)) for tool in FIELD_TOOLS]):
        return 1
    lab = read_lab(read_stack(None, _STACK))
    place = yaml.safe_load(_STACK.read_text())["config"]["divvy:cluster"]["plugin"]["image"]
    try:
        for name in names:
            lifecycle.down()
            lifecycle.up(lab, _tell)
            _deploy(ORIGINS[name], place)
            _tell(f"NVIDIA's program serves both nodes: {name}")
            with tempfile.TemporaryDirectory(prefix="divvy-move-") as project:
                _move(ORIGINS[name], Path(project), place)
    finally:
        lifecycle.down()
    return 0


def _deploy(origin: Origin, place: Mapping[str, str]) -> None:
    programs = [tool.bin for tool in (NVIDIA_DEVICE_PLUGIN, NVIDIA_DRA_DRIVER)]
    image = deployment.build_image(place["registry"], place["base"], programs, dra_driver.files())
    nodes = [GpuNode(_STAYS, 2, has_mig=True), GpuNode(_MOVES, 1, has_mig=False)]
    for node in nodes:
        deployment.install_hook(node)
    deployment.prepare(nodes)
    origin.deploy(image, nodes, origin.off_labelled)


def _move(origin: Origin, project: Path, place: Mapping[str, Any]) -> None:
    image = f"{place['registry']}/{place['base'].partition('/')[2]}"
    _until_only(origin, "nvidia")
    stays = _start(origin, "stays", _STAYS, image)
    _start(origin, "moves", _MOVES, image)
    file = _stack_file(origin, project, place)
    _divvy(project, "up", "-s", "prod", "--yes", *origin.up)
    for server in ("divvy", "nvidia", "divvy"):
        kubectl("delete", "pod", "moves", "--wait")
        value = "gpu-sharing=divvy" if server == "divvy" else "gpu-sharing-"
        kubectl("label", "node", _MOVES, "--overwrite", value)
        _serves(origin, server, image)
        if server == "divvy":
            # The other node is in no pool yet.
            _divvy(project, "status", "-s", "prod", "--wait", ends=2)
            _divvy(project, "verify", "-s", "prod")
        _require(_pod("stays") == stays, f"the pod on {_STAYS} has run on, with its GPU")
    kubectl("delete", "pod", "moves", "--wait")
    _serves(origin, origin.leave(project), image)
    _require(_pod("stays") == stays, f"the pod on {_STAYS} has run on to the end")
    _tell(f"all of it held; {file.name} was written by divvy init")


def _serves(origin: Origin, server: str, image: str) -> None:
    _until_only(origin, server)
    smi = _start(origin, "moves", _MOVES, image)["smi"]
    _require("GPU 0: Tesla T4" in smi, f"{server} serves the pod, as it is, on {_MOVES}: {smi}")


def _stack_file(origin: Origin, project: Path, place: Mapping[str, Any]) -> Path:
    """Have `divvy init` write the stack file, and add what the page says, and where images are."""
    _divvy(project, "init", "prod", f"--kubeconfig={KUBECONFIG}")
    file = project / "stacks" / "Pulumi.prod.yaml"
    document = yaml.safe_load(file.read_text())
    cluster = document["config"]["divvy:cluster"]
    origin.check(cluster)
    pools = {pool["hardware"]["model"]: pool for pool in cluster["pools"].values()}
    _require({*pools} == {"A100-SXM4-40GB", "T4"}, f"init makes a pool of each: {sorted(pools)}")
    for pool in pools.values():
        pool["select"]["gpu-sharing"] = "divvy"
    cluster["plugin"] = {"image": dict(place)}
    cluster["driver"] = {"root": DRIVER_ROOT}
    file.write_text(yaml.safe_dump(document, sort_keys=False))
    return file


def _start(origin: Origin, name: str, node: str, image: str) -> dict[str, str]:
    """Start a pod with a GPU on a node; return who it is and what it sees."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "nodeSelector": {"kubernetes.io/hostname": node},
            "terminationGracePeriodSeconds": 1,
            "resourceClaims": list(origin.claims),
            "containers": [
                {
                    "name": "main",
                    "image": image,
                    "command": ["sleep", "infinity"],
                    "resources": dict(origin.resources),
                }
            ],
        },
    }
    kubectl("apply", "--filename=-", stdin=yaml.safe_dump(pod))
    return until(lambda: _pod(name), f"{name} runs")


def _pod(name: str) -> dict[str, str]:
    """Return a running pod: UID, restarts and nvidia-smi's list; empty if it waits."""
    pod = json.loads(kubectl("get", "pod", name, "--output=json"))
    status = pod["status"]
    if status.get("phase") != "Running" or not status["containerStatuses"][0]["ready"]:
        return {}
    return {
        "uid": pod["metadata"]["uid"],
        "restarts": str(status["containerStatuses"][0]["restartCount"]),
        "smi": kubectl("exec", name, "--", "nvidia-smi", "-L").strip(),
    }


def _until_only(origin: Origin, server: str) -> None:
    """Wait until one of the two alone serves the node that moves."""

    def served() -> dict[str, str]:
        return {server: _MOVES} if origin.servers(_MOVES) == {server} else {}

    until(served, f"{server} alone serves {_MOVES}")


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
