"""How the chart of NVIDIA's plugin is used."""

from __future__ import annotations

from typing import Any

import pytest

from lab.interop.configurations import PluginConfiguration
from lab.interop.device_plugin import chart_values, give_driver


def test_names_the_image_by_digest() -> None:
    whole = PluginConfiguration("whole", "whole GPUs")
    values = chart_values(whole, "registry:5000/nvidia/plugin@sha256:abc")
    image = values["image"]
    assert f"{image['repository']}:{image['tag']}" == "registry:5000/nvidia/plugin@sha256:abc"


def daemon_set(container: str, *volumes: str) -> dict[str, Any]:
    containers = [{"name": container, "volumeMounts": [{"name": "config"}]}]
    spec = {"containers": containers, "volumes": [{"name": name} for name in volumes]}
    return {"kind": "DaemonSet", "spec": {"template": {"spec": spec}}}


@pytest.mark.parametrize(
    ("container", "volumes"),
    [("gpu-feature-discovery-ctr", ("driver-root",)), ("mps-control-daemon-ctr", ())],
)
def test_gives_the_driver_to_what_counts_on_nvidias_runtime(
    container: str, volumes: tuple[str, ...]
) -> None:
    document = daemon_set(container, *volumes)
    give_driver(document)
    spec = document["spec"]["template"]["spec"]
    mounts = spec["containers"][0]["volumeMounts"]
    assert [mount["name"] for mount in mounts] == ["config", "driver-root"]
    assert [volume["name"] for volume in spec["volumes"]] == ["driver-root"]


def test_leaves_what_has_the_driver_as_it_is() -> None:
    plugin = daemon_set("nvidia-device-plugin", "driver-root")
    give_driver(plugin)
    give_driver({"kind": "ConfigMap"})
    assert plugin == daemon_set("nvidia-device-plugin", "driver-root")
