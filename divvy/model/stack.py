"""The stack file as types: the whole schema of ``divvy:cluster``."""

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Field,
    field_validator,
    model_validator,
)

from divvy.model.api_names import RUNBOOKS
from divvy.model.claims import Claims
from divvy.model.profile import Profile
from divvy.model.quantities import memory_mib
from divvy.model.resource_names import GPU, VENDOR
from divvy.model.stack_part import (
    DevicePath,
    Duration,
    ImageDigest,
    Labels,
    MemorySize,
    StackPart,
    Text,
    Version,
)
from divvy.model.validation import Matches

DEFAULT_NAMESPACE = "divvy-system"
IGNORED_XIDS = (13, 31, 43, 45, 68, 109)
# More containers than a node has: the kubelet's own limit is 110 pods by default.
MAX_FILE_DEVICES = 1000
# Kubernetes supports 5,000 nodes in a cluster.
MAX_NODES = 100_000


class Hardware(StackPart):
    """What the nodes of a pool have; the plan is computed from it."""

    model: Text
    """GPU model."""
    gpus: Annotated[int, Field(strict=True, ge=1, le=64)]
    """GPUs of each node."""
    count: Annotated[int, Field(strict=True, ge=0, le=MAX_NODES)]
    """Nodes in the pool."""
    memory: MemorySize | None = None
    """Memory of a GPU, for a model that is not in the list: whole and time-sliced GPUs only."""
    os: Text | None = None
    """Operating system of the nodes, as their image is called."""

    @field_validator("memory")
    @classmethod
    def _size(cls, value: str | None) -> str | None:
        if value == "auto":
            raise ValueError("is auto; a size such as 24Gi is expected")
        if value is not None:
            memory_mib(value)
        return value

    @property
    def memory_mib(self) -> int | None:
        """Return the memory of a GPU in MiB, None if the file does not say it."""
        return None if self.memory is None else memory_mib(self.memory)


class Runtime(StackPart):
    """The container runtime on the nodes of a pool."""

    name: Literal["containerd", "docker", "cri-o"] = "containerd"
    """The runtime."""
    configure: Annotated[bool, Field(strict=True)] = False
    """Switch CDI on where it is off; false: leave the runtime alone."""


def _none_if_empty(value: object) -> object:
    """Take an empty text for none, as the API server does."""
    return None if value == "" else value


class Toleration(StackPart):
    """A Kubernetes toleration for Divvy's pods."""

    key: Annotated[str | None, BeforeValidator(_none_if_empty)] = None
    """The taint's key; absent with Exists: all taints."""
    operator: Literal["Exists", "Equal"] = "Equal"
    """How key and value are compared."""
    value: Annotated[str | None, BeforeValidator(_none_if_empty)] = None
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
        if self.toleration_seconds is not None and self.effect != "NoExecute":
            raise ValueError(
                "has `tolerationSeconds` without effect NoExecute, which alone has a time: write "
                "`effect: NoExecute`, or leave it out"
            )
        return self


def tolerations_of(pools: Iterable["Pool"]) -> list[dict[str, Any]]:
    """Return the tolerations of pools as Kubernetes has them, each once."""
    listed: list[dict[str, Any]] = []
    for pool in pools:
        for toleration in pool.tolerations:
            rendered = toleration.model_dump(by_alias=True, exclude_none=True)
            if rendered not in listed:
                listed.append(rendered)
    return listed


class Pool(StackPart):
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
    """Taints of these nodes that Divvy's pods tolerate."""


class Driver(StackPart):
    """The NVIDIA driver on the nodes."""

    version: Version | None = None
    """The version that is installed."""
    min_version: Version | None = None
    """The oldest version that is acceptable."""
    root: Annotated[str, Field(strict=True), Matches(r"^/", "an absolute path")] = "/"
    """Where the driver's files are on the host."""


class Health(StackPart):
    """When a GPU counts as unhealthy."""

    ignore_xids: tuple[Annotated[int, Field(strict=True, ge=0)], ...] = IGNORED_XIDS
    """XID errors that an application causes."""
    recover_after: Duration = 60.0
    """How long a GPU must be healthy before it is advertised again."""


class Change(StackPart):
    """What happens to pods that hold a GPU whose partitioning changes."""

    policy: Literal["wait", "evict", "never"] = "wait"
    """wait for them, evict them, or never reconfigure a GPU that is held."""
    deadline: Duration = 600.0
    """How long the agent waits before it reports Blocked."""


class ReplicaPlacement(StackPart):
    """Where the replicas that a container gets come from."""

    replicas: Literal["spread", "pack"] = "spread"
    """spread over GPUs or pack onto few."""


class FileDevices(StackPart):
    """Other vendors' device files, advertised as a resource."""

    resource: Text
    """The extended resource's name."""
    paths: tuple[DevicePath, ...] = Field(min_length=1)
    """Device files; globs are allowed."""
    count: Annotated[int, Field(strict=True, ge=1, le=MAX_FILE_DEVICES)] = 1
    """Containers of a node that may hold them at once, 1000 at most."""


class Names(StackPart):
    """Extended resources with which pods ask for GPUs by size, where profiles have claims."""

    gpu: Text = GPU
    """Number of GPUs; with a size beside it, number of shares."""
    memory: Text = f"{VENDOR}/gpumem"
    """Memory of each share in MiB."""
    memory_percentage: Text = f"{VENDOR}/gpumem-percentage"
    """Memory of each share in per cent of the GPU."""
    cores: Text = f"{VENDOR}/gpucores"
    """Compute time of each share in per cent of the GPU."""
    fraction: Text | None = None
    """Annotation with which pods ask for a part of a GPU: gpu-fraction for KAI's and Run:ai's."""
    classes: Literal["nvidia"] | None = None
    """nvidia: claims of NVIDIA's DeviceClasses gpu.nvidia.com and mig.nvidia.com are served."""

    def listed(self) -> tuple[tuple[str, str], ...]:
        """Return the names of resources by the keys of the stack file."""
        return (
            ("gpu", self.gpu),
            ("memory", self.memory),
            ("memoryPercentage", self.memory_percentage),
            ("cores", self.cores),
        )


class Quota(StackPart):
    """Whether namespaces need a ResourceQuota for what pods claim."""

    shares: Literal["optional", "required"] = "optional"
    """required: shares are refused in namespaces without the label divvy.gpu/share-quota: true."""


PlatformName = Literal["linux/amd64", "linux/arm64"]


class PluginImage(StackPart):
    """The agent's image: built and pushed to a registry, or one that exists."""

    registry: Text | None = None
    """Registry and path the image is pushed to."""
    base: Text | None = None
    """Image it is built on."""
    insecure: Annotated[bool, Field(strict=True)] = False
    """The registry speaks plain HTTP, or its certificate is not to be verified."""
    platforms: tuple[PlatformName, ...] = Field(default=("linux/amd64",), min_length=1)
    """Platforms that it is built for."""
    reference: ImageDigest | None = None
    """An image that exists, by digest."""

    @model_validator(mode="after")
    def _one_way(self) -> "PluginImage":
        if self.reference is None and self.registry is None:
            raise ValueError("needs `registry` to build and push, or `reference` to use an image")
        built = self.registry or self.base or self.insecure or "platforms" in self.model_fields_set
        if self.reference is not None and built:
            raise ValueError("has `reference` and also keys for a build: use one or the other")
        return self


class Plugin(StackPart):
    """The agent's deployment."""

    image: PluginImage | None = None
    """Its image."""

    def missing(self) -> str | None:
        """Return what a deployment lacks to have the image, None for nothing."""
        if self.image is None:
            return (
                "divvy:cluster: plugin.image is missing: name a `registry` and a `base` to build "
                "it, or a `reference` by digest"
            )
        if self.image.reference is None and self.image.base is None:
            return (
                "divvy:cluster: plugin.image.base is missing: name a Debian image with Python 3.11"
            )
        return None


class Observability(StackPart):
    """What is set up for monitoring."""

    service_monitor: Annotated[bool, Field(strict=True)] = False
    """Create a ServiceMonitor for the Prometheus Operator."""
    dashboard: Annotated[bool, Field(strict=True)] = True
    """Create the Grafana dashboard's ConfigMap."""
    alerts: Annotated[bool, Field(strict=True)] = False
    """Create a PrometheusRule for the Prometheus Operator: alerts, and records for bills."""
    network_policy: Labels | None = None
    """Labels of the namespaces whose pods may read the agents' metrics; then no others may."""
    runbooks: Text = RUNBOOKS
    """Where you publish Divvy's troubleshooting page: alerts link to their headings there."""


def _profile(value: Any) -> Any:
    """Read the short forms: one rule, or a list of rules."""
    if isinstance(value, list):
        return {"rules": value}
    if isinstance(value, dict):
        return {"rules": [value]}
    return value


class Cluster(StackPart):
    """One cluster: how every GPU of it is partitioned and shared."""

    kubeconfig: Text | None = None
    """Path of the kubeconfig; default: as for kubectl."""
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
    """What happens to pods on a GPU whose partitioning changes."""
    placement: ReplicaPlacement = ReplicaPlacement()
    """Where replicas come from."""
    devices: tuple[FileDevices, ...] = ()
    """Other vendors' device files."""
    names: Names = Names()
    """Resource names for GPUs by size."""
    quota: Quota = Quota()
    """ResourceQuotas for shares."""
    plugin: Plugin = Plugin()
    """The agent."""
    image_pull_secrets: tuple[Text, ...] = ()
    """Names of Secrets for pulling images."""
    observability: Observability = Observability()
    """Monitoring."""

    @property
    def claims(self) -> tuple[Claims, ...]:
        """Return what the rules of all profiles let pods claim, in the file's order."""
        return tuple(
            rule.claims
            for profile in self.profiles.values()
            for rule in profile.rules
            if rule.claims is not None
        )
