"""One profile in the words of NVIDIA's tools: device plugin and mig-parted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from divvy.model import (
    GpuModel,
    Profile,
    Rule,
    TimeSlicing,
    gpu_resource,
    hardware_model,
    mig_resource,
)
from divvy.model.resolution import WHOLE, rule_for
from divvy.model.resource_names import SHARED_SUFFIX, qualified
from divvy.model.stack import Hardware

_VERSION = "v1"
MEMORY_LIMIT = "timeSlicing.memoryLimit"
COMPUTE = "timeSlicing.compute"


@dataclass(frozen=True)
class Refusal:
    """Something that the stack file says and the operator cannot do, and why.

    With ``droppable`` the rest still works without it, if the reader wants so.
    """

    key: str
    where: str
    reason: str
    droppable: bool = False

    def __str__(self) -> str:
        return f"{self.where}: {self.key}: {self.reason}"


@dataclass(frozen=True)
class NvidiaProfile:
    """A profile as configurations of the device plugin (sharing) and of mig-parted (MIG)."""

    sharing: Mapping[str, Any] | None
    cut: tuple[Mapping[str, Any], ...] | None
    strategies: frozenset[str]


@dataclass(frozen=True)
class _Part:
    """GPUs of a node that one rule takes; ``devices`` as mig-parted writes them."""

    rule: Rule
    devices: str | list[int]

    def __str__(self) -> str:
        if self.devices == "all":
            return "all GPUs"
        return "GPU " + ", ".join(str(index) for index in self.devices)


def nvidia_profile(
    name: str, profile: Profile, hardware: Hardware | None, where: str
) -> tuple[NvidiaProfile, list[Refusal]]:
    """Return a profile's configurations on nodes with that hardware, and what they cannot say."""
    refusals: list[Refusal] = []

    def refuse(key: str, reason: str, *, droppable: bool = False) -> None:
        refusals.append(Refusal(key, f"{where}, profile {name}", reason, droppable))

    if any(rule.devices.uuids for rule in profile.rules):
        refuse("devices", "a GPU by its UUID: NVIDIA's tools know indices, on all nodes alike")
    if profile.by_claims:
        refuse(
            "claims",
            "the operator has the device plugin or the DRA driver in a cluster, and other pools "
            "have no claims",
        )
    parts = _parts(profile, hardware)
    if parts is None:
        refuse("devices", "the pool has no hardware, so what is left for the rest is not known")
        parts = []
    for part in parts:
        if part.rule.mps is not None:
            refuse("mps", "NVIDIA's plugin has one daemon for all GPUs of a node")
        sharing = part.rule.time_slicing
        if sharing is None:
            continue
        if sharing.memory_limit is not None:
            reason = "NVIDIA's plugin does not watch how much memory a replica uses"
            refuse(MEMORY_LIMIT, reason, droppable=True)
        if sharing.compute is not None:
            reason = "NVIDIA's plugin does not divide the GPU's time"
            refuse(COMPUTE, reason, droppable=True)
        if sharing.resource_name is not None and not _is_usual_name(part.rule, sharing):
            reason = f"{sharing.resource_name}: NVIDIA's plugin only adds {SHARED_SUFFIX}"
            refuse("timeSlicing.resourceName", reason)
    strategies = frozenset(part.rule.mig.strategy for part in parts if part.rule.mig is not None)
    nvidia_sharing, reason = _sharing(parts)
    if reason:
        refuse("timeSlicing", reason)
    return NvidiaProfile(nvidia_sharing, _cut(parts), strategies), refusals


def _parts(profile: Profile, hardware: Hardware | None) -> list[_Part] | None:
    """Group the GPUs of a node by the rule that takes them, None if that is not known."""
    if hardware is None:
        only = profile.rules[0]
        return [_Part(only, "all")] if only.devices.everything else None
    model = hardware_model(hardware)
    gpus_by_rule: dict[int, list[int]] = {}
    for index in range(hardware.gpus):
        number = rule_for(profile, index, "", _names(hardware, model))
        gpus_by_rule.setdefault(number, []).append(index)
    # What no rule takes stays whole, and comes last.
    order = sorted(gpus_by_rule, key=lambda number: (number == WHOLE, number))
    return [
        _Part(
            Rule() if number == WHOLE else profile.rules[number],
            "all" if len(gpus_by_rule[number]) == hardware.gpus else gpus_by_rule[number],
        )
        for number in order
    ]


def _names(hardware: Hardware, model: GpuModel) -> tuple[str, ...]:
    return (hardware.model, model.name)


def _resources(rule: Rule) -> tuple[str, ...]:
    """Return the names that NVIDIA's plugin has for what a rule offers, before any sharing."""
    if rule.mig is None or rule.mig.strategy == "single":
        return (gpu_resource(),)
    return tuple(mig_resource(profile) for profile in rule.mig.layout)


def _is_usual_name(rule: Rule, sharing: TimeSlicing) -> bool:
    (plain, *more) = _resources(rule)
    usual = plain + SHARED_SUFFIX if sharing.rename_by_default else plain
    return not more and qualified(str(sharing.resource_name)) == usual


def _sharing(parts: Iterable[_Part]) -> tuple[Mapping[str, Any] | None, str]:
    """Return the plugin's configuration and "", or None and why there is none."""
    shared: dict[str, tuple[int | None, _Part]] = {}
    options: dict[tuple[bool, bool], _Part] = {}
    for part in parts:
        sharing = part.rule.time_slicing
        replicas = None if sharing is None else sharing.replicas
        if sharing is not None:
            options[(sharing.rename_by_default, sharing.fail_requests_greater_than_one)] = part
        for resource in _resources(part.rule):
            before, other = shared.setdefault(resource, (replicas, part))
            if before != replicas:
                words = f"{other} {_words(before)}, {part} {_words(replicas)}"
                return None, f"{words}: NVIDIA's plugin treats all {resource} of a node alike"
    if len(options) > 1:
        return None, "renameByDefault or failRequestsGreaterThanOne differ: there is one per node"
    if not options:
        return None, ""
    ((rename, fail),) = options
    resources = [
        {"name": name, "replicas": replicas} for name, (replicas, _) in shared.items() if replicas
    ]
    time_slicing = {
        "renameByDefault": rename,
        "failRequestsGreaterThanOne": fail,
        "resources": resources,
    }
    return {"version": _VERSION, "sharing": {"timeSlicing": time_slicing}}, ""


def _words(replicas: int | None) -> str:
    return "unshared" if replicas is None else f"shared by {replicas}"


def _cut(parts: Iterable[_Part]) -> tuple[Mapping[str, Any], ...] | None:
    """Return the entries of a mig-config, None if nothing is cut."""
    listed = list(parts)
    if all(part.rule.mig is None for part in listed):
        return None
    return tuple(
        {"devices": part.devices, "mig-enabled": False}
        if part.rule.mig is None
        else {
            "devices": part.devices,
            "mig-enabled": True,
            "mig-devices": dict(part.rule.mig.layout),
        }
        for part in listed
    )
