"""The configuration file of NVIDIA's device plugin, ``version: v1``."""

import re
from collections.abc import Mapping
from typing import Any

from divvy.model.nvidia.imported import (
    BadConfig,
    Imported,
    mapping,
    true_or_false,
    whole_number,
)
from divvy.model.resource_names import GPU, VENDOR, resource_name_error

_VERSION = "v1"
_UUID = r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_REFERENCE = re.compile(rf"\d+(:\d+)?|(GPU|MIG)-{_UUID}|MIG-GPU-{_UUID}/\d+/\d+")


def read_device_plugin(document: object, name: str) -> Imported:
    """Turn one configuration into a profile; raise BadConfig where the plugin would refuse it.

    NVIDIA's defaults are written out, since ours are the safer ones.
    """
    if document is None:
        document = {}
    config = mapping(document, name)
    version = config.get("version", _VERSION)
    if version != _VERSION:
        raise BadConfig(f"{name}: unknown version {version!r}; {_VERSION} is expected")
    left_out = [
        f"{name}: {key} has no counterpart"
        for key in config
        if key not in ("version", "sharing", "flags")
    ]
    left_out += _flags(config.get("flags"), name)
    sharing = mapping(config.get("sharing") or {}, f"{name}: sharing")
    left_out += [
        f"{name}: sharing.{key} has no counterpart"
        for key in sharing
        if key not in ("timeSlicing", "mps")
    ]
    if sharing.get("mps"):
        _shared(sharing["mps"], f"{name}: sharing.mps")
        left_out.append(
            f"{name}: sharing.mps (MPS) has no counterpart; time-slicing is no replacement, "
            "so the profile is left out"
        )
        return Imported({}, tuple(left_out))
    if not sharing.get("timeSlicing"):
        return Imported({name: {}}, tuple(left_out))
    profile, more = _time_slicing(sharing["timeSlicing"], name)
    return Imported({} if profile is None else {name: profile}, (*left_out, *more))


def _flags(flags: object, name: str) -> list[str]:
    left_out = []
    for key, value in mapping(flags or {}, f"{name}: flags").items():
        if key == "migStrategy" and value in ("none", "single", "mixed"):
            if value == "single":
                left_out.append(
                    f"{name}: flags.migStrategy single belongs to a MIG layout here; "
                    "write `mig: {layout: …, strategy: single}`"
                )
        elif key == "migStrategy":
            raise BadConfig(
                f"{name}: flags.migStrategy is {value!r}; none, single or mixed is expected"
            )
        else:
            left_out.append(f"{name}: flags.{key} has no counterpart")
    return left_out


def _time_slicing(value: object, name: str) -> tuple[dict[str, Any] | None, list[str]]:
    where = f"{name}: sharing.timeSlicing"
    entries, options = _shared(value, where)
    left_out = []
    replicas = None
    for entry in entries:
        resource = entry["name"]
        for key in ("rename", "devices"):
            if key in entry and entry[key] not in ("all", ""):
                left_out.append(
                    f"{where}: {key} of {resource} is left out: NVIDIA's plugin ignores it"
                )
        if resource == GPU:
            replicas = entry["replicas"]
        else:
            left_out.append(
                f"{where}: {resource} × {entry['replicas']} needs the MIG layout beside it; "
                "add timeSlicing to the profile with that layout"
            )
    if replicas is None:
        return None, [*left_out, f"{where}: nothing in it concerns whole GPUs; no profile is made"]
    return {"timeSlicing": {"replicas": replicas, **options}}, left_out


def _shared(value: object, where: str) -> tuple[list[Mapping[str, Any]], dict[str, bool]]:
    """Check a block of shared resources as the plugin does; return its entries and options."""
    block = mapping(value, where)
    options = {
        key: true_or_false(block.get(key, False), f"{where}.{key}")
        for key in ("renameByDefault", "failRequestsGreaterThanOne")
    }
    for key in block:
        if key not in (*options, "resources"):
            raise BadConfig(f"{where} has an unknown key {key!r}")
    entries = block.get("resources")
    if not isinstance(entries, list) or not entries:
        raise BadConfig(f"{where} has no resources; at least one is required")
    return [
        _entry(entry, f"{where}.resources[{index}]") for index, entry in enumerate(entries)
    ], options


def _entry(value: object, where: str) -> Mapping[str, Any]:
    entry = dict(mapping(value, where))
    for key in entry:
        if key not in ("name", "replicas", "rename", "devices"):
            raise BadConfig(f"{where} has an unknown key {key!r}")
    if "name" not in entry:
        raise BadConfig(f"{where} has no name")
    entry["replicas"] = whole_number(entry.get("replicas"), f"{where}.replicas", 2)
    for key in ("name", "rename"):
        if key in entry:
            text = str(entry[key])
            entry[key] = text if text.startswith(f"{VENDOR}/") else f"{VENDOR}/{text}"
            error = resource_name_error(entry[key])
            if error:
                raise BadConfig(f"{where}.{key} is {text!r}: {error}")
    if "devices" in entry:
        _check_devices(entry["devices"], f"{where}.devices")
    return entry


def _check_devices(value: object, where: str) -> None:
    if value == "all" or (isinstance(value, int) and not isinstance(value, bool) and value > 0):
        return
    listed = value if isinstance(value, list) else []
    if not listed or not all(
        isinstance(item, int | str) and _REFERENCE.fullmatch(str(item)) for item in listed
    ):
        raise BadConfig(
            f"{where} is {value!r}; all, a number, or a list of indices and UUIDs is expected"
        )
