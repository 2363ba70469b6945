"""Who serves a node's GPUs, by the kubelet's folder of device plugins."""

import pytest

from conformance.implementation import NVIDIA_DEVICE_PLUGIN
from conformance.observe.kubelet_plugins import KubeletPlugins, only_ours
from conformance.skips import CheckSkipped

OURS = "Divvy's plugin alone"
OWN = ["divvy-nvidia.com-gpu.sock", "kubelet.sock", "rdma-shared.sock"]
DEVICES = ["GPU-a", "GPU-b"]


@pytest.mark.parametrize(
    ("sockets", "registered", "says"),
    [
        (OWN, {"nvidia.com/gpu": ["GPU-a", "GPU-b::1"], "rdma/hca": ["x"]}, OURS),
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
    plugins = KubeletPlugins(sockets, {})
    expected, actual = only_ours(plugins, ["nvidia.com/gpu"], DEVICES, NVIDIA_DEVICE_PLUGIN)
    assert (expected, actual) == ("NVIDIA's device plugin alone", says)


def test_judges_nothing_where_the_kubelets_list_cannot_be_read() -> None:
    with pytest.raises(CheckSkipped, match="checkpoint of registered devices cannot be read"):
        only_ours(KubeletPlugins(OWN, None), ["nvidia.com/gpu"], DEVICES)
    # All devices are by claims: there is no list to read.
    assert only_ours(KubeletPlugins(OWN, None), [], DEVICES) == (OURS, OURS)
