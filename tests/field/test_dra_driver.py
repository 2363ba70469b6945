"""How the chart of NVIDIA's DRA driver is used, and the classes beside it."""

from __future__ import annotations

from field.configurations import DriverConfiguration
from field.dra_driver import chart_values, mig_classes


def test_adds_to_the_chart_what_a_configuration_says() -> None:
    shares = DriverConfiguration("dra-shares", "4 claims of each GPU", claims=4)
    values = chart_values(shares, "registry:5000/nvidia/programs@sha256:abc")
    assert values["image"] == {"repository": "registry:5000/nvidia/programs@sha256", "tag": "abc"}
    assert values["consumableShares"] == "4"
    assert values["resources"]["computeDomains"] == {"enabled": False}


def test_lets_pods_name_mig_devices_as_with_the_device_plugin() -> None:
    (device_class,) = mig_classes(["1g.10gb+me"])
    assert device_class["metadata"]["name"] == "mig-1g.10gb.me.gpu.nvidia.com"
    assert device_class["spec"]["extendedResourceName"] == "nvidia.com/mig-1g.10gb.me"
    assert ".profile == '1g.10gb+me'" in device_class["spec"]["selectors"][0]["cel"]["expression"]
