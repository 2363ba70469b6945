"""NVIDIA's device plugin and feature discovery on the lab, by the chart of their own module."""

from __future__ import annotations

import json
import shutil
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from conformance.implementation import NVIDIA_DEVICE_PLUGIN
from divvy.image.build import push_context
from divvy.lab.lifecycle import running_machine
from divvy.lab.paths import KUBECONFIG
from divvy.lab.tools import (
    HELM,
    KUBERNETES,
    NVIDIA_CONTAINER_TOOLKIT,
)
from divvy.lab.tools import NVIDIA_DEVICE_PLUGIN as PROGRAMS
from field.configurations import Configuration

NAMESPACE = str(NVIDIA_DEVICE_PLUGIN.namespace)
_RELEASE = "nvdp"
_MODULE = "github.com/NVIDIA/k8s-device-plugin"
_DRIVER_ROOT = "/run/nvidia/driver"
_HOOK = "/usr/bin/nvidia-cdi-hook"
_PREFIX = "nvidia.com/"
# NFD labels nodes with a PCI device of NVIDIA's so, and the chart of the plugin selects them.
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


def build_image(registry: str, base: str) -> str:
    """Build the image of NVIDIA's programs and push it; return the reference by digest."""
    with tempfile.TemporaryDirectory(prefix="divvy-field-") as scratch:
        context = Path(scratch)
        shutil.copytree(_IMAGE, context, dirs_exist_ok=True)
        shutil.copytree(PROGRAMS.bin, context / "programs")
        return push_context(context, registry, "nvidia/k8s-device-plugin", base, insecure=True)


def install_hook(node: GpuNode) -> None:
    """Copy the container toolkit's hook to where the CDI specification names it on the node."""
    on_node(node, "cp", str(NVIDIA_CONTAINER_TOOLKIT.bin / "nvidia-cdi-hook"), _HOOK)


def partition(node: GpuNode, layout: Mapping[str, int]) -> None:
    """Give every GPU of a node these MIG devices, and no others; {} leaves MIG mode."""
    if not node.has_mig:
        return
    # Without an instance, each of these has nothing to do and says so.
    for command in (("mig", "-dci"), ("mig", "-dgi")):
        on_node(node, "nvidia-smi", *command, check=False)
    on_node(node, "nvidia-smi", "-mig", "1" if layout else "0")
    if layout:
        # The largest first: each then finds its place.
        profiles = sorted(layout, key=lambda profile: -int(profile.partition("g")[0]))
        listed = ",".join(profile for profile in profiles for _ in range(layout[profile]))
        on_node(node, "nvidia-smi", "mig", "-cgi", listed, "-C")


def deploy(configuration: Configuration, image: str, nodes: Sequence[GpuNode]) -> None:
    """Deploy one configuration and wait until feature discovery has described the nodes."""
    kubectl("create", "namespace", NAMESPACE)
    kubectl("label", "node", "--overwrite", *(node.name for node in nodes), _PRESENT)
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as values:
        yaml.safe_dump(chart_values(configuration, image), values)
        values.flush()
        helm = [str(HELM.bin / "helm"), "template", _RELEASE, str(chart())]
        rendered = run([*helm, "--namespace", NAMESPACE, "--values", values.name])
    objects = [document for document in yaml.safe_load_all(rendered) if document]
    for document in objects:
        give_driver(document)
    kubectl("apply", "--filename=-", stdin=_definitions())
    kubectl("wait", "--for=condition=Established", "crd/nodefeatures.nfd.k8s-sigs.io")
    kubectl("apply", f"--namespace={NAMESPACE}", "--filename=-", stdin=yaml.safe_dump_all(objects))
    for kind in (document for document in objects if document["kind"] == "DaemonSet"):
        name = f"daemonset/{kind['metadata']['name']}"
        kubectl("rollout", "status", name, f"--namespace={NAMESPACE}", "--timeout=120s")
    for node in nodes:
        _label(node)


def remove(nodes: Sequence[GpuNode]) -> None:
    """Remove what was deployed, and the labels that came of it."""
    kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found")
    for node in nodes:
        live = json.loads(kubectl("get", "node", node.name, "--output=json"))
        labels = [f"{name}-" for name in live["metadata"]["labels"] if name.startswith(_PREFIX)]
        if labels:
            kubectl("label", "node", node.name, *labels)


def await_devices(wanted: Mapping[str, Mapping[str, int]]) -> None:
    """Wait until the nodes have as many devices as they should; the checks judge what comes."""
    deadline = time.monotonic() + _READY_SECONDS
    while time.monotonic() < deadline and _advertised(wanted) != wanted:
        time.sleep(1)


def chart() -> Path:
    """Return the folder of the chart in the module of NVIDIA's plugin."""
    listed = run(["go", "list", "-m", "-f", "{{.Dir}}", _MODULE], folder=PROGRAMS.module)
    return Path(listed.strip()) / "deployments/helm/nvidia-device-plugin"


def chart_values(configuration: Configuration, image: str) -> dict[str, Any]:
    """Return the values of the chart; NFD, which the lab does not have, is left out."""
    repository, _, digest = image.rpartition(":")
    return {
        "image": {"repository": repository, "tag": digest},
        "config": {"map": {configuration.name: yaml.safe_dump(configuration.plugin_file)}},
        "nvidiaDriverRoot": _DRIVER_ROOT,
        "nvidiaDevRoot": _DRIVER_ROOT,
        "deviceListStrategy": "cdi-cri",
        "cdi": {"nvidiaHookPath": _HOOK},
        # The start of the image shows the simulated driver's kernel files.
        "securityContext": {"privileged": True},
        "gfd": {"enabled": True},
        "nfd": {"enabled": False},
    }


def give_driver(document: dict[str, Any]) -> None:
    """Mount the driver where the chart counts on NVIDIA's runtime, which the lab does not have.

    The chart has the volume for feature discovery, and mounts it nowhere.
    """
    if document["kind"] != "DaemonSet":
        return
    mount = {"name": "driver-root", "mountPath": "/driver-root", "readOnly": True}
    for container in document["spec"]["template"]["spec"]["containers"]:
        if container["name"] == "gpu-feature-discovery-ctr":
            container["volumeMounts"].append(mount)


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


def _definitions() -> str:
    """Return NFD's custom resources, from the chart of NFD in that of the plugin."""
    archive = next((chart() / "charts").glob("node-feature-discovery-chart-*.tgz"))
    with tarfile.open(archive) as packed:
        member = packed.extractfile("node-feature-discovery/crds/nfd-api-crds.yaml")
        assert member is not None
        return member.read().decode()


def _label(node: GpuNode) -> None:
    """Put the labels of feature discovery on a node, as NFD does with its NodeFeature."""
    name = f"nodefeatures.nfd.k8s-sigs.io/nvidia-features-for-{node.name}"

    def features() -> dict[str, str]:
        listed = ["get", name, f"--namespace={NAMESPACE}", "--ignore-not-found", "--output=json"]
        text = kubectl(*listed)
        return dict(json.loads(text)["spec"].get("labels") or {}) if text else {}

    labels = _until(features, f"feature discovery describes {node.name}")
    kubectl("label", "node", node.name, "--overwrite", *(f"{k}={v}" for k, v in labels.items()))


def _until(answer: Callable[[], dict[str, str]], what: str) -> dict[str, str]:
    deadline = time.monotonic() + _READY_SECONDS
    while not (given := answer()):
        if time.monotonic() > deadline:
            raise DeploymentFailed(f"not within {_READY_SECONDS:.0f} s: {what}")
        time.sleep(1)
    return given


def _advertised(wanted: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, int]]:
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
