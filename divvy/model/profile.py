"""Profiles as types: how the GPUs of a node are partitioned and shared."""

from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    InstanceOf,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from divvy.model.claims import Claims
from divvy.model.devices import SCHEMA as DEVICES_SCHEMA
from divvy.model.devices import DeviceSelector, parse_devices
from divvy.model.problems import Keys
from divvy.model.quantities import memory_mib
from divvy.model.stack_part import Count, MemorySize, StackPart, Text

# Of 16 GPUs, each with 7 MIG devices, these are 3.8 MB in ListAndWatch; gRPC refuses 4 MiB.
# A B200 has 384 MiB for each of them: hardly a CUDA context.
MAX_REPLICAS = 512
# A limiter looks at so many pages of a GPU: MAX_PEERS of plugin_image/limiter/cuda/peers.h.
MAX_GATED_REPLICAS = 64


# CUDA's documentation of MPS: so many client processes of one GPU since Volta, and before.
MAX_MPS_CLIENTS = 48
MAX_MPS_CLIENTS_BEFORE_VOLTA = 16


def _within_clients(replicas: int) -> int:
    if replicas > MAX_MPS_CLIENTS:
        raise ValueError(
            f"is {replicas}; {MAX_MPS_CLIENTS} or less is expected: MPS serves no more processes "
            f"of one GPU, {MAX_MPS_CLIENTS_BEFORE_VOLTA} before Volta"
        )
    return replicas


def _within_maximum(replicas: int) -> int:
    if replicas > MAX_REPLICAS:
        raise ValueError(
            f"is {replicas}; {MAX_REPLICAS} or less is expected: with more replicas the list of "
            "16 GPUs with 7 MIG devices each exceeds gRPC's 4 MiB and the kubelet refuses it, "
            "and no GPU has memory for so many processes"
        )
    return replicas


def clients_error(replicas: int, capability: tuple[int, int]) -> str:
    """Return a message if MPS serves fewer processes on GPUs of a compute capability, else ""."""
    if capability >= (7, 0) or replicas <= MAX_MPS_CLIENTS_BEFORE_VOLTA:
        return ""
    return (
        f"{replicas} replicas are more than the {MAX_MPS_CLIENTS_BEFORE_VOLTA} processes that MPS "
        "serves on a GPU before Volta"
    )


class MigRule(StackPart):
    """A MIG layout, as ``{profile: instances}`` or with its strategy."""

    layout: dict[str, Count] = Field(min_length=1)
    """Instances per GPU by MIG profile."""
    strategy: Literal["mixed", "single"] = "mixed"
    """mixed: nvidia.com/mig-<profile>; single: nvidia.com/gpu, where all devices are equal."""

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: Any) -> Any:
        if isinstance(value, dict) and not {"layout", "strategy"} & value.keys():
            return {"layout": value}
        return value


class MemoryLimit(StackPart):
    """A limit of each replica's GPU memory: a size or auto, or a mapping with an action."""

    limit: MemorySize
    """A size, or auto for an equal part of the device."""
    action: Literal["warn", "enforce", "prevent"] = "warn"
    """warn: report it; enforce: end the processes above it; prevent: refuse them more."""
    enforcement: Literal["auto", "driver", "mps", "limiter"] = "limiter"
    """By what `prevent` refuses; auto: the driver itself where it can, else the limiter."""
    oversubscribe: Annotated[float, Field(strict=True, ge=1, le=16, allow_inf_nan=False)] = 1.0
    """Let the limits add up to so many times the device: the rest goes to the host's memory."""

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: Any) -> Any:
        return value if isinstance(value, dict) else {"limit": value}

    @model_validator(mode="after")
    def _by_the_limiter(self) -> "MemoryLimit":
        if self.oversubscribe > 1 and self.action != "prevent":
            raise ValueError(
                "has `oversubscribe`, which needs the limiter: write `action: prevent`, or leave "
                "it out"
            )
        return self

    @model_validator(mode="after")
    def _enforced(self) -> "MemoryLimit":
        if "enforcement" not in self.model_fields_set:
            return self
        if self.action != "prevent":
            raise ValueError(
                "has `enforcement`, which says by what memory is refused: write `action: prevent`, "
                "or leave it out"
            )
        if self.oversubscribe > 1 and self.enforcement in ("driver", "mps"):
            raise ValueError(
                f"has `oversubscribe` and `enforcement: {self.enforcement}`: the limiter alone "
                "gives the host's memory; leave one of the two out"
            )
        return self

    @field_validator("limit")
    @classmethod
    def _size(cls, value: str) -> str:
        if value != "auto":
            memory_mib(value, "auto")
        return value


class TimeSlicing(StackPart):
    """Several containers take turns on one device, without isolation."""

    replicas: Annotated[
        int,
        Field(strict=True, ge=2, json_schema_extra={"maximum": MAX_REPLICAS}),
        AfterValidator(_within_maximum),
    ]
    """Replicas of each device, 512 at most."""
    rename_by_default: Annotated[bool, Field(strict=True)] = True
    """Advertise the replicas as <name>.shared."""
    fail_requests_greater_than_one: Annotated[bool, Field(strict=True)] = True
    """Refuse a container that requests more than one replica: it would not get more."""
    resource_name: Text | None = None
    """Advertise the replicas under this name instead."""
    memory_limit: MemoryLimit | None = None
    """Watch, or limit, each container's GPU memory."""
    compute: Literal["share", "cap"] | None = None
    """Equal parts of the GPU's time: share where others want theirs, cap in any case."""

    @model_validator(mode="after")
    def _gated(self) -> "TimeSlicing":
        enforcement = None if self.memory_limit is None else self.memory_limit.enforcement
        if enforcement == "mps":
            raise ValueError(
                "has `enforcement: mps`, and its containers are no clients of MPS: share with "
                "`mps`, or write auto, driver or limiter"
            )
        if self.compute is None:
            return self
        if self.memory_limit is None or self.memory_limit.action != "prevent":
            raise ValueError(
                "has `compute`, which the limiter divides: add "
                "`memoryLimit: {limit: auto, action: prevent}`, or leave it out"
            )
        if enforcement == "driver":
            raise ValueError(
                "has `compute`, which the limiter divides, and `enforcement: driver`: write auto "
                "or limiter, or leave `compute` out"
            )
        if self.replicas > MAX_GATED_REPLICAS:
            raise ValueError(
                f"has `compute` for {self.replicas} replicas: {MAX_GATED_REPLICAS} is the maximum, "
                "since a share tracks no more than that"
            )
        return self


class Mps(StackPart):
    """Several containers compute at the same time on one GPU, as clients of its MPS daemon."""

    replicas: Annotated[
        int,
        Field(strict=True, ge=2, json_schema_extra={"maximum": MAX_MPS_CLIENTS}),
        AfterValidator(_within_clients),
    ]
    """Replicas of each GPU, 48 at most: MPS serves no more processes of one GPU."""
    rename_by_default: Annotated[bool, Field(strict=True)] = True
    """Advertise the replicas as <name>.shared."""
    fail_requests_greater_than_one: Annotated[bool, Field(strict=True)] = False
    """Refuse a container that requests more than one replica; else it gets their sum."""
    resource_name: Text | None = None
    """Advertise the replicas under this name instead."""
    memory_limit: MemoryLimit = MemoryLimit(limit="auto")
    """Limit each process by MPS, and watch or limit each container's GPU memory."""
    active_thread_percentage: Literal["auto"] | Annotated[int, Field(strict=True, ge=1, le=100)] = (
        "auto"
    )
    """Part of the SMs that each replica's processes may use at most; auto for equal parts."""

    @field_validator("memory_limit")
    @classmethod
    def _on_the_device(cls, value: MemoryLimit) -> MemoryLimit:
        if value.oversubscribe > 1:
            raise ValueError(
                "has `oversubscribe`: MPS' own limit counts memory on the device alone; "
                "leave it out, or share with timeSlicing"
            )
        return value


class Rule(StackPart):
    """How the GPUs that it selects are partitioned and shared."""

    devices: Annotated[
        InstanceOf[DeviceSelector],
        BeforeValidator(parse_devices),
        WithJsonSchema(dict(DEVICES_SCHEMA)),
    ] = DeviceSelector()
    """The GPUs of the node that the rule takes."""
    mig: MigRule | None = None
    """Partition the GPU into MIG instances."""
    time_slicing: TimeSlicing | None = None
    """Share the GPU, or each of its MIG devices."""
    mps: Mps | None = None
    """Share the GPU by MPS: kernels of its containers run at the same time."""
    claims: Claims | None = None
    """Serve the GPU to ResourceClaims: whole, by size or as MIG devices, as pods ask."""

    @model_validator(mode="after")
    def _one_way(self) -> "Rule":
        if self.claims is None:
            return self
        beside = [
            name
            for name, value in (
                ("mig", self.mig),
                ("timeSlicing", self.time_slicing),
                ("mps", self.mps),
            )
            if value is not None
        ]
        if beside:
            raise ValueError(
                f"has `claims` and `{beside[0]}`: a claim's MIG devices are created on demand; "
                "write `mig` below `claims`, or leave one of them out"
            )
        return self

    @model_validator(mode="after")
    def _by_driver(self) -> "Rule":
        limit = self.time_slicing.memory_limit if self.time_slicing else None
        if self.mig is not None and limit is not None and limit.enforcement == "driver":
            raise ValueError(
                "has `mig` and `enforcement: driver`: the driver limits the memory of whole GPUs "
                "alone; write auto or limiter"
            )
        return self

    @model_validator(mode="after")
    def _by_mps(self) -> "Rule":
        if self.mps is not None and self.mig is not None:
            raise ValueError(
                "has `mig` and `mps`: one MPS daemon serves one whole GPU; share its MIG devices "
                "with `timeSlicing`, or leave one of the two out"
            )
        if self.mps is not None and self.time_slicing is not None:
            raise ValueError("has `mps` and `timeSlicing`: a GPU is shared in one of these ways")
        return self

    @property
    def sharing(self) -> TimeSlicing | Mps | None:
        """Return how devices are shared, None if they are not."""
        return self.time_slicing or self.mps

    @model_validator(mode="after")
    def _gated_gpus(self) -> "Rule":
        if self.mig is not None and self.time_slicing is not None and self.time_slicing.compute:
            raise ValueError(
                "has `mig` and `timeSlicing.compute`: MIG divides compute time by itself, "
                "and replicas of a MIG device take turns; leave `compute` out"
            )
        return self


class Profile(StackPart):
    """How the GPUs of one node are partitioned and shared: each GPU takes the first rule for it."""

    rules: tuple[Rule, ...]

    @property
    def by_claims(self) -> bool:
        """Return whether the nodes are served by claims instead of the device plugin.

        A node is served by one of the two: a resource name served by both could hand out one GPU
        twice. So a single rule with claims makes all GPUs of the node claims, whole where no rule
        says more.
        """
        return any(rule.claims is not None for rule in self.rules)

    def keys_of(self, name: str, index: int) -> Keys:
        """Return the keys of a rule of the profile of this name; a lone rule has no index."""
        return ("profiles", name, index) if len(self.rules) > 1 else ("profiles", name)
