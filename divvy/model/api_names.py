"""Names that one room writes and another reads."""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from divvy.model.resource_names import VENDOR

DOMAIN = "divvy.gpu"

# On nodes.
STATUS_ANNOTATION = f"{DOMAIN}/status"
# Set by an administrator: which deployment, "namespace/name", takes over a node that is another's.
AGENT_ANNOTATION = f"{DOMAIN}/agent"
# Set by a run of `divvy verify`: the agent repeats its value in its status, and so shows that it
# watches its node, reconciles and may write.
VERIFY_ANNOTATION = f"{DOMAIN}/verify"
# Set by a run of `divvy verify` that found nothing wrong on the node: when, as Unix time.
CONFORMANCE_SUCCESS = f"{DOMAIN}/conformance-success"
PROFILE_LABEL = f"{DOMAIN}/profile"
DEVICE_PLUGIN_ALIAS, MIG_ALIAS = "nvidia.com/device-plugin.config", "nvidia.com/mig.config"
# NVIDIA's labels for the same choice, in the order in which they count.
ALIAS_LABELS = (DEVICE_PLUGIN_ALIAS, MIG_ALIAS)
# On what a run of `divvy verify` makes, and beside a PROFILE_LABEL that it has set.
CONFORMANCE_LABEL = f"{DOMAIN}/conformance"
CONFORMANCE_PROFILE = f"{DOMAIN}/conformance-profile"
CONFORMANCE_CORDON = f"{DOMAIN}/conformance-cordon"
# On the DaemonSet and the pods that prepare a pool's container runtime.
POOL_LABEL = f"{DOMAIN}/pool"

# What the agent writes to its node, and removes again: it acts on this list, and the admission
# policy holds it to the same. Written so that Python's `re` and CEL's RE2 read it alike.
_SHARING = "replicas|sharing-strategy"
_LABELS = (
    rf"gpu[.](count|product|memory|multiprocessors|family|compute[.](major|minor)|{_SHARING})",
    r"cuda[.]driver-version[.](full|major|minor|revision)",
    r"cuda[.]runtime-version[.](full|major|minor)",
    r"mig[.](capable|strategy)",
    rf"mig-[-a-z0-9.]+[.](count|memory|multiprocessors|product|{_SHARING})",
)
OWNED_LABELS = f"^{VENDOR.replace('.', '[.]')}/({'|'.join(_LABELS)})$"
OWNED_ANNOTATIONS = (STATUS_ANNOTATION,)

# In the cluster.
RUNBOOKS = "docs/troubleshooting.md"
"""The page whose headings the alerts link to, as it lies beside the program."""
AGENT = "divvy-agent"
CONFIG_MAP = "divvy"
CONFIG_KEY = "cluster.json"
# The ConfigMap that keeps the last report of `divvy verify`.
KEPT_REPORT = "divvy-conformance"
METRICS_PORT = 9410

# On nodes' disks.
CDI_FOLDER = "/var/run/cdi"
CDI_KIND = f"{DOMAIN}/gpu"
CDI_FILE = f"{DOMAIN}-gpu.json"
# Of containers whose memory the driver itself limits.
DRIVER_LIMITED_KIND = f"{DOMAIN}/driver-limited-gpu"
DRIVER_LIMITED_FILE = f"{DOMAIN}-driver-limited-gpu.json"
STATE_FOLDER = "/var/lib/divvy"
# In this host's folder the agent mounts file systems: one for the files of limited shares, and one
# for each GPU with an MPS daemon, the /dev/shm of its clients.
RUN_FOLDER = "/run/divvy"
SHARE_FOLDER = f"{RUN_FOLDER}/tenants"
MPS_FOLDER = f"{RUN_FOLDER}/mps"
# Of `divvy destroy`: where a pod that cleans a node up has the host's folders, and what the lines
# of its log begin with that say what stays there.
CLEANED_HOST = "/host"
LEFT = "left: "
# In the agent's pod.
DRIVER_ROOT = "/driver-root"
DRIVER_ROOT_VARIABLE = "DIVVY_HOST_DRIVER_ROOT"

_LIMITED = re.compile(r"/(?:limited-gpu|limiter)-([0-9a-f]{16})[=/]")
_NAME = "app.kubernetes.io/name"
_COMPONENT = "app.kubernetes.io/component"


class Component(StrEnum):
    """A part of Divvy in a cluster, as the label of its objects names it."""

    NAMESPACE = "namespace"
    CONFIGURATION = "configuration"
    AGENT = "agent"
    NODE_RUNTIME = "node-runtime"
    OBSERVABILITY = "observability"
    CLAIMS = "claims"


class State(StrEnum):
    """State of a GPU, or of a node: that of its worst GPU. From good to bad."""

    READY = "Ready"
    CHANGING = "Changing"
    WAITING = "Waiting"
    BLOCKED = "Blocked"
    DEGRADED = "Degraded"
    FAILED = "Failed"

    @property
    def severity(self) -> int:
        """How bad the state is, from 0."""
        return list(State).index(self)


class Mode(StrEnum):
    """How a device is shared, in metrics and in the conformance report."""

    WHOLE = "whole"
    TIME_SLICING = "time-slicing"
    TIME_SLICING_LIMIT = "time-slicing+limit"
    MPS = "mps"
    MPS_LIMIT = "mps+limit"
    MIG = "mig"
    MIG_TIME_SLICING = "mig+time-slicing"
    MIG_TIME_SLICING_LIMIT = "mig+time-slicing+limit"
    CLAIMS = "claims"
    FILES = "files"


# Claims: what the driver of the DRA publishes, what classes select, what the policies write.
CLAIMS_DRIVER = DOMAIN
TENANT_LABEL = f"{DOMAIN}/tenant"
USE_TYPES, NO_TYPES = "nvidia.com/use-gputype", "nvidia.com/nouse-gputype"
# HAMi's, which a cluster cannot follow: a pod that has them is refused.
VGPU_MODE = "nvidia.com/vgpu-mode"
DEVICE_ANNOTATIONS = tuple(
    f"nvidia.com/{use}-gpu{name}" for name in ("uuid", "indexes") for use in ("use", "nouse")
)
# HAMi's and KAI's, which are ignored with a warning.
PRIORITY = "nvidia.com/priority"
IGNORED_ANNOTATIONS = (
    "nvidia.com/numa-bind",
    "hami.io/node-scheduler-policy",
    "hami.io/gpu-scheduler-policy",
    "hami.io/device-scoring-weights",
    # KAI's
    "mps",
    "kai.scheduler/gpu-compute-sharing-mode",
)
# What the policy of sized limits has removed from a pod, for the one that warns to name.
IGNORED_LIMITS = f"{DOMAIN}/ignored-limits"
# Which annotations of KAI's the policy has made a claim of.
FRACTION_BEFORE = f"{DOMAIN}/fraction"
# On namespaces whose ResourceQuota limits shares, where every namespace needs one.
SHARE_QUOTA_LABEL = f"{DOMAIN}/share-quota"
# Before a class's name: the extended resource that every class has.
CLASS_RESOURCE = "deviceclass.resource.kubernetes.io/"
# What other ways of asking for GPUs begin with.
OTHER_GPUS = ("nvidia.com/gpu", "nvidia.com/mig-", f"{CLASS_RESOURCE}divvy-")
# After a class's name: what a ResourceQuota calls its devices.
CLASS_QUOTA = ".deviceclass.resource.k8s.io/devices"
CLAIM_COUNT_QUOTA = "count/resourceclaims.resource.k8s.io"
TEMPLATE_PREFIX = "divvy-"
# On pods whose limits have become claims: so the template maker need not watch all others.
BY_SIZE_LABEL = f"{DOMAIN}/by-size"
TEMPLATE_MAKER = "divvy-claim-templates"
# What the API server takes of devices for one claim, and of alternatives in one request.
MAX_CLAIMED_DEVICES, MAX_ALTERNATIVES = 32, 8
# How many templates a pod may name: the maker keeps each name, and a pod has room for thousands.
MAX_NAMED_TEMPLATES = 64
# Names of templates that one namespace may have in work at a time: pods with more wait.
MAX_TEMPLATES_OF_NAMESPACE = 256
PLUGIN_FOLDER = f"/var/lib/kubelet/plugins/{CLAIMS_DRIVER}"
REGISTRY_FOLDER = "/var/lib/kubelet/plugins_registry"
CLAIM_CDI_KIND = f"{DOMAIN}/claim"


def claims_pool(node: str) -> str:
    """Return the name of a node's pool of devices for claims.

    Up to Kubernetes 1.36.3 the scheduler keeps counters by the pool's name alone, so it must
    differ from that of every other driver.
    """
    return f"{node}/divvy"


def limited_cdi_kind(version: str) -> str:
    """Return the kind of devices of containers that have this limiter in front of their driver."""
    return f"{DOMAIN}/limited-gpu-{version}"


def limited_version(text: str) -> str:
    """Return the limiter's version in a CDI name of that kind, or in a path; "" if none is."""
    match = _LIMITED.search(text)
    return "" if match is None else match[1]


def limited_cdi_file(version: str) -> str:
    """Return the name of the specification of that kind."""
    return f"{DOMAIN}-limited-gpu-{version}.json"


def component_labels(component: Component) -> dict[str, str]:
    """Return the standard labels of an object of a component."""
    return {_NAME: "divvy", _COMPONENT: str(component)}


def component_of(obj: Mapping[str, Any]) -> str | None:
    """Return which component of Divvy an object belongs to."""
    labels: Mapping[str, str] = obj["metadata"].get("labels") or {}
    return labels.get(_COMPONENT)


def is_divvys(obj: Mapping[str, Any]) -> bool:
    """Return whether an object of the API has the label of Divvy's objects."""
    return (obj["metadata"].get("labels") or {}).get(_NAME) == "divvy"


# Of the recording rules, those that are read again.
GPUS_RECORD = "namespace_pod_kind:divvy_allocated_gpus:sum"
WAITING_RECORD = "namespace_pod:divvy_waiting:max"
