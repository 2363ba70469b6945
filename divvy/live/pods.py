"""Reads pods of the API that concern GPUs: state, age, requests."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from divvy.live.live_diff import named_resources
from divvy.live.usage import UsingPod
from divvy.model import Cluster
from divvy.model.conditions import refused_place
from divvy.model.fractions import asked_as
from divvy.model.pod_phase import is_finished
from divvy.model.problems import printable
from divvy.model.quantities import parse_count
from divvy.model.resource_names import VENDOR
from divvy.model.stack import Names
from divvy.plan.fit.claim_requests import requests_of
from divvy.plan.fit.pod_requests import counted
from divvy.plan.fit.readable import Note, readable


@dataclass(frozen=True)
class LivePod:
    """A pod that asks for devices, and where it is.

    ``requests`` are devices by resource that device plugins serve or are to serve; ``claims`` the
    containers that use each claim, by the claim's name.
    """

    pod: UsingPod
    node: str | None
    requests: Mapping[str, int]
    claims: Mapping[str, tuple[str, ...]]


# Claims of a cluster, by namespace and name.
Claims = Mapping[tuple[str, str], Mapping[str, Any]]


def live_pods(
    pods: Iterable[Mapping[str, Any]], cluster: Cluster, claimed: Claims, now: datetime, note: Note
) -> list[LivePod]:
    """Read those pods of the API that ask for devices of Divvy's; note what cannot be read."""
    named = named_resources(cluster)
    read = readable(pods, lambda raw: live_pod(raw, named, cluster.names, claimed, now), note)
    return [pod for pod in read if pod is not None]


def live_pod(
    raw: Mapping[str, Any], named: frozenset[str], names: Names, claimed: Claims, now: datetime
) -> LivePod | None:
    """Read a pod of the API, None if it has ended or asks for no device of Divvy's.

    ``named`` are the resources that the stack file names beside the vendor's.
    """
    spec, status, meta = raw["spec"], raw.get("status") or {}, raw["metadata"]
    if is_finished(raw):
        return None
    requests = {
        resource: count
        for resource, count in counted(spec, _limits).items()
        if resource.startswith(VENDOR + "/") or resource in named
    }
    claims = dict(_claims(spec, status))
    own = [
        claimed[key] for key in ((meta["namespace"], claim) for claim in claims) if key in claimed
    ]
    claims_spec = {"resourceClaims": spec.get("resourceClaims") or ()}
    sized = requests_of({"spec": claims_spec, "status": status}, own, names)
    if not requests and not sized:
        return None
    state, reason = _state(raw)
    created = printable(meta.get("creationTimestamp") or "")
    words = [f"{resource} ×{count}" for resource, count in sorted(requests.items())]
    words += [request.words for request in sized]
    if sized and (asked := asked_as(meta.get("annotations") or {}, names)):
        words.append(f"by {asked}")
    pod = UsingPod(
        namespace=printable(meta["namespace"]),
        name=printable(meta["name"]),
        state=printable(state),
        reason=printable(reason),
        created=created or None,
        age_seconds=_age(created, now),
        requests=tuple(printable(word) for word in words),
    )
    by_claims = {mapping["resourceName"] for mapping in _extended(status)}
    unclaimed = {name: count for name, count in requests.items() if name not in by_claims}
    return LivePod(pod, spec.get("nodeName") or None, unclaimed, claims)


def _state(pod: Mapping[str, Any]) -> tuple[str, str]:
    """Return a pod's state and its reason, as kubectl sums them up."""
    status = pod.get("status") or {}
    if pod["metadata"].get("deletionTimestamp"):
        return "Terminating", ""
    for container_status in (
        *_list(status, "initContainerStatuses"),
        *_list(status, "containerStatuses"),
    ):
        waiting = (container_status.get("state") or {}).get("waiting")
        if waiting and waiting.get("reason") not in (None, "PodInitializing"):
            return str(waiting["reason"]), str(waiting.get("message") or "")
    if no_place := refused_place(pod):
        return str(no_place.get("reason") or "Pending"), str(no_place.get("message") or "")
    return str(status.get("phase") or "Unknown"), str(status.get("message") or "")


def _limits(container: Mapping[str, Any]) -> Mapping[str, int]:
    limits = (container.get("resources") or {}).get("limits") or {}
    counts = {name: parse_count(quantity) for name, quantity in limits.items() if "/" in name}
    return {name: count for name, count in counts.items() if count}


def _claims(
    spec: Mapping[str, Any], status: Mapping[str, Any]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    claim_names = {
        claim_status["name"]: claim_status.get("resourceClaimName")
        for claim_status in _list(status, "resourceClaimStatuses")
    }
    containers = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    for entry in spec.get("resourceClaims") or ():
        name = entry.get("resourceClaimName") or claim_names.get(entry["name"])
        if name:
            yield (
                name,
                tuple(
                    printable(container["name"])
                    for container in containers
                    if any(
                        used["name"] == entry["name"]
                        for used in (container.get("resources") or {}).get("claims") or ()
                    )
                ),
            )
    extended = status.get("extendedResourceClaimStatus") or {}
    if extended.get("resourceClaimName"):
        using = dict.fromkeys(printable(mapping["containerName"]) for mapping in _extended(status))
        yield extended["resourceClaimName"], tuple(using)


def _extended(status: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return which extended resources of a pod became requests of a claim."""
    return _list(status.get("extendedResourceClaimStatus") or {}, "requestMappings")


def _list(status: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    return status.get(key) or []


def _age(created: str, now: datetime) -> float | None:
    try:
        return max((now - datetime.fromisoformat(created)).total_seconds(), 0.0)
    except (ValueError, TypeError):
        return None
