"""GPU software is known by the images and commands of its own charts."""

from __future__ import annotations

from typing import Any

import pytest

from divvy.init.other_software import other_software
from tests.docs.page_commands import page_commands


def workload(*containers: dict[str, Any], name: str = "some-name") -> dict[str, Any]:
    return {
        "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": "n"},
        "spec": {"template": {"spec": {"containers": list(containers)}}},
    }


@pytest.mark.parametrize(
    ("image", "command", "expected"),
    [
        ("nvcr.io/nvidia/k8s-device-plugin:v0.20.0", (), "NVIDIA's device plugin"),
        ("registry.example/programs:1", ("nvidia-device-plugin",), "NVIDIA's device plugin"),
        (
            "nvcr.io/nvidia/k8s-device-plugin:v0.20.0",
            ("gpu-feature-discovery",),
            "GPU Feature Discovery",
        ),
        (
            "nvcr.io/nvidia/k8s-device-plugin:v0.20.0",
            ("mps-control-daemon",),
            "NVIDIA's MPS daemon",
        ),
        ("nvcr.io/nvidia/cloud-native/k8s-mig-manager:v0.15.0", (), "NVIDIA's MIG manager"),
        ("nvcr.io/nvidia/k8s-dra-driver-gpu:v25.8.0", (), "NVIDIA's DRA driver"),
        ("registry.k8s.io/dra-driver-nvidia/driver:v0.5.0", (), "NVIDIA's DRA driver"),
        ("nvcr.io/nvidia/gpu-operator:v26.7.0", (), "GPU Operator"),
        ("nvcr.io/nvidia/driver:550.163.01-ubuntu22.04", (), "NVIDIA's driver containers"),
        ("nvcr.io/nvidia/k8s/dcgm-exporter:4.4.0-ubuntu22.04", (), "DCGM exporter"),
        ("projecthami/hami:v2.10.0", ("hami-device-plugin",), "HAMi"),
        ("ghcr.io/nvidia/kai-scheduler/scheduler:v0.9.0", (), "KAI Scheduler"),
        ("volcanosh/volcano-vgpu-device-plugin:v1.9.4", (), "Volcano's device plugin"),
        ("gke.gcr.io/nvidia-gpu-device-plugin@sha256:0", (), "GKE's GPU device plugin"),
    ],
)
def test_recognises_a_program(image: str, command: tuple[str, ...], expected: str) -> None:
    own = {"image": image, "command": list(command)}
    other = {"image": "nvcr.io/nvidia/other:v1"}
    (program,) = other_software([workload(other, own, own)], ())
    assert (program.name, program.where) == (expected, "DaemonSet n/some-name")


def test_names_no_software_that_is_none() -> None:
    assert other_software([workload({"image": "registry.example/gpu-burn:1"})], ["a.b.c"]) == ()


def test_names_a_program_once_with_all_its_places() -> None:
    image = {"image": "nvcr.io/nvidia/gpu-operator:v26.7.0"}
    (program,) = other_software(
        [workload(image, name="a"), workload(image, name="b")], ["clusterpolicies.nvidia.com"]
    )
    assert program.where == "DaemonSet n/a, DaemonSet n/b"
    (program,) = other_software([], ["clusterpolicies.nvidia.com", "nvidiadrivers.nvidia.com"])
    assert program.where == "CustomResourceDefinition clusterpolicies.nvidia.com"
    assert "devicePlugin.enabled" in program.remedy


def test_leaves_the_operators_driver_on_a_node_as_the_page_does() -> None:
    """`gpu.deploy.operands=false` would take the driver and the toolkit off, too."""
    (command,) = [
        line
        for line in page_commands("coming-from")
        if line.startswith("kubectl label node NODE --overwrite ")
    ]
    (program,) = other_software([], ["clusterpolicies.nvidia.com"])
    assert command in program.remedy
    assert "operands" not in command
