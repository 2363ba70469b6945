"""The stack file as types: the whole schema of ``divvy:cluster``."""

from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    InstanceOf,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from divvy.model.devices import SCHEMA as DEVICES_SCHEMA
from divvy.model.devices import DeviceSelector, parse_devices
from divvy.model.quantities import (
    DURATION_PATTERN,
    MEMORY_PATTERN,
    memory_mib,
    parse_duration,
)

DEFAULT_NAMESPACE = "divvy-system"
IGNORED_XIDS = (13, 31, 43, 45, 68, 109)


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _version_text(value: object) -> object:
    # YAML reads an unquoted 535.104 as a number.
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


Duration = Annotated[
    float,
    BeforeValidator(parse_duration),
    WithJsonSchema({"type": "string", "pattern": DURATION_PATTERN}),
]
Version = Annotated[
    str,
    BeforeValidator(_version_text),
    Field(pattern=r"^\d+(\.\d+)*$"),
    WithJsonSchema({"type": ["string", "number"]}),
]
MemorySize = Annotated[
    str,
    Field(strict=True),
    WithJsonSchema({"type": "string", "pattern": MEMORY_PATTERN}),
]
Count = Annotated[int, Field(strict=True, ge=1)]
Text = Annotated[str, Field(strict=True, min_length=1)]
Labels = Annotated[dict[str, Annotated[str, Field(strict=True)]], Field(min_length=1)]
ImageDigest = Annotated[str, Field(strict=True, pattern=r"^\S+@sha256:[0-9a-f]{64}$")]


class _Part(BaseModel):
    """What all parts of the schema have in common; the text below a field says what it is."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=_camel,
        populate_by_name=False,
    )


class MigRule(_Part):
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


class MemoryLimit(_Part):
    """A limit of each share's GPU memory, as a size or auto, or with what follows from it."""

    limit: MemorySize
    """A size, or auto for an equal part of the device."""
    action: Literal["warn", "enforce"] = "warn"
    """warn: say so; enforce: also end the container's processes on the device."""

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: Any) -> Any:
        return value if isinstance(value, dict) else {"limit": value}

    @field_validator("limit")
    @classmethod
    def _size(cls, value: str) -> str:
        if value != "auto":
            memory_mib(value)
        return value


class TimeSlicing(_Part):
    """Several containers take turns on one device; nothing keeps them apart."""

    replicas: Annotated[int, Field(strict=True, ge=2)]
    """Shares of each device."""
    rename_by_default: Annotated[bool, Field(strict=True)] = True
    """Offer the shares as <name>.shared."""
    fail_requests_greater_than_one: Annotated[bool, Field(strict=True)] = True
    """Refuse a container that asks for more than one share: it would not get more."""
    resource_name: Text | None = None
    """Offer the shares under this name instead."""
    memory_limit: MemoryLimit | None = None
    """Watch each container's GPU memory."""


class Rule(_Part):
    """How the GPUs that it selects are cut and shared."""

    devices: Annotated[
        InstanceOf[DeviceSelector],
        BeforeValidator(parse_devices),
        WithJsonSchema(dict(DEVICES_SCHEMA)),
    ] = DeviceSelector()
    """The GPUs of the node that the rule takes."""
    mig: MigRule | None = None
    """Cut the GPU into MIG instances."""
    time_slicing: TimeSlicing | None = None
    """Share the GPU, or each of its MIG devices."""


class Profile(_Part):
    """How the GPUs of one node are partitioned and shared: each GPU takes the first rule for it."""

    rules: tuple[Rule, ...]


class Hardware(_Part):
    """What the nodes of a pool have; the plan is computed from it."""

    model: Text
    """GPU model."""
    gpus: Annotated[int, Field(strict=True, ge=1, le=64)]
    """GPUs of each node."""
    count: Annotated[int, Field(strict=True, ge=0)]
    """Nodes in the pool."""
    os: Text | None = None
    """Operating system of the nodes, as their image is called."""


class Runtime(_Part):
    """The container runtime of a pool's nodes."""

    name: Literal["containerd", "docker", "cri-o"] = "containerd"
    """The runtime."""
    configure: Annotated[bool, Field(strict=True)] = False
    """Set it up for GPUs where something is missing; false: leave it alone."""


class Toleration(_Part):
    """A Kubernetes toleration for the agent's pods."""

    key: str | None = None
    """The taint's key; absent with Exists: all taints."""
    operator: Literal["Exists", "Equal"] = "Equal"
    """How key and value are compared."""
    value: str | None = None
    """The taint's value."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """The taint's effect; absent: all."""
    toleration_seconds: Annotated[int, Field(strict=True)] | None = None
    """How long a NoExecute taint is tolerated."""

    @model_validator(mode="after")
    def _complete(self) -> "Toleration":
        if self.operator == "Exists" and self.value is not None:
            raise ValueError("has a value, and operator Exists takes none: leave one of them out")
        if self.key is None and self.operator != "Exists":
            raise ValueError("has no key: name one, or write `operator: Exists` to tolerate all")
        return self


class Pool(_Part):
    """Nodes with the same hardware and profile, chosen by their labels."""

    select: Labels | None = None
    """Labels that a node must have; absent in at most one pool, the default for GPU nodes."""
    hardware: Hardware | None = None
    """What the nodes have; without it nothing can be predicted for them."""
    profile: Text
    """The profile of its nodes."""
    overrides: dict[str, Text] = {}
    """Other profiles for single nodes, by node name."""
    runtime: Runtime = Runtime()
    """The container runtime."""
    tolerations: tuple[Toleration, ...] = ()
    """Taints of these nodes that the agent tolerates."""


class Driver(_Part):
    """The NVIDIA driver on the nodes."""

    version: Version | None = None
    """The version that is installed."""
    min_version: Version | None = None
    """The oldest version that is acceptable."""
    root: Annotated[str, Field(strict=True, pattern=r"^/")] = "/"
    """Where the driver's files are on the host."""


class Health(_Part):
    """When a GPU counts as unhealthy."""

    ignore_xids: tuple[Annotated[int, Field(strict=True, ge=0)], ...] = IGNORED_XIDS
    """XID errors that an application causes."""
    recover_after: Duration = 60.0
    """How long a GPU must be well before it is offered again."""


class Change(_Part):
    """What happens to pods that hold a GPU which is to be re-cut."""

    policy: Literal["wait", "evict", "never"] = "wait"
    """wait for them, evict them, or never re-cut a GPU that is held."""
    deadline: Duration = 600.0
    """How long the agent waits before it gives up and says so."""


class ReplicaPlacement(_Part):
    """Where the shares that a container gets come from."""

    replicas: Literal["spread", "pack"] = "spread"
    """spread over GPUs or pack onto few."""


class FileDevices(_Part):
    """Device files of other vendors, offered as a resource."""

    resource: Text
    """The extended resource's name."""
    paths: tuple[Annotated[str, Field(strict=True, pattern=r"^/dev/")], ...] = Field(min_length=1)
    """Device files; globs are allowed."""
    count: Count = 1
    """Containers of a node that may hold them at once."""


class PluginImage(_Part):
    """The agent's image: built and pushed to a registry, or one that exists."""

    registry: Text | None = None
    """Registry and path the image is pushed to."""
    base: Text | None = None
    """Image it is built on."""
    reference: ImageDigest | None = None
    """An image that exists, by digest."""

    @model_validator(mode="after")
    def _one_way(self) -> "PluginImage":
        if self.reference is None and self.registry is None:
            raise ValueError("needs `registry` to build and push, or `reference` to use an image")
        if self.reference is not None and (self.registry is not None or self.base is not None):
            raise ValueError("has `reference` and what is needed to build: leave one of them out")
        return self


class Plugin(_Part):
    """The agent's deployment."""

    image: PluginImage | None = None
    """Its image."""


class Observability(_Part):
    """What is set up for monitoring."""

    service_monitor: Annotated[bool, Field(strict=True)] = False
    """Create a ServiceMonitor for the Prometheus Operator."""
    dashboard: Annotated[bool, Field(strict=True)] = True
    """Create the Grafana dashboard's ConfigMap."""
    alerts: Annotated[bool, Field(strict=True)] = False
    """Create a PrometheusRule with alerts for the Prometheus Operator."""


def _profile(value: Any) -> Any:
    """Read the short forms: one rule, or a list of rules."""
    if isinstance(value, list):
        return {"rules": value}
    if isinstance(value, dict):
        return {"rules": [value]}
    return value


class Cluster(_Part):
    """One cluster: how every GPU of it is cut and shared."""

    kubeconfig: Text | None = None
    """Path of the kubeconfig; default: the usual discovery."""
    context: Text | None = None
    """Context in the kubeconfig."""
    namespace: Text = DEFAULT_NAMESPACE
    """Namespace of everything that is deployed."""
    profiles: dict[str, Annotated[Profile, BeforeValidator(_profile)]] = Field(min_length=1)
    """Profiles by name: one rule, or a list of rules."""
    pools: dict[str, Pool] = Field(min_length=1)
    """Pools by name."""
    driver: Driver = Driver()
    """The driver on the nodes."""
    health: Health = Health()
    """When a GPU is withdrawn and when it comes back."""
    change: Change = Change()
    """What happens to pods on a GPU that is to be re-cut."""
    placement: ReplicaPlacement = ReplicaPlacement()
    """Where shares come from."""
    devices: tuple[FileDevices, ...] = ()
    """Other vendors' device files."""
    plugin: Plugin = Plugin()
    """The agent."""
    image_pull_secrets: tuple[Text, ...] = ()
    """Names of Secrets for pulling images."""
    observability: Observability = Observability()
    """Monitoring."""
