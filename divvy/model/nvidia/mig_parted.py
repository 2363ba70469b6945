"""The configuration file of mig-parted, ``version: v1`` with ``mig-configs``."""

import re
from collections.abc import Mapping
from itertools import combinations
from typing import Any

from divvy.model.gpu_models import GpuModel, gpu_models
from divvy.model.mig_names import is_profile_name
from divvy.model.nvidia.imported import (
    BadConfig,
    Imported,
    mapping,
    true_or_false,
    whole_number,
)

_VERSION = "v1"
_VENDOR = 0x10DE
_FILTER = re.compile(r"0x([0-9A-Fa-f]{4})([0-9A-Fa-f]{4})(:0x[0-9A-Fa-f]{8})?")


def read_mig_parted(document: object) -> Imported:
    """Turn every mig-config into a profile; raise BadConfig where mig-parted would refuse it."""
    if document is None:
        return Imported()
    spec = mapping(document, "the file")
    if spec.get("version") != _VERSION:
        raise BadConfig(f"version is {spec.get('version')!r}; {_VERSION} is expected")
    for key in spec:
        if key not in ("version", "mig-configs"):
            raise BadConfig(f"unknown key {key!r}")
    if "mig-configs" not in spec:
        return Imported()
    configs = mapping(spec["mig-configs"], "mig-configs")
    if not configs:
        raise BadConfig("mig-configs is empty")
    imported = Imported()
    for name, entries in configs.items():
        imported = imported.joined(_config(str(name), entries))
    return imported


def _config(name: str, entries: object) -> Imported:
    if not isinstance(entries, list) or not entries:
        raise BadConfig(f"{name}: a list of at least one entry is expected")
    rules: list[dict[str, Any]] = []
    left_out: list[str] = []
    for index, entry in enumerate(entries):
        found, reasons = _entry(entry, f"{name}[{index}]")
        rules += found
        left_out += reasons
    if not rules:
        return Imported({}, tuple(left_out))
    if any(_overlap(one, other) for one, other in combinations(rules, 2)):
        # Where entries overlap, mig-parted's last one wins; here it is the first.
        rules.reverse()
    return Imported({name: rules[0] if len(rules) == 1 else rules}, tuple(left_out))


def _entry(value: object, where: str) -> tuple[list[dict[str, Any]], list[str]]:
    entry = mapping(value, where)
    for key in entry:
        if key not in ("device-filter", "devices", "mig-enabled", "mig-devices"):
            raise BadConfig(f"{where} has an unknown key {key!r}")
    cut = _cut(entry, where)
    devices = _devices(entry.get("devices"), where)
    if cut is None:
        return [], [f"{where}: MIG mode without instances has no counterpart"]
    if "device-filter" not in entry or entry["device-filter"] in ("", []):
        return [cut if devices == "all" else {"devices": devices, **cut}], []
    models, reasons = _models(entry["device-filter"], where)
    if devices != "all":
        return [], [f"{where}: indices together with a device-filter have no counterpart"]
    return [{"devices": model.name, **cut} for model in models], reasons


def _cut(entry: Mapping[str, Any], where: str) -> dict[str, Any] | None:
    """Return a rule's ``mig`` part, nothing for MIG off; None for MIG on without instances."""
    if "mig-enabled" not in entry:
        raise BadConfig(f"{where} has no mig-enabled")
    enabled = true_or_false(entry["mig-enabled"], f"{where}.mig-enabled")
    if enabled and "mig-devices" not in entry:
        raise BadConfig(f"{where} has mig-enabled and no mig-devices")
    layout = mapping(entry.get("mig-devices") or {}, f"{where}.mig-devices")
    for profile, number in layout.items():
        if not is_profile_name(str(profile)):
            raise BadConfig(f"{where}.mig-devices: {profile!r} is no MIG profile name")
        whole_number(number, f"{where}.mig-devices.{profile}", 0)
    wanted = {str(profile): number for profile, number in layout.items() if number}
    if layout and not wanted:
        raise BadConfig(f"{where}.mig-devices: at least one count has to be above 0")
    if not enabled:
        if wanted:
            raise BadConfig(f"{where} has mig-devices although mig-enabled is false")
        return {}
    return {"mig": wanted} if wanted else None


def _devices(value: object, where: str) -> str | list[int]:
    if value == "all":
        return "all"
    if not isinstance(value, list) or not value:
        raise BadConfig(f"{where}.devices is {value!r}; all or a list of indices is expected")
    return [whole_number(index, f"{where}.devices", 0) for index in value]


def _models(value: object, where: str) -> tuple[list[GpuModel], list[str]]:
    filters = value if isinstance(value, list) else [value]
    models: dict[str, GpuModel] = {}
    reasons = []
    for text in filters:
        match = _FILTER.fullmatch(str(text))
        if match is None:
            raise BadConfig(
                f"{where}.device-filter is {text!r}; a PCI id like 0x20B010DE is expected"
            )
        device = int(match[1], 16)
        known = [model for model in gpu_models().values() if device in model.pci_device_ids]
        if int(match[2], 16) != _VENDOR or not known:
            reasons.append(f"{where}: no known GPU model has the PCI id {text}")
        for model in known:
            models[model.name] = model
        if match[3] and known:
            reasons.append(f"{where}: the subsystem of {text} is not looked at")
    return list(models.values()), reasons


def _overlap(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    first, second = one.get("devices", "all"), other.get("devices", "all")
    if "all" in (first, second):
        return True
    if isinstance(first, str) or isinstance(second, str):
        return first == second or isinstance(first, str) != isinstance(second, str)
    return bool(set(first) & set(second))
