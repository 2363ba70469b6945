"""How NVIDIA's device plugin is configured on the lab, and what that promises: pure values."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from divvy.model.nvidia import read_operator

_POOL_WITH_MIG = "a100"


@dataclass(frozen=True)
class Configuration:
    """One configuration; ``layout`` has the MIG devices of every A100, by profile."""

    name: str
    title: str
    strategy: Literal["none", "mixed", "single"] = "none"
    replicas: int = 1
    layout: Mapping[str, int] = field(default_factory=dict)

    @property
    def plugin_file(self) -> dict[str, Any]:
        """Return the configuration file of the device plugin and of feature discovery."""
        document: dict[str, Any] = {"version": "v1", "flags": {"migStrategy": self.strategy}}
        if self.replicas > 1:
            resource = {"name": "nvidia.com/gpu", "replicas": self.replicas}
            document["sharing"] = {
                "timeSlicing": {"failRequestsGreaterThanOne": True, "resources": [resource]}
            }
        return document

    @property
    def profile(self) -> dict[str, Any]:
        """Return the profile of a stack file that says the same, as `divvy import` reads it."""
        devices = {"devices": "all", "mig-enabled": True, "mig-devices": dict(self.layout)}
        mig_parted = {"version": "v1", "mig-configs": {self.name: [devices]}}
        imported = read_operator(
            {self.name: self.plugin_file}, mig_parted if self.layout else None, self.strategy
        )
        return dict(imported.profiles[self.name])

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


CONFIGURATIONS = {
    configuration.name: configuration
    for configuration in (
        Configuration("whole", "whole GPUs"),
        Configuration("time-slicing", "time-slicing, 4 replicas", replicas=4),
        Configuration(
            "mig-mixed",
            "MIG, strategy mixed",
            strategy="mixed",
            layout={"3g.20gb": 1, "2g.10gb": 1, "1g.5gb": 2},
        ),
        Configuration(
            "mig-single", "MIG, strategy single", strategy="single", layout={"1g.5gb": 7}
        ),
    )
}
