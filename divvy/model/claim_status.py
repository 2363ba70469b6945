"""Reads the status of a ResourceClaim: its allocation, and the pods that it is reserved for.

Each raises what Python raises of a claim that is none: the reader says what is unknown then.
"""

from collections.abc import Mapping
from typing import Any


def is_allocated(claim: Mapping[str, Any]) -> bool:
    """Return whether the scheduler has allocated a claim's devices."""
    return bool((claim.get("status") or {}).get("allocation"))


def allocation_results(claim: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the allocated devices, as the API has them: of all drivers, none before allocation."""
    allocation = (claim.get("status") or {}).get("allocation") or {}
    return list((allocation.get("devices") or {}).get("results") or ())


def allocated_parameters(claim: Mapping[str, Any]) -> list[Any]:
    """Return the parameters for drivers that a claim was allocated with, its classes' too."""
    allocation = (claim.get("status") or {}).get("allocation") or {}
    return list((allocation.get("devices") or {}).get("config") or ())


def consumer_pods(claim: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return name and UID of the pods that a claim is reserved for."""
    return tuple(
        (consumer["name"], consumer.get("uid") or "")
        for consumer in (claim.get("status") or {}).get("reservedFor") or ()
        if consumer.get("resource") == "pods"
    )
