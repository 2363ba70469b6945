"""NVIDIA's device plugin and feature discovery on the lab, by the chart of their own module."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from conformance.implementation import NVIDIA_DEVICE_PLUGIN
from lab.cluster.tools import NVIDIA_DEVICE_PLUGIN as PROGRAMS
from lab.interop.configurations import PluginConfiguration
from lab.interop.deployment import (
    DRIVER_ROOT,
    HOOK,
    GpuNode,
    apply_chart,
    kubectl,
    module_folder,
    until,
)

NAMESPACE = str(NVIDIA_DEVICE_PLUGIN.namespace)
_RELEASE = "nvdp"
_DRIVER = "driver-root"
_WITHOUT_DRIVER = ("gpu-feature-discovery-ctr", "mps-control-daemon-ctr")
_MODULE = "github.com/NVIDIA/k8s-device-plugin"


def deploy(
    configuration: PluginConfiguration,
    image: str,
    nodes: Sequence[GpuNode],
    more: Mapping[str, Any] | None = None,
) -> None:
    """Deploy one configuration, with further values, and wait until the nodes are described."""
    kubectl("apply", "--filename=-", stdin=_definitions())
    kubectl("wait", "--for=condition=Established", "crd/nodefeatures.nfd.k8s-sigs.io")
    values = {**chart_values(configuration, image), **(more or {})}
    apply_chart(_RELEASE, chart(), NAMESPACE, values, give_driver)
    for node in nodes:
        _label(node)


def chart() -> Path:
    """Return the folder of the chart in the module of NVIDIA's plugin."""
    return module_folder(PROGRAMS, _MODULE) / "deployments/helm/nvidia-device-plugin"


def chart_values(configuration: PluginConfiguration, image: str) -> dict[str, Any]:
    """Return the values of the chart; NFD, which the lab does not have, is left out."""
    repository, _, digest = image.rpartition(":")
    return {
        "image": {"repository": repository, "tag": digest},
        "config": {"map": {configuration.name: yaml.safe_dump(configuration.plugin_file)}},
        "nvidiaDriverRoot": DRIVER_ROOT,
        "nvidiaDevRoot": DRIVER_ROOT,
        "deviceListStrategy": "cdi-cri",
        "cdi": {"nvidiaHookPath": HOOK},
        # The start of the image shows the simulated driver's kernel files.
        "securityContext": {"privileged": True},
        "gfd": {"enabled": True},
        "nfd": {"enabled": False},
    }


def give_driver(document: dict[str, Any]) -> None:
    """Mount the driver where the chart counts on NVIDIA's runtime, which the lab does not have."""
    if document["kind"] != "DaemonSet":
        return
    mount = {"name": _DRIVER, "mountPath": "/driver-root", "readOnly": True}
    spec = document["spec"]["template"]["spec"]
    for container in spec["containers"]:
        if container["name"] in _WITHOUT_DRIVER:
            container["volumeMounts"].append(mount)
            # For feature discovery the chart has the volume, and mounts it nowhere.
            if all(volume["name"] != _DRIVER for volume in spec["volumes"]):
                spec["volumes"].append({"name": _DRIVER, "hostPath": {"path": DRIVER_ROOT}})


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

    labels = until(features, f"feature discovery describes {node.name}")
    kubectl("label", "node", node.name, "--overwrite", *(f"{k}={v}" for k, v in labels.items()))
