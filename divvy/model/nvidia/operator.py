"""Reads the GPU Operator's files as one: sharing and MIG layouts under the same name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from divvy.model.nvidia.device_plugin import (
    DevicePluginConfig,
    read_config,
    read_device_plugin,
    single_strategy,
    whole_gpus,
    without_counterpart,
)
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
    config = read_config(document, name)
    reasons = without_counterpart(config, name)
    sliced = []
    for rule in rules:
        mig = rule.get("mig")
        sharing, more = whole_gpus(config, name) if mig is None else _mig(mig, config, name)
        sliced.append({**rule, **sharing})
        reasons += more
        if mig is not None and "strategy" not in mig:
            reasons += single_strategy(config, name)
    return sliced, list(dict.fromkeys(reasons))


def _mig(
    mig: Mapping[str, Any], config: DevicePluginConfig, name: str
) -> tuple[dict[str, Any], list[str]]:
    """Return the sharing of the devices of a layout, and what it leaves out."""
    shared = config.sharing.shared
    replicas = shared.replicas() if shared is not None else {}
    resources = [GPU] if "strategy" in mig else [mig_resource(profile) for profile in mig]
    counts = {replicas.get(resource) for resource in resources}
    if shared is None or counts == {None}:
        return {}, []
    if config.sharing.mps is not None:
        return {}, [f"{name}: sharing.mps of MIG devices has no counterpart"]
    if len(counts) > 1:
        reason = f"{name}: devices of one layout are shared differently, which has no counterpart"
        return {}, [reason]
    return {"timeSlicing": {"replicas": counts.pop(), **shared.options()}}, []
