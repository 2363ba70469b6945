"""NVIDIA's DRA driver on the lab, by the chart of its own module."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from conformance.implementation import NVIDIA_DRA
from divvy.model import mig_resource
from divvy.model.mig_names import resource_part
from lab.cluster.tools import NVIDIA_DRA_DRIVER as PROGRAMS
from lab.interop.configurations import DriverConfiguration
from lab.interop.deployment import DRIVER_ROOT, HOOK, apply_chart, kubectl, module_folder

NAMESPACE = str(NVIDIA_DRA.namespace)
_MODULE = "sigs.k8s.io/dra-driver-nvidia-gpu"


def deploy(
    configuration: DriverConfiguration, image: str, more: Mapping[str, Any] | None = None
) -> None:
    """Deploy one configuration, with further values of the chart."""
    chart = module_folder(PROGRAMS, _MODULE) / "deployments/helm/dra-driver-nvidia-gpu"
    values = {**chart_values(configuration, image), **(more or {})}
    apply_chart(
        NAMESPACE, chart, NAMESPACE, values, partial(give_parameters, configuration.gpu_config)
    )
    classes = yaml.safe_dump_all(mig_classes(configuration.layout))
    if configuration.layout:
        kubectl("apply", "--filename=-", stdin=classes)


def files() -> dict[str, Path]:
    """Return what the driver's own image has beside its commands, by its place there."""
    module = module_folder(PROGRAMS, _MODULE)
    return {
        "/usr/bin/kubelet-plugin-prestart.sh": module / "hack/kubelet-plugin-prestart.sh",
        "/templates": module / "templates",
    }


def chart_values(configuration: DriverConfiguration, image: str) -> dict[str, Any]:
    """Return the values of the chart; compute domains need NVLinks between nodes."""
    repository, _, digest = image.rpartition(":")
    return {
        "image": {"repository": repository, "tag": digest},
        "nvidiaDriverRoot": DRIVER_ROOT,
        "nvidiaCDIHookPath": HOOK,
        # There is no device plugin beside it.
        "gpuResourcesEnabledOverride": True,
        "resources": {"computeDomains": {"enabled": False}},
        **configuration.chart_values,
    }


def give_parameters(gpu_config: dict[str, Any] | None, document: dict[str, Any]) -> None:
    """Have claims of the chart's class for GPUs bring these parameters."""
    driver = NVIDIA_DRA.dra_driver
    if gpu_config is None or document["kind"] != "DeviceClass":
        return
    if document["metadata"]["name"] == driver:
        opaque = {"driver": driver, "parameters": gpu_config}
        document["spec"]["config"] = [{"opaque": opaque}]


def mig_classes(profiles: Iterable[str]) -> list[dict[str, Any]]:
    """Return a class for each MIG profile, by which pods name it as with the device plugin.

    The driver's own examples have such classes; its chart has one for whole GPUs alone.
    """
    attributes = f"device.attributes['{NVIDIA_DRA.dra_driver}']"
    return [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": {"name": f"mig-{resource_part(profile)}.{NVIDIA_DRA.dra_driver}"},
            "spec": {
                "selectors": [
                    {
                        "cel": {
                            "expression": f"device.driver == '{NVIDIA_DRA.dra_driver}' && "
                            f"{attributes}.type == 'mig' && {attributes}.profile == '{profile}'"
                        }
                    }
                ],
                "extendedResourceName": mig_resource(profile),
            },
        }
        for profile in profiles
    ]
