"""Reads an agent's metrics of its node's GPUs: who holds which device, and what is in use."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import isfinite

from divvy.model.api_names import Mode
from divvy.model.problems import printable

# What is read of an agent's metrics; the rest is for dashboards.
DEVICES, HELD = "divvy_devices", "divvy_device_held"
POD_USED, SHARE_USED = "divvy_pod_memory_used_mib", "divvy_share_memory_used_mib"
SHARE_LIMIT, OVER = "divvy_share_memory_limit_mib", "divvy_memory_over_limit_mib"
MEMORY, UTILISATION = "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_GPU_UTIL"
OF_CONTAINER = "divvy_container_gpu_utilisation"
READ = (DEVICES, HELD, POD_USED, SHARE_USED, SHARE_LIMIT, OVER, MEMORY, UTILISATION, OF_CONTAINER)

# UUID of the device behind it, namespace, pod, container.
Place = tuple[str, str, str, str]
# UUID of the GPU, name of the claimed device, namespace, pod.
ClaimedPlace = tuple[str, str, str, str]


@dataclass(frozen=True)
class Sample:
    """One line of a metrics page."""

    name: str
    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True)
class HeldDevice:
    """Devices of one resource on one GPU that one container holds; ``count`` of them."""

    resource: str
    mode: str
    gpu: str
    place: Place
    count: int


@dataclass(frozen=True)
class AgentReadings:
    """The readings of one node, by UUID of the GPU or by place; memory in MiB.

    ``claimed`` is the memory in use on devices that a claim holds alone, ``by_container`` the part
    of a GPU's time, in per cent, that a container takes.
    """

    memory: Mapping[str, int] = field(default_factory=dict)
    utilisation: Mapping[str, int] = field(default_factory=dict)
    indices: Mapping[str, int] = field(default_factory=dict)
    products: Mapping[str, str] = field(default_factory=dict)
    held: tuple[HeldDevice, ...] = ()
    used: Mapping[Place, int] = field(default_factory=dict)
    claimed: Mapping[ClaimedPlace, int] = field(default_factory=dict)
    limits: Mapping[Place, int] = field(default_factory=dict)
    over: Mapping[Place, int] = field(default_factory=dict)
    by_container: Mapping[Place, int] = field(default_factory=dict)
    devices: Mapping[str, int] = field(default_factory=dict)
    modes: Mapping[str, str] = field(default_factory=dict)


def agent_readings(samples: Iterable[Sample]) -> AgentReadings:
    """Read the samples of one agent; those that say nothing usable are left out."""
    memory: dict[str, int] = {}
    utilisation: dict[str, int] = {}
    indices: dict[str, int] = {}
    products: dict[str, str] = {}
    places: dict[str, dict[Place, int]] = {name: {} for name in (SHARE_LIMIT, OVER, OF_CONTAINER)}
    used: dict[Place, int] = {}
    claimed: dict[ClaimedPlace, int] = {}
    held: Counter[tuple[str, str, str, Place]] = Counter()
    devices: Counter[str] = Counter()
    modes: dict[str, str] = {}
    for sample in samples:
        if not isfinite(sample.value) or sample.value < 0:
            continue
        value, labels = round(sample.value), _Labels(sample.labels)
        if sample.name in (MEMORY, UTILISATION):
            gpu = labels["UUID"]
            (memory if sample.name == MEMORY else utilisation)[gpu] = value
            indices[gpu] = int(labels["gpu"]) if labels["gpu"].isdecimal() else len(indices)
            products[gpu] = labels["modelName"]
        elif sample.name == POD_USED and labels["mode"] == Mode.CLAIMS:
            device = labels["gpu"], labels["device"], labels["namespace"], labels["pod"]
            claimed[device] = value
        elif sample.name in (POD_USED, SHARE_USED):
            used[labels.place] = value
        elif sample.name in places:
            places[sample.name][labels.place] = value
        elif sample.name == HELD and value:
            held[(labels["resource"], labels["mode"], labels["gpu"], labels.place)] += 1
        elif sample.name == DEVICES:
            devices[labels["resource"]] += value
            modes[labels["resource"]] = labels["mode"]
    return AgentReadings(
        memory=memory,
        utilisation=utilisation,
        indices=indices,
        products=products,
        held=tuple(HeldDevice(*key, count) for key, count in sorted(held.items())),
        used=used,
        claimed=claimed,
        limits=places[SHARE_LIMIT],
        over=places[OVER],
        by_container=places[OF_CONTAINER],
        devices=devices,
        modes=modes,
    )


def device_words(held: HeldDevice) -> str:
    """Describe what is held: ``whole``, ``1g.5gb``, ``share``, ``replica ×2``."""
    mig = held.resource.rpartition("/mig-")[2].removesuffix(".shared")
    profile = mig if mig != held.resource.removesuffix(".shared") else "MIG"
    part = {
        Mode.WHOLE: "whole",
        Mode.TIME_SLICING: "replica",
        Mode.TIME_SLICING_LIMIT: "share",
        Mode.MIG: profile,
        Mode.MIG_TIME_SLICING: f"{profile} replica",
        Mode.MIG_TIME_SLICING_LIMIT: f"{profile} share",
    }
    words = next((text for mode, text in part.items() if mode == held.mode), held.mode)
    return words if held.count == 1 else f"{words} ×{held.count}"


class _Labels:
    """Labels of one sample, fit to be shown; one that is missing is empty."""

    def __init__(self, labels: Mapping[str, str]) -> None:
        self._labels = labels

    def __getitem__(self, name: str) -> str:
        return printable(self._labels.get(name, ""))

    @property
    def place(self) -> Place:
        return self["uuid"], self["namespace"], self["pod"], self["container"]
