"""Reads the configuration formats of NVIDIA's device plugin and mig-parted."""

from divvy.model.nvidia.device_plugin import read_device_plugin
from divvy.model.nvidia.import_result import ImportResult, checked
from divvy.model.nvidia.mig_parted import read_mig_parted
from divvy.model.nvidia.operator import read_operator

__all__ = [
    "ImportResult",
    "checked",
    "read_device_plugin",
    "read_mig_parted",
    "read_operator",
]
