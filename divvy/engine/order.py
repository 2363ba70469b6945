"""The order of a stack's resources: what must come before what, and what may go at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from divvy.engine.state.resource import ResourceState


def needs(other: ResourceState, resource: ResourceState) -> bool:
    """Tell whether ``other`` must go before ``resource``."""
    if other.urn == resource.urn:
        return False
    provider = other.provider.rpartition("::")[0]
    return resource.urn in (*other.dependencies, other.parent, provider)


def in_order(resources: Mapping[str, ResourceState]) -> list[ResourceState]:
    """Sort so that parents, providers and dependencies come first; else by first appearance."""
    ordered: dict[str, ResourceState] = {}

    def add(urn: str) -> None:
        if urn in ordered or urn not in resources:
            return
        found = resources[urn]
        for needed in (found.parent, found.provider.rpartition("::")[0], *found.dependencies):
            if needed and needed != urn:
                add(needed)
        ordered[urn] = found

    for urn in resources:
        add(urn)
    return list(ordered.values())


def dependents_first(
    doomed: Sequence[ResourceState], work: Callable[[ResourceState], bool], parallel: int
) -> None:
    """Call ``work`` for each resource once all that need it are done; independent ones at once.

    ``work`` tells whether it succeeded; what a failed resource needs is left alone.
    """
    waiting = {id(found): found for found in doomed}
    running: set[int] = set()
    failed: set[int] = set()
    condition = threading.Condition()

    def free(resource: ResourceState) -> bool:
        return not any(needs(other, resource) for other in waiting.values())

    def run(resource: ResourceState) -> None:
        good = work(resource)
        with condition:
            running.discard(id(resource))
            if good:
                waiting.pop(id(resource))
            else:
                failed.add(id(resource))
            condition.notify()

    with ThreadPoolExecutor(parallel) as pool, condition:
        while True:
            for key, found in waiting.items():
                if key not in running and key not in failed and free(found):
                    running.add(key)
                    pool.submit(run, found)
            if not running:
                return
            condition.wait()
