"""The configuration file of mig-parted, ``version: v1`` with ``mig-configs``."""

import re
from collections.abc import Mapping
from itertools import combinations
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from divvy.model.gpu_models import GpuModel, gpu_models
from divvy.model.mig_names import is_profile_name
from divvy.model.nvidia.import_result import ImportResult
from divvy.model.validation import read

_COMPUTE_INSTANCE = re.compile(r"\d+c\.")
_VENDOR = 0x10DE
_FILTER = re.compile(r"0x([0-9A-Fa-f]{4})([0-9A-Fa-f]{4})(:0x[0-9A-Fa-f]{8})?")


def _devices(value: object) -> object:
    if value == "all" or (
        isinstance(value, list)
        and value
        and all(type(index) is int and index >= 0 for index in value)
    ):
        return value
    raise ValueError(f"is {value!r}; all or a list of indices is expected")


def _filters(value: object) -> object:
    filters = value if isinstance(value, list) else [value] if value else []
    for text in filters:
        if not _FILTER.fullmatch(str(text)):
            raise ValueError(f"is {text!r}; a PCI id such as 0x20B010DE is expected")
    return filters


def _profile(value: object) -> str:
    if not is_profile_name(str(value)):
        raise ValueError("is not a MIG profile name; one looks like 1g.5gb, or 1g.5gb+me")
    return str(value)


class _Part(BaseModel):
    """A mapping of the file."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=lambda name: name.replace("_", "-")
    )


class _Entry(_Part):
    device_filter: Annotated[tuple[str, ...], BeforeValidator(_filters)] = ()
    """PCI ids of the GPU models that the entry is for."""
    devices: Annotated[Any, BeforeValidator(_devices)]
    """all, or indices of GPUs."""
    mig_enabled: Annotated[bool, Field(strict=True)]
    """MIG mode."""
    mig_devices: Annotated[
        dict[Annotated[str, BeforeValidator(_profile)], Annotated[int, Field(strict=True, ge=0)]],
        BeforeValidator(lambda value: {} if value is None else value),
    ] = {}
    """Instances by MIG profile."""

    @model_validator(mode="after")
    def _consistent(self) -> "_Entry":
        if self.mig_enabled and "mig_devices" not in self.model_fields_set:
            raise ValueError("has mig-enabled but no mig-devices; name them")
        if self.mig_devices and not self.layout:
            raise ValueError("has only 0 in mig-devices; at least one count has to be above 0")
        if self.mig_devices and not self.mig_enabled:
            raise ValueError("has mig-devices although mig-enabled is false; remove one of them")
        return self

    @property
    def layout(self) -> dict[str, int]:
        """Instances by MIG profile, those with none left out."""
        return {profile: count for profile, count in self.mig_devices.items() if count}

    def mig(self) -> dict[str, Any] | None:
        """Return a rule's ``mig`` part, {} for MIG off; None for MIG on without instances."""
        if not self.mig_enabled:
            return {}
        return {"mig": self.layout} if self.layout else None


class MigPartedFile(_Part):
    """A whole configuration file."""

    version: Literal["v1"]
    """Version of the format."""
    mig_configs: Annotated[
        dict[
            Annotated[str, BeforeValidator(str)],
            Annotated[tuple[_Entry, ...], Field(min_length=1)],
        ],
        Field(min_length=1),
    ] = {}
    """Configurations by name."""


def read_mig_parted(document: object) -> ImportResult:
    """Turn every mig-config into a profile; raises InvalidValue if mig-parted refuses it."""
    imported = ImportResult()
    if document is None:
        return imported
    for name, entries in read(MigPartedFile, document, "the file").mig_configs.items():
        imported = imported.joined(_config(name, entries))
    return imported


def _config(name: str, entries: tuple[_Entry, ...]) -> ImportResult:
    rules: list[dict[str, Any]] = []
    left_out: list[str] = []
    for index, entry in enumerate(entries):
        added, reasons = _rules(entry, f"{name}[{index}]")
        rules += added
        left_out += reasons
    if not rules:
        return ImportResult({}, tuple(left_out))
    if any(_overlap(rule, other) for rule, other in combinations(rules, 2)):
        # If entries overlap, mig-parted's last one wins; here it is the first.
        rules.reverse()
    return ImportResult({name: rules[0] if len(rules) == 1 else rules}, tuple(left_out))


def _rules(entry: _Entry, where: str) -> tuple[list[dict[str, Any]], list[str]]:
    parts = [name for name in entry.layout if _COMPUTE_INSTANCE.match(name)]
    if parts:
        return [], [f"{where}: the compute instances {', '.join(parts)} have no counterpart"]
    mig = entry.mig()
    if mig is None:
        return [], [f"{where}: MIG mode without instances has no counterpart"]
    if not entry.device_filter:
        return [mig if entry.devices == "all" else {"devices": entry.devices, **mig}], []
    if entry.devices != "all":
        return [], [f"{where}: indices together with a device-filter have no counterpart"]
    models, reasons = _models(entry.device_filter, where)
    return [{"devices": model.name, **mig} for model in models], reasons


def _models(filters: tuple[str, ...], where: str) -> tuple[list[GpuModel], list[str]]:
    models: dict[str, GpuModel] = {}
    reasons = []
    for text in filters:
        match = _FILTER.fullmatch(text)
        assert match is not None
        device = int(match[1], 16)
        known = [model for model in gpu_models().values() if device in model.pci_device_ids]
        if int(match[2], 16) != _VENDOR or not known:
            reasons.append(f"{where}: no known GPU model has the PCI id {text}")
        for model in known:
            models[model.name] = model
        if match[3] and known:
            reasons.append(f"{where}: the subsystem of {text} is ignored")
    return list(models.values()), reasons


def _overlap(rule: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    first, second = rule.get("devices", "all"), other.get("devices", "all")
    if "all" in (first, second):
        return True
    if isinstance(first, str) or isinstance(second, str):
        return first == second or isinstance(first, str) != isinstance(second, str)
    return bool(set(first) & set(second))
