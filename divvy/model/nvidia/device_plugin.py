"""The configuration file of NVIDIA's device plugin, ``version: v1``."""

import re
from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from divvy.model.nvidia.import_result import ImportResult
from divvy.model.profile import MAX_MPS_CLIENTS
from divvy.model.reading import read
from divvy.model.resource_names import GPU, qualified, resource_name_error
from divvy.model.stack_part import camel_case

_UUID = r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_REFERENCE = re.compile(rf"\d+(:\d+)?|(GPU|MIG)-{_UUID}|MIG-GPU-{_UUID}/\d+/\d+")


def _resource(value: object) -> str:
    name = qualified(str(value))
    error = resource_name_error(name)
    if error:
        raise ValueError(f"is {value!r}; {error}")
    return name


def _devices(value: object) -> object:
    if value == "all" or (isinstance(value, int) and not isinstance(value, bool) and value > 0):
        return value
    listed = value if isinstance(value, list) else []
    if not listed or not all(
        isinstance(item, int | str) and _REFERENCE.fullmatch(str(item)) for item in listed
    ):
        raise ValueError(f"is {value!r}; all, a number, or a list of indices and UUIDs is expected")
    return value


_ResourceName = Annotated[str, BeforeValidator(_resource)]
_Flag = Annotated[bool, Field(strict=True)]
# What is empty is as good as absent.
_OrNothing = BeforeValidator(lambda value: value or None)


class _Strict(BaseModel):
    """A mapping of which the plugin refuses unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=camel_case)


class _Open(BaseModel):
    """A mapping with keys that Divvy has no counterpart for."""

    model_config = ConfigDict(frozen=True, extra="allow", alias_generator=camel_case)

    def unknown(self) -> Iterable[str]:
        """Return the keys that have no field."""
        return self.model_extra or ()


class _Resource(_Strict):
    name: _ResourceName
    """The resource that is shared."""
    replicas: Annotated[int, Field(strict=True, ge=2)]
    """Replicas of each device."""
    rename: _ResourceName | None = None
    """Name of the replicas."""
    devices: Annotated[Any, AfterValidator(_devices)] = "all"
    """Devices that are shared."""


class Shared(_Strict):
    """A block of shared resources."""

    rename_by_default: _Flag = False
    """Advertise replicas as <name>.shared."""
    fail_requests_greater_than_one: _Flag = False
    """Refuse a container that requests more than one replica."""
    resources: tuple[_Resource, ...] = Field(min_length=1)
    """The resources that are shared."""

    def options(self) -> dict[str, bool]:
        """Return both options, NVIDIA's defaults written out, since ours are the safer ones."""
        return {
            "renameByDefault": self.rename_by_default,
            "failRequestsGreaterThanOne": self.fail_requests_greater_than_one,
        }


class _Sharing(_Open):
    time_slicing: Annotated[Shared | None, _OrNothing] = None
    """Time-slicing."""
    mps: Annotated[Shared | None, _OrNothing] = None
    """MPS."""


class _Flags(_Open):
    mig_strategy: Literal["none", "single", "mixed"] = "none"
    """How MIG devices are named."""


class DevicePluginConfig(_Open):
    """One configuration of the plugin."""

    version: Literal["v1"] = "v1"
    """Version of the format."""
    flags: Annotated[_Flags, BeforeValidator(lambda value: value or {})] = _Flags()
    """Options of the plugin's command line."""
    sharing: Annotated[_Sharing, BeforeValidator(lambda value: value or {})] = _Sharing()
    """What is shared."""


def read_config(document: object, name: str) -> DevicePluginConfig:
    """Return a configuration; raises InvalidValue if the plugin would refuse it."""
    return read(DevicePluginConfig, {} if document is None else document, name)


def read_device_plugin(document: object, name: str) -> ImportResult:
    """Turn one configuration into a profile; raises InvalidValue if the plugin refuses it."""
    config = read_config(document, name)
    left_out = [f"{name}: {key} has no counterpart" for key in config.unknown()]
    left_out += _flags(config.flags, name)
    left_out += [f"{name}: sharing.{key} has no counterpart" for key in config.sharing.unknown()]
    if config.sharing.mps is not None:
        profile, more = _mps(config.sharing.mps, f"{name}: sharing.mps")
    elif config.sharing.time_slicing is not None:
        profile, more = _time_slicing(config.sharing.time_slicing, f"{name}: sharing.timeSlicing")
    else:
        profile, more = {}, []
    return ImportResult({} if profile is None else {name: profile}, (*left_out, *more))


def _mps(shared: Shared, where: str) -> tuple[dict[str, Any] | None, list[str]]:
    """Give equal parts of memory and threads by MPS, as the plugin does."""
    profile, left_out = _time_slicing(shared, where)
    if profile is None:
        return None, left_out
    mps = profile["timeSlicing"]
    if "fail_requests_greater_than_one" not in shared.model_fields_set:
        mps["failRequestsGreaterThanOne"] = True  # the plugin's default under MPS
    if mps["replicas"] > MAX_MPS_CLIENTS:
        left_out.append(
            f"{where}: {mps['replicas']} replicas; MPS serves {MAX_MPS_CLIENTS} processes of one "
            f"GPU, and the profile has {MAX_MPS_CLIENTS}"
        )
        mps["replicas"] = MAX_MPS_CLIENTS
    left_out.append(
        f"{where}: one daemon for all GPUs; by `mps` each has its own, which has been run on the "
        "simulated driver only, on no real one yet"
    )
    return {"mps": mps}, left_out


def _flags(flags: _Flags, name: str) -> list[str]:
    left_out = [f"{name}: flags.{key} has no counterpart" for key in flags.unknown()]
    if flags.mig_strategy == "single":
        left_out.append(
            f"{name}: flags.migStrategy single belongs to a MIG layout here; "
            "write `mig: {layout: …, strategy: single}`"
        )
    return left_out


def _time_slicing(shared: Shared, where: str) -> tuple[dict[str, Any] | None, list[str]]:
    left_out = []
    replicas = None
    for resource in shared.resources:
        for key in ("rename", "devices"):
            if getattr(resource, key) not in ("all", None):
                left_out.append(
                    f"{where}: {key} of {resource.name} is left out: NVIDIA's plugin ignores it"
                )
        if resource.name == GPU:
            replicas = resource.replicas
        else:
            left_out.append(
                f"{where}: {resource.name} × {resource.replicas} needs a MIG layout; "
                "add timeSlicing to the profile with that layout"
            )
    if replicas is None:
        return None, [*left_out, f"{where}: nothing in it concerns whole GPUs; no profile is made"]
    return {"timeSlicing": {"replicas": replicas, **shared.options()}}, left_out
