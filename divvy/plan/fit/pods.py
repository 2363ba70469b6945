"""A pod as the scheduler sees it: what it asks for, and where it may go."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from divvy.model import Cluster
from divvy.model.api_names import (
    CLASS_RESOURCE,
    DEVICE_ANNOTATIONS,
    DOMAIN,
    IGNORED_ANNOTATIONS,
    NO_TYPES,
    SHARE_QUOTA_LABEL,
    USE_TYPES,
    VGPU_MODE,
)
from divvy.model.claim_names import NVIDIA, SHARE_CLASS
from divvy.model.fractions import KAI_FRACTION, MEMORY, asked_as, asking
from divvy.model.nvidia_claims import parameters_problem
from divvy.model.problems import printable
from divvy.model.resource_names import gpu_resource
from divvy.plan.fit.claim_requests import Request, classes_of_others, names_of_own, requests_of
from divvy.plan.fit.node_selection import NodeSelection, node_selection
from divvy.plan.fit.pod_requests import claim_requests, most_per_container, pod_requests
from divvy.plan.fit.sizes import read_sizes

DEFAULT_SCHEDULER = "default-scheduler"
# KAI's and Run:ai's (gpu-fraction, gpu-memory, mps), HAMi's, Volcano's and what comes after them;
# not those of this domain.
_ASKS_FOR_GPUS = re.compile(
    rf"^(?!{re.escape(DOMAIN)}/)(.*gpu|mps$|(.+\.)?(hami\.io|nvidia\.com|run\.?ai)/)", re.IGNORECASE
)
# They are read, or refused, where GPUs are given by size.
_FOLLOWED = (USE_TYPES, NO_TYPES, VGPU_MODE, *DEVICE_ANNOTATIONS)
_FRACTIONS = (KAI_FRACTION, MEMORY)
# Numbers of priority classes that every cluster has.
SYSTEM_PRIORITIES = {
    "system-node-critical": 2_000_001_000,
    "system-cluster-critical": 2_000_000_000,
}


@dataclass(frozen=True)
class PodToFit:
    """Pods that are alike: ``copies`` of them.

    ``requests`` are cpu in cores, memory in bytes, extended resources in numbers; ``most`` is the
    most that one container asks for. ``by_claim`` is how a node that offers no such resource could
    serve one with a claim: each request with its name and count. ``claims`` are what the pod claims
    on any node, ``new_claims`` the specifications of those that are yet to be made.
    ``on_every_node``: one on each node that it may go to. ``blocked_reason`` says why the scheduler
    would not look at it. ``unchecked`` names what is not checked of its claims, which leaves fewer
    devices; ``unread`` names what could not be read, with which it may get others.
    """

    kind: str
    namespace: str
    name: str
    copies: int
    requests: Mapping[str, Fraction]
    most: Mapping[str, int]
    by_claim: Mapping[str, tuple[tuple[str, int], ...]]
    claims: tuple[Request, ...]
    selection: NodeSelection
    new_claims: tuple[Mapping[str, Any], ...] = ()
    priority: int = 0
    on_every_node: bool = False
    blocked_reason: str = ""
    unchecked: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def full_name(self) -> str:
        """Return ``namespace/name``."""
        return f"{self.namespace}/{self.name}"


def unknown_pod(kind: str, namespace: str, name: str, words: Iterable[str]) -> PodToFit:
    """Return what stands for a pod that is not understood."""
    return PodToFit(
        kind=kind,
        namespace=printable(namespace),
        name=printable(name),
        copies=1,
        requests={},
        most={},
        by_claim={},
        claims=(),
        selection=node_selection({}),
        unread=tuple(map(printable, words)),
    )


@dataclass(frozen=True)
class Around:
    """What else decides about a pod: labels of namespaces, priorities, claims and templates.

    ``claims`` are specifications of claims by namespace and name, ``templates`` of templates;
    ``shared`` are claims that several pods have, or that have their devices already. ``unread``
    is what of a claim, a template or a namespace, by kind, namespace and name, is not understood;
    ``classes`` are device classes of others with the texts in each, of which one may be an extended
    resource that it serves.
    """

    namespaces: Mapping[str, Mapping[str, str]]
    priorities: Mapping[str, int]
    default_priority: int
    claims: Mapping[tuple[str, str], Mapping[str, Any]]
    templates: Mapping[tuple[str, str], Mapping[str, Any]]
    shared: frozenset[tuple[str, str]] = frozenset()
    unread: Mapping[tuple[str, str, str], tuple[str, ...]] = field(default_factory=dict)
    classes: Mapping[str, frozenset[str]] = field(default_factory=dict)


def claims_by_name(spec: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the claims that a pod names, which other pods may have, too."""
    entries = spec.get("resourceClaims") or ()
    names = (entry.get("resourceClaimName") for entry in entries)
    return tuple(dict.fromkeys(str(name) for name in names if name))


def asking_pod(
    raw: Mapping[str, Any],
    cluster: Cluster,
    around: Around,
    *,
    kind: str = "Pod",
    name: str = "",
    copies: int = 1,
) -> PodToFit:
    """Read a pod, or the template of one; its shape has been checked."""
    meta, spec = raw.get("metadata") or {}, raw["spec"]
    namespace = str(meta.get("namespace") or "default")
    notes: list[str] = []
    sizes = read_sizes(spec, meta, cluster, around.namespaces.get(namespace, {}))
    spec = sizes.spec
    requests = pod_requests(spec)
    claims, problem = _claims(spec, cluster, around, namespace)
    created = {
        status["name"] for status in (raw.get("status") or {}).get("resourceClaimStatuses") or ()
    }
    gates = [
        str(scheduling_gate.get("name")) for scheduling_gate in spec.get("schedulingGates") or ()
    ]
    blocked_reason = f"its scheduling gates are closed: {', '.join(gates)}" if gates else problem
    shares = _asks_for_shares((*sizes.requests, *claims.requests), requests)
    refused = sizes.refused or (_quota_problem(cluster, around, namespace, notes) if shares else "")
    blocked_reason = refused or blocked_reason
    notes += _not_looked_at(spec)
    annotations = meta.get("annotations") or {}
    if (asked := asked_as(annotations, cluster.names)) and (sizes.requests or claims.requests):
        notes.append(f"it asks by annotation: {asked}")
    ignored = [name for name in IGNORED_ANNOTATIONS if name in annotations]
    notes += [f"Divvy ignores the annotation {name}" for name in ignored]
    return PodToFit(
        kind=kind,
        namespace=printable(namespace),
        name=printable(name or meta.get("name") or meta.get("generateName") or ""),
        copies=copies,
        requests=requests,
        most=most_per_container(spec),
        by_claim={request: claim_requests(spec, request) for request in requests if "/" in request},
        claims=(*sizes.requests, *claims.requests),
        selection=node_selection(spec),
        new_claims=(
            *map(_specification, sizes.requests),
            *(made_of for name, made_of in claims.templates.items() if name not in created),
        ),
        priority=_priority(spec, around, notes),
        on_every_node=kind == "DaemonSet",
        blocked_reason=printable(blocked_reason),
        unchecked=_words(claims.unchecked),
        unread=(
            *_words(claims.unread),
            *map(printable, _unread(meta, spec, cluster, around, requests)),
            *(around.unread.get(("Namespace", "", namespace), ()) if shares else ()),
        ),
        notes=tuple(map(printable, notes)),
    )


def _asks_for_shares(claims: Iterable[Request], resources: Iterable[str]) -> bool:
    """Return whether a pod asks for a share, by claim or by resource name."""
    shared, of_class = gpu_resource(shared=True), f"{CLASS_RESOURCE}{SHARE_CLASS}"
    return any(claim.kind == "share" for claim in claims) or any(
        name == shared or name.startswith(of_class) for name in resources
    )


def _quota_problem(cluster: Cluster, around: Around, namespace: str, notes: list[str]) -> str:
    """Return why a namespace cannot have shares, "" if it can; adds a note if that is unknown."""
    if cluster.quota.shares != "required" or not any(claim.shares for claim in cluster.claims):
        return ""
    labels = around.namespaces.get(namespace)
    if labels is None:
        notes.append(
            f"shares are refused unless its namespace has the label {SHARE_QUOTA_LABEL}: true"
        )
    elif labels.get(SHARE_QUOTA_LABEL) != "true":
        return (
            f"it would be refused: shares need a quota, and the namespace {namespace} has "
            f"no label {SHARE_QUOTA_LABEL}: true"
        )
    return ""


@dataclass
class _Claims:
    """What the claims of a pod ask for; by claim what is not looked at.

    ``templates`` are what claims are made of, by their name in the pod.
    """

    requests: list[Request] = field(default_factory=list)
    templates: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    unchecked: dict[str, list[str]] = field(default_factory=dict)
    unread: dict[str, list[str]] = field(default_factory=dict)


def _claims(
    spec: Mapping[str, Any], cluster: Cluster, around: Around, namespace: str
) -> tuple[_Claims, str]:
    """Return what the pod's own claims ask for, and which of them is missing, or refused."""
    claims, problem = _Claims(), ""
    for entry in spec.get("resourceClaims") or ():
        template, claim = entry.get("resourceClaimTemplateName"), entry.get("resourceClaimName")
        kind = "ResourceClaimTemplate" if template else "ResourceClaim"
        words = around.unread.get((kind, namespace, str(template or claim)), ())
        if not template and not claim:
            words = ("which claim or template it is",)
        if words:
            claims.unread.setdefault(str(template or claim or entry.get("name")), []).extend(words)
            continue
        ours = requests_of({"spec": {"resourceClaims": [entry]}}, (), cluster.names)
        if ours:
            claims.requests += ours
            claims.templates[str(entry.get("name"))] = _specification(*ours)
        elif template and (namespace, template) in around.templates:
            claims.templates[str(entry.get("name"))] = around.templates[namespace, template]
            specification = around.templates[namespace, template]
            problem = problem or _read(claims, template, specification, cluster, around)
        elif claim and (namespace, claim) in around.claims:
            specification = around.claims[namespace, claim]
            problem = problem or _read(claims, claim, specification, cluster, around)
            if (namespace, claim) in around.shared:
                claims.unread.setdefault(claim, []).append("which pods share it")
        else:
            problem = problem or f"there is no {kind} {template or claim} in namespace {namespace}"
    return claims, problem


def _specification(request: Request) -> Mapping[str, Any]:
    """Return as much of a claim by size as quotas count."""
    exactly = {"deviceClassName": request.device_class, "count": request.count}
    return {"devices": {"requests": [{"exactly": exactly}]}}


def _read(
    claims: _Claims, name: str, spec: Mapping[str, Any], cluster: Cluster, around: Around
) -> str:
    """Add what a claim asks for; return why Divvy would refuse it, "" if it would not."""
    claim = {"metadata": {"name": name}, "spec": spec}
    requests = requests_of({"spec": {}}, [claim], cluster.names)
    others = list(classes_of_others(spec, cluster.names))
    unchecked = list(others)
    if any(request.selectors for request in requests):
        unchecked.append("conditions (CEL)")
    unchecked += [word for request in requests for word in request.unchecked]
    unread = [word for request in requests for word in request.unread]
    unread += [
        f"the DeviceClass {request.device_class}, which is not Divvy's"
        for request in requests
        if request.device_class in around.classes
    ]
    configs = (spec.get("devices") or {}).get("config") or ()
    for config in configs:
        opaque = config.get("opaque") if isinstance(config, dict) else None
        driver = opaque.get("driver") if isinstance(opaque, dict) else None
        if driver != NVIDIA or others or not requests:
            unread.append(f"its configuration for the driver {driver}")
    claims.requests += requests
    for words_by_claim, words in ((claims.unchecked, unchecked), (claims.unread, unread)):
        if words:
            words_by_claim.setdefault(name, []).extend(dict.fromkeys(words))
    problem = parameters_problem(configs, [*names_of_own(spec, cluster.names)])
    return problem and f"claim {name} has {problem}"


def _words(by_claim: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    return tuple(
        printable(f"not looked at in claim {name}: {', '.join(words)}")
        for name, words in by_claim.items()
    )


def _unread(
    meta: Mapping[str, Any],
    spec: Mapping[str, Any],
    cluster: Cluster,
    around: Around,
    requests: Iterable[str],
) -> Iterator[str]:
    """Yield what decides about a pod and is somebody else's: annotations, schedulers, classes."""
    by_size = (*_FOLLOWED, *(asking(cluster.names) if cluster.names.fraction else ()))
    for name in meta.get("annotations") or ():
        known = IGNORED_ANNOTATIONS + (by_size if cluster.claims else ())
        if name not in known and _ASKS_FOR_GPUS.search(str(name)):
            hint = "; `names.fraction` would make a share of it" if name in _FRACTIONS else ""
            yield f"the annotation {name} is not Divvy's: whoever reads it may give GPUs{hint}"
    scheduler = spec.get("schedulerName") or DEFAULT_SCHEDULER
    if scheduler != DEFAULT_SCHEDULER:
        yield f"its scheduler is {scheduler}, not Kubernetes' own"
    for name, texts in around.classes.items():
        for asked in sorted({*texts, f"{CLASS_RESOURCE}{name}"} & set(requests)):
            yield f"the DeviceClass {name}, which is not Divvy's, serves {asked}, too"


def _priority(spec: Mapping[str, Any], around: Around, notes: list[str]) -> int:
    if isinstance(spec.get("priority"), int):
        return int(spec["priority"])
    name = spec.get("priorityClassName")
    if not name:
        return around.default_priority
    known = {**SYSTEM_PRIORITIES, **around.priorities}
    if name not in known:
        notes.append(f"its priority class {name} is not known here; it counts as 0")
    return known.get(name, 0)


def _not_looked_at(spec: Mapping[str, Any]) -> list[str]:
    affinity = spec.get("affinity") or {}
    ignored = [f"affinity.{key}" for key in ("podAffinity", "podAntiAffinity") if affinity.get(key)]
    ignored += ["topologySpreadConstraints"] if spec.get("topologySpreadConstraints") else []
    containers: list[Mapping[str, Any]] = list(spec.get("containers") or ())
    containers += [
        container
        for container in spec.get("initContainers") or ()
        if container.get("restartPolicy") == "Always"
    ]
    if any(
        port.get("hostPort") for container in containers for port in container.get("ports") or ()
    ):
        ignored.append("host ports")
    volumes = spec.get("volumes") or ()
    if any({"persistentVolumeClaim", "ephemeral"} & volume.keys() for volume in volumes):
        ignored.append("volumes")
    return [f"not looked at: {', '.join(ignored)}"] if ignored else []
