"""How NVIDIA's programs are configured on the lab, and what that promises: pure values."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from conformance.implementation import NVIDIA_DEVICE_PLUGIN, NVIDIA_DRA, Implementation
from divvy.model.nvidia import read_mig_parted, read_operator

_POOL_WITH_MIG = "a100"


@dataclass(frozen=True)
class Configuration(ABC):
    """One configuration; ``layout`` has the MIG devices of every A100, by profile.

    ``made_before`` says whether they are there before pods ask for them.
    """

    name: str
    title: str
    layout: Mapping[str, int] = field(default_factory=dict)
    made_before: bool = True
    implementation: ClassVar[Implementation]

    @property
    @abstractmethod
    def profile(self) -> dict[str, Any]:
        """Return the profile of a stack file that says the same."""

    @property
    def mig_parted(self) -> dict[str, Any]:
        """Return the layout as mig-parted's file has it."""
        devices = {"devices": "all", "mig-enabled": True, "mig-devices": dict(self.layout)}
        return {"version": "v1", "mig-configs": {self.name: [devices]}}

    def stack(self, base: Mapping[str, Any]) -> dict[str, Any]:
        """Return the stack file that promises what this configuration should advertise."""
        document = copy.deepcopy(dict(base))
        cluster = document["config"]["divvy:cluster"]
        cluster["profiles"][self.name] = copy.deepcopy(self.profile)
        for name, pool in cluster["pools"].items():
            # A node without MIG advertises whole GPUs, whatever the strategy is.
            if name == _POOL_WITH_MIG or not self.layout:
                pool["profile"] = self.name
        return document


@dataclass(frozen=True)
class PluginConfiguration(Configuration):
    """One configuration of the device plugin, by its own file."""

    strategy: Literal["none", "mixed", "single"] = "none"
    replicas: int = 1
    sharing: Literal["timeSlicing", "mps"] = "timeSlicing"
    implementation = NVIDIA_DEVICE_PLUGIN

    @property
    def plugin_file(self) -> dict[str, Any]:
        """Return the configuration file of the device plugin and of feature discovery."""
        document: dict[str, Any] = {"version": "v1", "flags": {"migStrategy": self.strategy}}
        if self.replicas > 1:
            resource = {"name": "nvidia.com/gpu", "replicas": self.replicas}
            document["sharing"] = {
                self.sharing: {"failRequestsGreaterThanOne": True, "resources": [resource]}
            }
        return document

    @property
    def profile(self) -> dict[str, Any]:
        """Return what `divvy import` makes of the plugin's file."""
        mig_parted = self.mig_parted if self.layout else None
        imported = read_operator({self.name: self.plugin_file}, mig_parted, self.strategy)
        return dict(imported.profiles[self.name])


@dataclass(frozen=True)
class DriverConfiguration(Configuration):
    """One configuration of the DRA driver, by its chart's values.

    ``claims`` is how many claims may have one device at once; ``by_memory`` says that they have
    parts of its memory.
    """

    claims: int = 1
    by_memory: bool = False
    implementation = NVIDIA_DRA

    @property
    def chart_values(self) -> dict[str, Any]:
        """Return the values of the chart that make the difference."""
        if self.claims > 1:
            return {
                "featureGates": {"ConsumableShares": True, "TimeSlicingSettings": True},
                "consumableShares": str(self.claims),
            }
        if self.by_memory:
            return {"featureGates": {"ConsumableShares": True}, "consumableShares": "memory"}
        return {} if self.made_before else {"featureGates": {"DynamicMIG": True}}

    @property
    def gpu_config(self) -> dict[str, Any] | None:
        """Return the driver's parameters of every claim for a GPU, None for its defaults."""
        if self.claims == 1:
            return None
        return {
            "apiVersion": "resource.nvidia.com/v1beta1",
            "kind": "GpuConfig",
            "sharing": {
                "strategy": "TimeSlicing",
                "timeSlicingConfig": {"interval": "Long"},
            },
        }

    @property
    def profile(self) -> dict[str, Any]:
        """Return a profile with as many devices, of the same kind, as claims can have."""
        if self.layout:
            return dict(read_mig_parted(self.mig_parted).profiles[self.name])
        if self.claims == 1:
            return {}
        # A container that asks for two gets parts of two GPUs, and never two of one.
        refused = {"failRequestsGreaterThanOne": True}
        return {"timeSlicing": {"replicas": self.claims, "renameByDefault": False, **refused}}


_MIXED = {"3g.20gb": 1, "2g.10gb": 1, "1g.5gb": 2}
_ALL: tuple[Configuration, ...] = (
    PluginConfiguration("whole", "whole GPUs"),
    PluginConfiguration("time-slicing", "time-slicing, 4 replicas", replicas=4),
    PluginConfiguration("mps", "MPS, 4 replicas", replicas=4, sharing="mps"),
    PluginConfiguration("mig-mixed", "MIG, strategy mixed", _MIXED, strategy="mixed"),
    PluginConfiguration("mig-single", "MIG, strategy single", {"1g.5gb": 7}, strategy="single"),
    DriverConfiguration("dra-whole", "whole GPUs"),
    DriverConfiguration("dra-time-slicing", "time-slicing, 4 claims of a GPU", claims=4),
    # A pod that names the extended resource gets all of a GPU's memory.
    DriverConfiguration("dra-shares", "shares by memory", by_memory=True),
    DriverConfiguration("dra-mig", "MIG devices made before", _MIXED),
    DriverConfiguration(
        "dra-mig-on-demand", "MIG devices made for claims", {"1g.5gb": 7}, made_before=False
    ),
)
CONFIGURATIONS = {configuration.name: configuration for configuration in _ALL}
