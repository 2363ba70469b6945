"""How the chart of NVIDIA's plugin is used."""

from __future__ import annotations

from typing import Any

from field.configurations import PluginConfiguration
from field.device_plugin import chart_values, give_driver


def test_names_the_image_by_digest() -> None:
    whole = PluginConfiguration("whole", "whole GPUs")
    values = chart_values(whole, "registry:5000/nvidia/plugin@sha256:abc")
    image = values["image"]
    assert f"{image['repository']}:{image['tag']}" == "registry:5000/nvidia/plugin@sha256:abc"


def daemon_set(container: str) -> dict[str, Any]:
    containers = [{"name": container, "volumeMounts": [{"name": "config"}]}]
    return {"kind": "DaemonSet", "spec": {"template": {"spec": {"containers": containers}}}}


def test_gives_the_driver_to_feature_discovery_alone() -> None:
    discovery, plugin = daemon_set("gpu-feature-discovery-ctr"), daemon_set("nvidia-device-plugin")
    for document in (discovery, plugin, {"kind": "ConfigMap"}):
        give_driver(document)
    mounts = discovery["spec"]["template"]["spec"]["containers"][0]["volumeMounts"]
    assert [mount["name"] for mount in mounts] == ["config", "driver-root"]
    assert plugin == daemon_set("nvidia-device-plugin")
