"""GPUs by size in a pod's limits: the claims that the cluster's policy makes of them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from divvy.model import Cluster
from divvy.model.api_names import (
    DEVICE_ANNOTATIONS,
    FRACTION_BEFORE,
    MAX_CLAIMED_DEVICES,
    NO_TYPES,
    PRIORITY,
    TEMPLATE_PREFIX,
    TENANT_LABEL,
    USE_TYPES,
    VGPU_MODE,
)
from divvy.model.claim_names import (
    MAX_TEMPLATE_NAME,
    MAX_TYPES,
    RESERVED_TYPES,
    TYPE_IN_ANNOTATION,
    SizedRequest,
    parse_template_name,
    template_name,
    type_of_product,
)
from divvy.model.fractions import (
    CONTAINER,
    MAX_CHARACTERS,
    fraction_limits,
    fraction_problem,
    is_asked,
)
from divvy.model.problems import value_text
from divvy.model.quantities import parse_count
from divvy.model.stack import Names
from divvy.plan.fit.claim_requests import Request, requests_of
from divvy.plan.fit.pod_requests import is_sidecar

_ALL = 100


@dataclass(frozen=True)
class Sizes:
    """A pod without its sizes, and what they ask for; ``refused`` says why it cannot be created."""

    spec: Mapping[str, Any]
    requests: tuple[Request, ...] = ()
    refused: str = ""


def read_sizes(
    spec: Mapping[str, Any], meta: Mapping[str, Any], cluster: Cluster, namespace: Mapping[str, str]
) -> Sizes:
    """Turn sizes in limits into claims; ``namespace`` are the labels of the pod's."""
    claims = cluster.claims
    if not claims:
        # No policy: they are extended resources as all others.
        return Sizes(spec)
    names = cluster.names
    annotations = meta.get("annotations") or {}
    if is_asked(annotations, names) and not _has_become_claim(spec, annotations):
        labels = meta.get("labels") or {}
        if refused := fraction_problem(annotations, names, _containers(spec), labels):
            return Sizes(spec, refused=f"it would be refused: {refused}")
        spec = _with_fraction(spec, annotations, names)
    has_tenants = any(claim.tenants for claim in claims)
    tenant = (namespace.get(TENANT_LABEL) or None) if has_tenants else None
    sizes = (names.memory, names.memory_percentage, names.cores)
    of_types = bool(_listed(meta, USE_TYPES) or _listed(meta, NO_TYPES))
    requests: list[Request] = []
    # An init container that ends before the others start uses the claim of one that asks alike.
    shared: set[tuple[Request, ...]] = set()
    plain: dict[str, list[Mapping[str, Any]]] = {}
    for key in ("containers", "initContainers"):
        plain[key] = []
        for given in spec.get(key) or ():
            container = _without_ignored(given, names)
            limits = (container.get("resources") or {}).get("limits") or {}
            if {names.gpu, *sizes} & limits.keys() and (refused := _means_problem(meta)):
                return Sizes(spec, refused=f"it would be refused: {refused}")
            of_type = of_types and parse_count(limits.get(names.gpu, 0)) != 0
            if not any(size in limits for size in sizes) and not of_type:
                plain[key].append(container)
                continue
            request = _request(limits, names, meta, tenant)
            refused = _problem(limits, names) or _types_problem(meta) or _too_much(request, names)
            if refused:
                return Sizes(spec, refused=f"it would be refused: {refused}")
            # As the policy does: the name of a template says all of it.
            entry = {"name": "gpu", "resourceClaimTemplateName": template_name(request)}
            own = requests_of({"spec": {"resourceClaims": [entry]}}, (), names)
            sidecar = key == "initContainers" and is_sidecar(container)
            if sidecar or key == "containers" or own not in shared:
                requests += own
            if not sidecar:
                shared.add(own)
            named = {**limits, **(container["resources"].get("requests") or {})}
            other_resources = {
                name: quantity
                for name, quantity in named.items()
                if name not in (names.gpu, *sizes)
            }
            plain[key].append({**container, "resources": {"requests": other_resources}})
    return Sizes({**spec, **plain}, tuple(requests))


def _containers(spec: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]


def _has_become_claim(spec: Mapping[str, Any], annotations: Mapping[str, Any]) -> bool:
    """Return whether it is a live pod to which somebody has applied its annotations again."""
    return FRACTION_BEFORE in annotations and any(
        str(entry.get("resourceClaimTemplateName")).startswith(TEMPLATE_PREFIX)
        for entry in spec.get("resourceClaims") or ()
    )


def _with_fraction(
    spec: Mapping[str, Any], annotations: Mapping[str, Any], names: Names
) -> Mapping[str, Any]:
    """Return a pod whose container asks by limits for the part of a GPU of its annotations."""
    chosen = annotations.get(CONTAINER, spec["containers"][0].get("name"))
    fraction = fraction_limits(annotations, names)
    return {
        **spec,
        **{
            key: [
                _with_limits(container, fraction) if container.get("name") == chosen else container
                for container in spec.get(key) or ()
            ]
            for key in ("containers", "initContainers")
        },
    }


def _with_limits(container: Mapping[str, Any], added: Mapping[str, str]) -> dict[str, Any]:
    resources = container.get("resources") or {}
    limits = {**(resources.get("limits") or {}), **added}
    return {**container, "resources": {**resources, "limits": limits}}


def _without_ignored(container: Mapping[str, Any], names: Names) -> Mapping[str, Any]:
    """Return a container without HAMi's priority, and without cores of zero, which are none."""
    resources: dict[str, Any] = dict(container.get("resources") or {})
    for part in ("limits", "requests"):
        resources[part] = {
            name: value
            for name, value in (resources.get(part) or {}).items()
            if name != PRIORITY and not (name == names.cores and parse_count(value) == 0)
        }
    return {**container, "resources": resources}


def _means_problem(meta: Mapping[str, Any]) -> str:
    """Return which of HAMi's annotations a pod with GPUs has that cannot be followed."""
    annotations = meta.get("annotations") or {}
    if annotations.get(VGPU_MODE) == "mig":
        return f"the annotation {VGPU_MODE} is mig; request a MIG device by its resource name"
    named = [annotation for annotation in DEVICE_ANNOTATIONS if annotation in annotations]
    return f"the annotation {named[0]} is not supported" if named else ""


def _problem(limits: Mapping[str, Any], names: Names) -> str:
    """Return what the cluster's policy would not accept of a container's sizes."""
    most = {
        names.gpu: MAX_CLAIMED_DEVICES,
        names.memory_percentage: _ALL,
        names.cores: _ALL,
        names.memory: None,
    }
    for name, bound in most.items():
        number = parse_count(limits[name]) if name in limits else 1
        if number is None or number < 1 or (bound is not None and number > bound):
            expected = "1 or more" if bound is None else f"1 to {bound}"
            return f"{name} is {limits[name]}; {expected} is expected"
    if names.memory in limits and names.memory_percentage in limits:
        return f"it has both {names.memory} and {names.memory_percentage}; leave one of them out"
    return ""


def _types_problem(meta: Mapping[str, Any]) -> str:
    """Return what the policy would not accept of the annotations."""
    for annotation in (USE_TYPES, NO_TYPES):
        listed = _listed(meta, annotation)
        if len(listed) > MAX_TYPES:
            return f"{annotation} has {len(listed)} GPU types; {MAX_TYPES} at most are possible"
        for type_ in listed:
            named = re.match(TYPE_IN_ANNOTATION, type_, re.ASCII)
            if named is None or type_of_product(type_) in RESERVED_TYPES:
                return f"{annotation} has {value_text(type_)}; GPU types such as A100 are expected"
    both = {*_types(meta, USE_TYPES)} & {*_types(meta, NO_TYPES)}
    if both:
        type_ = min(both)[:MAX_CHARACTERS]
        return f"{type_} is in {USE_TYPES} and in {NO_TYPES}; name it in one of them"
    return ""


def _too_much(request: SizedRequest, names: Names) -> str:
    """Return what no template can be named for."""
    name = template_name(request)
    if parse_template_name(name) is None:
        return f"{names.memory} is {request.amount}, but counts MiB"
    if len(name) > MAX_TEMPLATE_NAME:
        return "the annotations name too many GPU types"
    return ""


def _request(
    limits: Mapping[str, Any], names: Names, meta: Mapping[str, Any], tenant: str | None
) -> SizedRequest:
    number = {name: parse_count(quantity) for name, quantity in limits.items()}
    memory, percent = number.get(names.memory), number.get(names.memory_percentage)
    sized = {names.memory, names.memory_percentage, names.cores} & number.keys()
    return SizedRequest(
        count=number.get(names.gpu) or 1,
        amount=(memory or percent or _ALL) if sized else 1,
        unit="g" if not sized else "m" if memory else "p",
        cores=number.get(names.cores),
        use_types=_types(meta, USE_TYPES),
        no_types=_types(meta, NO_TYPES),
        tenant=tenant,
    )


def _types(meta: Mapping[str, Any], annotation: str) -> tuple[str, ...]:
    return tuple(sorted(set(map(type_of_product, _listed(meta, annotation)))))


def _listed(meta: Mapping[str, Any], annotation: str) -> list[str]:
    text = str((meta.get("annotations") or {}).get(annotation) or "")
    return [item.strip() for item in text.split(",") if item.strip()]
