"""Who serves a node's GPUs, by the kubelet's folder of device plugins."""

import pytest

from conformance.implementation import NVIDIA_DEVICE_PLUGIN
from conformance.observe.kubelet_plugins import KubeletPlugins, only_ours

OURS = "Divvy's plugin alone"
OWN = ["divvy-nvidia.com-gpu.sock", "kubelet.sock", "rdma-shared.sock"]
DEVICES = ["GPU-a", "GPU-b"]


@pytest.mark.parametrize(
    ("sockets", "registered", "says"),
    [
        (OWN, {"nvidia.com/gpu": ["GPU-a", "GPU-b::1"], "rdma/hca": ["x"]}, OURS),
        (OWN, None, OURS),
        ([*OWN, "nvidia-gpu.sock"], None, "a plugin listens on nvidia-gpu.sock"),
        (OWN, {"nvidia.com/gpu": ["GPU-a", "of-another"]}, "nvidia.com/gpu has devices that are"),
    ],
)
def test_names_another_plugin_and_foreign_devices(
    sockets: list[str], registered: dict[str, list[str]] | None, says: str
) -> None:
    plugins = KubeletPlugins(sockets, registered)
    expected, actual = only_ours(plugins, ["nvidia.com/gpu"], DEVICES)
    assert expected == OURS
    assert actual.startswith(says)


@pytest.mark.parametrize(
    ("sockets", "says"),
    [
        (["nvidia-gpu.sock", "nvidia-mig-1g.5gb.sock"], "NVIDIA's device plugin alone"),
        (["nvidia-gpu.sock", OWN[0]], f"a plugin listens on {OWN[0]}"),
        (["nvidia-gpu.sock", "nvidia-hami.sock"], "a plugin listens on nvidia-hami.sock"),
    ],
)
def test_counts_the_plugin_under_test_as_no_other(sockets: list[str], says: str) -> None:
    plugins = KubeletPlugins(sockets, None)
    expected, actual = only_ours(plugins, ["nvidia.com/gpu"], DEVICES, NVIDIA_DEVICE_PLUGIN)
    assert (expected, actual) == ("NVIDIA's device plugin alone", says)
