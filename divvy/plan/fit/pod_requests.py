"""A pod's requests as the scheduler counts them: containers, sidecars and init containers."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any, TypeVar

from divvy.model.quantities import parse_quantity

_Number = TypeVar("_Number", int, Fraction)
RequestsOf = Callable[[Mapping[str, Any]], Mapping[str, _Number]]


def is_sidecar(container: Mapping[str, Any]) -> bool:
    """Return whether an init container keeps running beside the others."""
    return container.get("restartPolicy") == "Always"


def counted(spec: Mapping[str, Any], requests_of: RequestsOf[_Number]) -> dict[str, _Number]:
    """Return a pod's requests; ``requests_of`` reads one container's.

    All containers with the sidecars, or an init container with the sidecars before it, whichever
    is more (k8s.io/component-helpers/resource, PodRequests).
    """
    total: dict[str, _Number] = {}
    for container in spec.get("containers") or ():
        _add(total, requests_of(container))
    sidecars: dict[str, _Number] = {}
    most: dict[str, _Number] = {}
    for container in spec.get("initContainers") or ():
        own = requests_of(container)
        if is_sidecar(container):
            _add(total, own)
            _add(sidecars, own)
            _raise_to(most, sidecars)
        else:
            beside = dict(sidecars)
            _add(beside, own)
            _raise_to(most, beside)
    _raise_to(total, most)
    return total


def container_requests(container: Mapping[str, Any]) -> dict[str, Fraction]:
    """Return what a container asks for, limits standing for requests that it leaves out.

    What is no quantity is left out.
    """
    resources = container.get("resources") or {}
    named = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return quantities(named)


def pod_requests(spec: Mapping[str, Any]) -> dict[str, Fraction]:
    """Return everything that the scheduler counts of a pod; cpu in cores, memory in bytes."""
    total = counted(spec, container_requests)
    # Of the whole pod instead of its containers' (PodLevelResources); a limit stands only for what
    # no container requests, and for huge pages (pkg/apis/core/v1/defaults.go, defaultPodRequests).
    resources = spec.get("resources") or {}
    own = {
        name: limit
        for name, limit in quantities(resources.get("limits") or {}).items()
        if name not in total or name.startswith("hugepages-")
    }
    own |= quantities(resources.get("requests") or {})
    total |= {name: quantity for name, quantity in own.items() if "/" not in name}
    _add(total, quantities(spec.get("overhead") or {}))
    return {name: number for name, number in total.items() if number}


def most_per_container(spec: Mapping[str, Any]) -> dict[str, int]:
    """Return the most that one container asks for, by extended resource."""
    most: dict[str, int] = {}
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        for name, number in container_requests(container).items():
            if "/" in name:
                most[name] = max(most.get(name, 0), int(number))
    return most


def claim_requests(spec: Mapping[str, Any], resource: str) -> tuple[tuple[str, int], ...]:
    """Return the requests for a resource in the claim that the scheduler makes of it: name, count.

    One for each container and sidecar, and one for the most that an init container needs beyond
    those that start later (its DynamicResources plugin, createRequestsAndMappings).
    """
    inits: Sequence[Mapping[str, Any]] = spec.get("initContainers") or ()
    containers = [*inits, *(spec.get("containers") or ())]
    named = [container_requests(container) for container in containers]
    requested = [int(requests.get(resource, Fraction(0))) for requests in named]
    stays = [at >= len(inits) or is_sidecar(container) for at, container in enumerate(containers)]
    counts = [count if stay else 0 for count, stay in zip(requested, stays, strict=True)]
    beyond = {at: requested[at] - sum(counts[at:]) for at, stay in enumerate(stays) if not stay}
    if beyond:
        first = max(beyond, key=lambda at: (beyond[at], -at))
        counts[first] = max(beyond[first], 0)
    return tuple(
        (f"container-{at}-request-{sorted(named[at]).index(resource)}", count)
        for at, count in enumerate(counts)
        if count
    )


def quantities(named: Mapping[str, object]) -> dict[str, Fraction]:
    """Return those values that are quantities."""
    by_name = {}
    for name, value in named.items():
        try:
            by_name[name] = parse_quantity(value)
        except ValueError:
            continue
    return by_name


def _add(total: dict[str, _Number], more: Mapping[str, _Number]) -> None:
    for name, number in more.items():
        total[name] = total[name] + number if name in total else number


def _raise_to(total: dict[str, _Number], least: Mapping[str, _Number]) -> None:
    for name, number in least.items():
        total[name] = max(total[name], number) if name in total else number


def sum_of(parts: Iterable[Mapping[str, Fraction]]) -> dict[str, Fraction]:
    """Add up requests."""
    total: dict[str, Fraction] = {}
    for part in parts:
        _add(total, part)
    return total
