"""The configuration file of NVIDIA's device plugin, ``version: v1``."""

import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from divvy.model.nvidia.import_result import ImportResult
from divvy.model.problems import InvalidValue, problem
from divvy.model.profile import MAX_MPS_CLIENTS
from divvy.model.resource_names import GPU, mig_resource, qualified, resource_name_error
from divvy.model.stack_part import camel_case
from divvy.model.validation import read

_MIG = mig_resource("")
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

    def unknown(self) -> Iterator[str]:
        """Yield the keys that have no field; of a mapping below one, those of the mapping.

        What stands in the wrong place has a name of its own: `resources.sharing`.
        """
        for key, value in (self.model_extra or {}).items():
            below = value if isinstance(value, dict) and value else None
            yield from [key] if below is None else (f"{key}.{name}" for name in below)


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

    def replicas(self) -> dict[str, int]:
        """Return the replicas of each device by resource."""
        return {resource.name: resource.replicas for resource in self.resources}


class _Sharing(_Open):
    time_slicing: Annotated[Shared | None, _OrNothing] = None
    """Time-slicing."""
    mps: Annotated[Shared | None, _OrNothing] = None
    """MPS."""

    @property
    def key(self) -> str:
        """Return the key of the sharing that applies: MPS if there are both."""
        return "sharing.mps" if self.mps is not None else "sharing.timeSlicing"

    @property
    def shared(self) -> Shared | None:
        """Return the sharing that applies: MPS if there are both."""
        return self.mps if self.mps is not None else self.time_slicing


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
    refuse_mps_of_mig(config)
    left_out = without_counterpart(config, name)
    left_out += single_strategy(config, name)
    if config.flags.mig_strategy == "mixed":
        left_out.append(
            f"{name}: flags.migStrategy mixed: the profile is for GPUs without MIG; their layout "
            "is in a configuration of mig-parted: import that, too, under this name"
        )
    replicas = config.sharing.shared.replicas() if config.sharing.shared is not None else {}
    where = f"{name}: {config.sharing.key}"
    for resource, count in replicas.items():
        if resource.startswith(_MIG):
            left_out.append(
                f"{where}: {resource} × {count} needs a MIG layout; "
                "add timeSlicing to the profile with that layout"
            )
        elif resource != GPU:
            left_out.append(
                f"{where}: {resource} × {count} shares nothing: NVIDIA's plugin ignores the names "
                "in `resources`, and has no such resource"
            )
    if replicas and GPU not in replicas:
        left_out.append(f"{where}: nothing in it concerns whole GPUs; no profile is made")
        return ImportResult({}, tuple(left_out))
    rule, more = whole_gpus(config, name)
    return ImportResult({name: rule}, (*left_out, *more))


def refuse_mps_of_mig(config: DevicePluginConfig) -> None:
    """Raise InvalidValue where NVIDIA's plugin does not start: MPS cannot share MIG devices."""
    mps = config.sharing.mps
    if mps is None:
        return
    mig = [name for name in mps.replicas() if name.startswith(_MIG)]
    if mig or config.flags.mig_strategy == "mixed":
        what = f"shares {', '.join(mig)}" if mig else "is together with flags.migStrategy mixed"
        reason = f"{what}, which NVIDIA's plugin refuses: MPS cannot share MIG devices"
        raise InvalidValue([problem(("sharing", "mps"), reason)])


def single_strategy(config: DevicePluginConfig, name: str) -> list[str]:
    """Return a message if a strategy "single" is lost: the profile's layout does not have it."""
    if config.flags.mig_strategy != "single":
        return []
    return [
        f"{name}: flags.migStrategy single belongs to a MIG layout here; "
        "write `mig: {layout: …, strategy: single}`"
    ]


def without_counterpart(config: DevicePluginConfig, name: str) -> list[str]:
    """Return what of a configuration no profile can express, whatever its MIG layout."""
    left_out = [f"{name}: {key} has no counterpart" for key in config.unknown()]
    left_out += [f"{name}: flags.{key} has no counterpart" for key in config.flags.unknown()]
    left_out += [f"{name}: sharing.{key} has no counterpart" for key in config.sharing.unknown()]
    shared = config.sharing.shared
    for resource in shared.resources if shared is not None else ():
        left_out += [
            f"{name}: {config.sharing.key}: {key} of {resource.name} is left out: "
            "NVIDIA's plugin ignores it"
            for key in ("rename", "devices")
            if getattr(resource, key) not in ("all", None)
        ]
    return left_out


def whole_gpus(config: DevicePluginConfig, name: str) -> tuple[dict[str, Any], list[str]]:
    """Return the rule for GPUs without MIG, and how it differs from the plugin."""
    shared = config.sharing.shared
    if shared is None or GPU not in shared.replicas():
        return {}, []
    rule = {"replicas": shared.replicas()[GPU], **shared.options()}
    if config.sharing.mps is None:
        return {"timeSlicing": rule}, []
    left_out = []
    if "fail_requests_greater_than_one" not in shared.model_fields_set:
        rule["failRequestsGreaterThanOne"] = True  # the plugin's default under MPS
    if rule["replicas"] > MAX_MPS_CLIENTS:
        left_out.append(
            f"{name}: sharing.mps: {rule['replicas']} replicas; MPS serves {MAX_MPS_CLIENTS} "
            f"processes of one GPU, and the profile has {MAX_MPS_CLIENTS}"
        )
        rule["replicas"] = MAX_MPS_CLIENTS
    left_out.append(
        f"{name}: sharing.mps: one daemon for all GPUs; by `mps` each has its own, which has been "
        "run on the simulated driver only, on no real one yet"
    )
    return {"mps": rule}, left_out
