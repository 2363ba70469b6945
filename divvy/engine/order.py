"""The order of a stack's resources: what comes first, and what can be deleted at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from graphlib import CycleError, TopologicalSorter
from queue import Queue

from divvy.engine.errors import StateProblem
from divvy.engine.state.resource import ResourceState
from divvy.engine.urn import provider_reference, urn_name


def needs(other: ResourceState, resource: ResourceState) -> bool:
    """Tell whether ``other`` must be deleted before ``resource``."""
    if other is resource:
        return False
    if _serves(resource, other):
        return True
    return other.urn != resource.urn and resource.urn in (*other.dependencies, other.parent)


def in_order(resources: Mapping[str, ResourceState]) -> list[ResourceState]:
    """Sort so that parents, providers and dependencies come first; else by first appearance."""
    graph = {
        urn: [
            needed
            for needed in (
                resource.parent,
                resource.provider.rpartition("::")[0],
                *resource.dependencies,
            )
            if needed in resources and needed != urn
        ]
        for urn, resource in resources.items()
    }
    try:
        ordered = list(TopologicalSorter(graph).static_order())
    except CycleError:
        # Imported like this: deletion names the cycle, and no order is better.
        ordered = list(resources)
    return [resources[urn] for urn in ordered]


def dependents_first(
    outgoing: Sequence[ResourceState], work: Callable[[ResourceState], bool], parallel: int
) -> None:
    """Call ``work`` for each resource once all that need it are done; independent ones at once.

    ``work`` tells whether it succeeded; what a failed resource needs is left alone. What it
    raises ends the whole, once all that is running has ended. Raises StateProblem where
    resources need each other.
    """
    graph = _graph(outgoing)
    ended: Queue[tuple[int, Future[bool]]] = Queue()
    running = 0
    with ThreadPoolExecutor(parallel) as pool:
        try:
            while True:
                for index in graph.get_ready():
                    future = pool.submit(work, outgoing[index])
                    future.add_done_callback(partial(_put, ended, index))
                    running += 1
                if not running:
                    return
                index, future = ended.get()
                running -= 1
                if future.result():
                    graph.done(index)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _graph(outgoing: Sequence[ResourceState]) -> TopologicalSorter[int]:
    cycle: tuple[int, ...] = ()
    for apart in (False, True):
        # Replaced resources and their successors have one URN, and may need each other's users
        # the other way round; each generation by itself has an order.
        graph = TopologicalSorter(
            {
                index: [
                    earlier
                    for earlier, other in enumerate(outgoing)
                    if needs(other, resource)
                    and not (
                        apart and other.delete != resource.delete and not _serves(resource, other)
                    )
                ]
                for index, resource in enumerate(outgoing)
            }
        )
        try:
            graph.prepare()
        except CycleError as error:
            cycle = tuple(error.args[1])
        else:
            return graph
    names = ", ".join(sorted({urn_name(outgoing[index].urn) for index in cycle}))
    raise StateProblem(f"these depend on each other, as recorded: {names}")


def _serves(provider: ResourceState, resource: ResourceState) -> bool:
    return bool(resource.provider) and resource.provider == provider_reference(
        provider.urn, provider.id
    )


def _put(ended: Queue[tuple[int, Future[bool]]], index: int, future: Future[bool]) -> None:
    ended.put((index, future))
