"""How the chart of NVIDIA's DRA driver is used, and the classes beside it."""

from __future__ import annotations

from typing import Any

from lab.interop.configurations import DriverConfiguration
from lab.interop.dra_driver import chart_values, give_parameters, mig_classes

SHARED = DriverConfiguration("dra-time-slicing", "4 claims of each GPU", claims=4)


def test_adds_to_the_chart_what_a_configuration_says() -> None:
    values = chart_values(SHARED, "registry:5000/nvidia/programs@sha256:abc")
    assert values["image"] == {"repository": "registry:5000/nvidia/programs@sha256", "tag": "abc"}
    assert values["consumableShares"] == "4"
    assert values["resources"]["computeDomains"] == {"enabled": False}


def test_lets_pods_name_mig_devices_as_with_the_device_plugin() -> None:
    (device_class,) = mig_classes(["1g.10gb+me"])
    assert device_class["metadata"]["name"] == "mig-1g.10gb.me.gpu.nvidia.com"
    assert device_class["spec"]["extendedResourceName"] == "nvidia.com/mig-1g.10gb.me"
    assert ".profile == '1g.10gb+me'" in device_class["spec"]["selectors"][0]["cel"]["expression"]


def test_gives_parameters_to_claims_for_whole_gpus_alone() -> None:
    names = ("gpu.nvidia.com", "mig.nvidia.com")
    classes: list[dict[str, Any]] = [
        {"kind": "DeviceClass", "metadata": {"name": name}, "spec": {}} for name in names
    ]
    for document in [*classes, {"kind": "DaemonSet"}]:
        give_parameters(SHARED.gpu_config, document)
    gpu, mig = classes
    (parameters,) = gpu["spec"]["config"]
    assert parameters["opaque"]["driver"] == "gpu.nvidia.com"
    assert parameters["opaque"]["parameters"]["sharing"]["strategy"] == "TimeSlicing"
    assert mig["spec"] == {}


def test_leaves_the_class_as_it_is_without_parameters() -> None:
    document = {"kind": "DeviceClass", "metadata": {"name": "gpu.nvidia.com"}, "spec": {}}
    give_parameters(None, document)
    assert document["spec"] == {}
