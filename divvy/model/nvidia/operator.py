"""What the GPU Operator is given, read as one: sharing and cutting under the same name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from divvy.model.nvidia.device_plugin import read_device_plugin
from divvy.model.nvidia.imported import BadConfig, Imported, mapping
from divvy.model.nvidia.mig_parted import read_mig_parted
from divvy.model.resource_names import GPU, mig_resource, qualified

_STRATEGIES = ("none", "single", "mixed")


def read_operator(
    plugin: Mapping[str, object], mig_parted: object, strategy: str = "mixed"
) -> Imported:
    """Turn both ConfigMaps into profiles; raise BadConfig where NVIDIA's tools would refuse them.

    ``plugin`` are the device plugin's configurations by name, ``strategy`` is the
    operator's ``mig.strategy``. A name that is in both is one profile.
    """
    if strategy not in _STRATEGIES:
        raise BadConfig(f"mig.strategy is {strategy!r}; none, single or mixed is expected")
    cut = read_mig_parted(mig_parted)
    found = Imported({}, cut.left_out)
    for name, profile in cut.profiles.items():
        rules = [_with_strategy(rule, strategy) for rule in _rules(profile)]
        reasons: list[str] = []
        if name in plugin:
            rules, reasons = _shared(rules, plugin[name], name)
        value = rules[0] if len(rules) == 1 else rules
        found = found.joined(Imported({name: value}, tuple(reasons)))
    for name, document in plugin.items():
        if name not in cut.profiles:
            found = found.joined(read_device_plugin(document, name))
    return found


def _rules(profile: Any) -> list[dict[str, Any]]:
    return list(profile) if isinstance(profile, list) else [profile]


def _with_strategy(rule: dict[str, Any], strategy: str) -> dict[str, Any]:
    if strategy != "single" or "mig" not in rule:
        return rule
    return {**rule, "mig": {"layout": rule["mig"], "strategy": "single"}}


def _shared(
    rules: list[dict[str, Any]], document: object, name: str
) -> tuple[list[dict[str, Any]], list[str]]:
    """Give each rule the sharing of the resources that it offers."""
    # Whatever is wrong with the configuration is told by its own reader.
    read_device_plugin(document, name)
    sharing = mapping(mapping(document or {}, name).get("sharing") or {}, f"{name}: sharing")
    block = mapping(sharing.get("timeSlicing") or {}, f"{name}: sharing.timeSlicing")
    options = {
        key: block.get(key, False) for key in ("renameByDefault", "failRequestsGreaterThanOne")
    }
    replicas = {qualified(one["name"]): one["replicas"] for one in block.get("resources", ())}
    reasons = []
    found = []
    for rule in rules:
        wishes = {replicas.get(resource) for resource in _resources(rule)}
        if len(wishes) > 1:
            reasons.append(
                f"{name}: devices of one layout are shared differently, which has no counterpart"
            )
        wish = wishes.pop() if len(wishes) == 1 else None
        found.append(
            rule if wish is None else {**rule, "timeSlicing": {"replicas": wish, **options}}
        )
    return found, reasons


def _resources(rule: Mapping[str, Any]) -> list[str]:
    mig = rule.get("mig")
    if mig is None or "strategy" in mig:
        return [GPU]
    return [mig_resource(profile) for profile in mig]
