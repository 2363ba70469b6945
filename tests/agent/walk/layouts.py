"""The profiles of a walk, and what each means for each GPU: typed by hand, apart from the agent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

GPUS = 3


@dataclass(frozen=True)
class Layout:
    """What a GPU should offer: ``resources`` maps a MIG profile ("" for the GPU) to a resource."""

    resources: Mapping[str, str]
    mig: Mapping[str, int] | None = None
    replicas: int = 1

    @property
    def count(self) -> int:
        """Return how many devices are listed of the GPU."""
        return self.replicas * (1 if self.mig is None else sum(self.mig.values()))

    def accepts(self, profile: str, resource: str, shared: bool) -> bool:
        """Tell whether a device of this MIG profile, held so, could stay as it is."""
        return self.resources.get(profile) == resource and shared == (self.replicas > 1)


def _gpu(resource: str = "nvidia.com/gpu", replicas: int = 1) -> Layout:
    return Layout({"": resource}, None, replicas)


def _mig(layout: dict[str, int], replicas: int = 1, suffix: str = "") -> Layout:
    return Layout({p: f"nvidia.com/mig-{p}{suffix}" for p in layout}, layout, replicas)


_SEVEN = {"1g.5gb": 7}
_HALVES = {"3g.20gb": 2}
_MIXED = {"3g.20gb": 1, "2g.10gb": 1, "1g.5gb": 2}
_FINE = {"2g.10gb": 3, "1g.5gb": 1}
_LOOSE = {"2g.10gb": 1, "1g.5gb": 3}
_SHARES = {"replicas": 3}

# name → (as the stack file has it, what it means for GPUs 0, 1, 2)
PROFILES: Mapping[str, tuple[Any, tuple[Layout, ...]]] = {
    "whole": ({}, (_gpu(),) * 3),
    "shared": ({"timeSlicing": _SHARES}, (_gpu("nvidia.com/gpu.shared", 3),) * 3),
    "more": ({"timeSlicing": {"replicas": 5}}, (_gpu("nvidia.com/gpu.shared", 5),) * 3),
    "same-name": (
        {"timeSlicing": {"replicas": 2, "renameByDefault": False}},
        (_gpu("nvidia.com/gpu", 2),) * 3,
    ),
    "team": (
        {"timeSlicing": {"replicas": 2, "resourceName": "nvidia.com/gpu.team"}},
        (_gpu("nvidia.com/gpu.team", 2),) * 3,
    ),
    "seven": ({"mig": _SEVEN}, (_mig(_SEVEN),) * 3),
    "halves": ({"mig": _HALVES}, (_mig(_HALVES),) * 3),
    "mixed": ({"mig": _MIXED}, (_mig(_MIXED),) * 3),
    "fine": ({"mig": _FINE}, (_mig(_FINE),) * 3),
    "loose": ({"mig": _LOOSE}, (_mig(_LOOSE),) * 3),
    "single": (
        {"mig": {"layout": _HALVES, "strategy": "single"}},
        (Layout({"3g.20gb": "nvidia.com/gpu"}, _HALVES),) * 3,
    ),
    "mig-shared": (
        {"mig": _LOOSE, "timeSlicing": {"replicas": 2}},
        (_mig(_LOOSE, 2, ".shared"),) * 3,
    ),
    "rules": (
        [{"devices": [0], "mig": _SEVEN}, {"devices": [1], "timeSlicing": _SHARES}, {}],
        (_mig(_SEVEN), _gpu("nvidia.com/gpu.shared", 3), _gpu()),
    ),
    "other-rules": (
        [{"devices": [0, 2], "mig": _MIXED}, {"devices": [1], "mig": _HALVES}],
        (_mig(_MIXED), _mig(_HALVES), _mig(_MIXED)),
    ),
}
