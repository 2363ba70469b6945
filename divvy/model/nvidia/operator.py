"""What the GPU Operator is given, read as one: sharing and MIG layouts under the same name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from divvy.model.nvidia.device_plugin import read_config, read_device_plugin
from divvy.model.nvidia.import_result import ImportResult
from divvy.model.nvidia.mig_parted import read_mig_parted
from divvy.model.problems import InvalidValue, problem
from divvy.model.resource_names import GPU, mig_resource

_STRATEGIES = ("none", "single", "mixed")


def read_operator(
    plugin: Mapping[str, object], mig_parted: object, strategy: object = "mixed"
) -> ImportResult:
    """Turn both ConfigMaps into profiles; raises InvalidValue if NVIDIA's tools refuse them.

    ``plugin`` are the device plugin's configurations by name, ``strategy`` is the
    operator's ``mig.strategy``. A name that is in both is one profile.
    """
    if strategy not in _STRATEGIES:
        keys = ("mig", "strategy")
        reason = f"is {strategy!r}"
        raise InvalidValue([problem(keys, reason, "none, single or mixed is expected")])
    layouts = read_mig_parted(mig_parted)
    imported = ImportResult({}, layouts.left_out)
    for name, profile in layouts.profiles.items():
        rules = [_with_strategy(rule, strategy) for rule in _rules(profile)]
        reasons: list[str] = []
        if name in plugin:
            rules, reasons = _shared(rules, plugin[name], name)
        value = rules[0] if len(rules) == 1 else rules
        imported = imported.joined(ImportResult({name: value}, tuple(reasons)))
    for name, document in plugin.items():
        if name not in layouts.profiles:
            imported = imported.joined(read_device_plugin(document, name))
    return imported


def _rules(profile: Any) -> list[dict[str, Any]]:
    return list(profile) if isinstance(profile, list) else [profile]


def _with_strategy(rule: dict[str, Any], strategy: object) -> dict[str, Any]:
    if strategy != "single" or "mig" not in rule:
        return rule
    return {**rule, "mig": {"layout": rule["mig"], "strategy": "single"}}


def _shared(
    rules: list[dict[str, Any]], document: object, name: str
) -> tuple[list[dict[str, Any]], list[str]]:
    """Give each rule the sharing of the resources that it advertises."""
    shared = read_config(document, name).sharing.time_slicing
    if shared is None:
        return rules, []
    replicas = {resource.name: resource.replicas for resource in shared.resources}
    reasons = []
    sliced = []
    for rule in rules:
        counts = {replicas.get(resource) for resource in _resources(rule)}
        if len(counts) > 1:
            reasons.append(
                f"{name}: devices of one layout are shared differently, which has no counterpart"
            )
        count = counts.pop() if len(counts) == 1 else None
        sliced.append(
            rule
            if count is None
            else {**rule, "timeSlicing": {"replicas": count, **shared.options()}}
        )
    return sliced, reasons


def _resources(rule: Mapping[str, Any]) -> list[str]:
    mig = rule.get("mig")
    if mig is None or "strategy" in mig:
        return [GPU]
    return [mig_resource(profile) for profile in mig]
