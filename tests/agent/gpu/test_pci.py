"""Where a GPU is, as Kubernetes' standard attributes say it."""

from __future__ import annotations

from pathlib import Path

import pytest

from divvy.agent.gpu.pci import pci_address, pcie_root


@pytest.mark.parametrize(
    ("nvml", "address"),
    [
        ("00000000:3B:00.0", "0000:3b:00.0"),
        ("0001:3B:00.0", "0001:3b:00.0"),
        ("00010000:3B:00.0", ""),
        ("", ""),
    ],
)
def test_shortens_a_pci_domain_to_four_digits(nvml: str, address: str) -> None:
    assert pci_address(nvml) == address


def test_finds_the_pcie_root_of_a_gpu(tmp_path: Path) -> None:
    devices = tmp_path / "sys/bus/pci/devices"
    devices.mkdir(parents=True)
    above = "../../../devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0"
    (devices / "0000:3b:00.0").symlink_to(above)
    (devices / "0000:3c:00.0").symlink_to("../../../devices/platform/x/0000:3c:00.0")
    nowhere = tmp_path / "nowhere"
    assert pcie_root("00000000:3B:00.0", (nowhere, tmp_path)) == "pci0000:3a"
    assert pcie_root("00000000:3C:00.0", (tmp_path,)) == ""
    assert pcie_root("00000000:3B:00.0", (nowhere,)) == ""
