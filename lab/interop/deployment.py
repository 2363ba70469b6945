"""What every implementation needs of the lab: its nodes, an image of its programs, its chart."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from conformance.cluster.slices import offered_devices
from conformance.implementation import Implementation
from divvy.image.build import push_context
from lab.cluster.lifecycle import running_machine
from lab.cluster.paths import KUBECONFIG
from lab.cluster.tools import HELM, KUBERNETES, NVIDIA_CONTAINER_TOOLKIT, Tool

DRIVER_ROOT = "/run/nvidia/driver"
HOOK = "/usr/bin/nvidia-cdi-hook"
_PREFIX = "nvidia.com/"
# NFD labels nodes with a PCI device of NVIDIA's so, and NVIDIA's charts select them.
_PRESENT = "feature.node.kubernetes.io/pci-10de.present=true"
_READY_SECONDS = 120.0
_IMAGE = Path(__file__).parent / "image"


class DeploymentFailed(Exception):
    """A program that deploys failed, or the nodes never advertised what they should."""


@dataclass(frozen=True)
class GpuNode:
    """A node of the lab with GPUs."""

    name: str
    gpus: int
    has_mig: bool


def build_image(
    registry: str, base: str, programs: Sequence[Path], more: Mapping[str, Path]
) -> str:
    """Build the image of NVIDIA's programs and push it; return the reference by digest.

    ``programs`` are folders of commands; ``more`` are further files and folders, by their place.
    """
    with tempfile.TemporaryDirectory(prefix="divvy-field-") as scratch:
        context = Path(scratch)
        shutil.copytree(_IMAGE, context, dirs_exist_ok=True)
        for folder in programs:
            shutil.copytree(folder, context / "programs", dirs_exist_ok=True)
        for place, source in more.items():
            target = context / "files" / place.removeprefix("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            copy = shutil.copytree if source.is_dir() else shutil.copyfile
            copy(source, target)
        return push_context(context, registry, "nvidia/programs", base, insecure=True)


def install_hook(node: GpuNode) -> None:
    """Copy the container toolkit's hook to where the CDI specification names it on the node."""
    on_node(node, "cp", str(NVIDIA_CONTAINER_TOOLKIT.bin / "nvidia-cdi-hook"), HOOK)


def partition(node: GpuNode, layout: Mapping[str, int], *, mode: bool) -> None:
    """Give every GPU of a node these MIG devices, and no others, and MIG mode or not."""
    if not node.has_mig:
        return
    # Without an instance, each of these has nothing to do and says so.
    for command in (("mig", "-dci"), ("mig", "-dgi")):
        on_node(node, "nvidia-smi", *command, check=False)
    on_node(node, "nvidia-smi", "-mig", "1" if mode else "0")
    if layout:
        # The largest first: each then finds its place.
        profiles = sorted(layout, key=lambda profile: -int(profile.partition("g")[0]))
        listed = ",".join(profile for profile in profiles for _ in range(layout[profile]))
        on_node(node, "nvidia-smi", "mig", "-cgi", listed, "-C")


def apply_chart(
    release: str,
    chart: Path,
    namespace: str,
    values: Mapping[str, Any],
    change: Callable[[dict[str, Any]], None] | None = None,
) -> None:
    """Apply a chart's objects, each after a change, and wait until its DaemonSets are there."""
    kubectl("create", "namespace", namespace)
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        yaml.safe_dump(dict(values), file)
        file.flush()
        helm = [str(HELM.bin / "helm"), "template", release, str(chart)]
        helm += ["--namespace", namespace, "--values", file.name]
        rendered = run([*helm, "--api-versions", "resource.k8s.io/v1"])
    objects = [document for document in yaml.safe_load_all(rendered) if document]
    if change is not None:
        for document in objects:
            change(document)
    kubectl("apply", f"--namespace={namespace}", "--filename=-", stdin=yaml.safe_dump_all(objects))
    for kind in (document for document in objects if document["kind"] == "DaemonSet"):
        name = f"daemonset/{kind['metadata']['name']}"
        kubectl("rollout", "status", name, f"--namespace={namespace}", "--timeout=120s")


def prepare(nodes: Sequence[GpuNode]) -> None:
    """Label the nodes as Node Feature Discovery would."""
    kubectl("label", "node", "--overwrite", *(node.name for node in nodes), _PRESENT)


def remove(namespaces: Sequence[str], nodes: Sequence[GpuNode]) -> None:
    """Remove what was deployed, and what came of it on nodes and in the API."""
    kubectl("delete", "namespace", *namespaces, "--ignore-not-found")
    # Without their driver nothing publishes them again.
    kubectl("delete", "deviceclasses,resourceslices", "--all")
    for node in nodes:
        live = json.loads(kubectl("get", "node", node.name, "--output=json"))
        labels = [f"{name}-" for name in live["metadata"]["labels"] if name.startswith(_PREFIX)]
        if labels:
            kubectl("label", "node", node.name, *labels)


def await_devices(implementation: Implementation, wanted: Mapping[str, Mapping[str, int]]) -> None:
    """Wait until the nodes have as many devices as they should; the checks judge what comes."""
    deadline = time.monotonic() + _READY_SECONDS
    while time.monotonic() < deadline and _advertised(implementation, wanted) != wanted:
        time.sleep(1)


def module_folder(tool: Tool, module: str) -> Path:
    """Return the folder of a module that a tool is built from."""
    listed = run(["go", "list", "-m", "-f", "{{.Dir}}", module], folder=tool.module)
    return Path(listed.strip())


def on_node(node: GpuNode, *command: str, check: bool = True) -> str:
    """Run a command on a node of the lab and return what it printed."""
    return run(running_machine(node.name).enter_command(command), check=check)


def kubectl(*arguments: str, stdin: str | None = None) -> str:
    """Run kubectl on the lab and return what it printed."""
    command = [str(KUBERNETES.bin / "kubectl"), f"--kubeconfig={KUBECONFIG}", *arguments]
    return run(command, stdin=stdin)


def run(
    command: Sequence[str],
    *,
    stdin: str | None = None,
    folder: Path | None = None,
    check: bool = True,
) -> str:
    """Run a program and return what it printed; raises DeploymentFailed with its last words."""
    done = subprocess.run(
        command, input=stdin, cwd=folder, capture_output=True, text=True, check=False
    )
    if check and done.returncode:
        words = (done.stderr or done.stdout).strip().splitlines()[-5:]
        raise DeploymentFailed(f"{' '.join(command)}: {' / '.join(words)}")
    return done.stdout


def until(answer: Callable[[], dict[str, str]], what: str) -> dict[str, str]:
    """Return an answer that is not empty; raises DeploymentFailed if none comes."""
    deadline = time.monotonic() + _READY_SECONDS
    while not (given := answer()):
        if time.monotonic() > deadline:
            raise DeploymentFailed(f"not within {_READY_SECONDS:.0f} s: {what}")
        time.sleep(1)
    return given


def _advertised(
    implementation: Implementation, wanted: Mapping[str, Mapping[str, int]]
) -> dict[str, dict[str, int]]:
    driver = implementation.dra_driver
    if driver is not None:
        slices, classes = (
            json.loads(kubectl("get", kind, "--output=json"))["items"]
            for kind in ("resourceslices", "deviceclasses")
        )
        return {node: dict(offered_devices(slices, classes, driver, node)) for node in wanted}
    live = json.loads(kubectl("get", "nodes", "--output=json"))["items"]
    return {
        node["metadata"]["name"]: {
            resource: int(count)
            for resource, count in node["status"]["allocatable"].items()
            if resource.startswith(_PREFIX) and int(count)
        }
        for node in live
        if node["metadata"]["name"] in wanted
    }
