"""A stack's resources in the middle of a run: as they were, as they are, what is to be deleted."""

from __future__ import annotations

import threading
from collections.abc import Collection
from dataclasses import replace

from divvy.engine.errors import StepFailed
from divvy.engine.goal import Goal
from divvy.engine.order import in_order
from divvy.engine.recorded import differs
from divvy.engine.state.journal import Journal
from divvy.engine.state.resource import ResourceState, renamed
from divvy.engine.state.stack_state import Pending, StackState
from divvy.engine.urn import urn_name


class RunState:
    """Keeps what was and what is now, and journals every change; called from many threads.

    ``changed``: something is recorded otherwise than the run found it, be it an option or
    an output of the stack alone.
    """

    def __init__(self, journal: Journal, state: StackState) -> None:
        self._journal = journal
        self._old = state.live()
        self._leftovers = [resource for resource in state.resources if resource.delete]
        self._pending = {resource.urn: resource for resource in state.pending}
        self._new: dict[str, ResourceState] = {}
        self._claimed: set[str] = set()
        self._followed: dict[str, str] = {}
        self._lock = threading.Lock()
        self.changed = False

    def before(self) -> list[ResourceState]:
        """Return what the run found and has not registered, left-over ones included."""
        with self._lock:
            return [*self._old.values(), *self._leftovers]

    def claim(self, urn: str) -> None:
        """Reserve a URN for one registration; raises StepFailed for a second one."""
        with self._lock:
            if urn in self._claimed:
                raise StepFailed(f"{urn_name(urn)} is registered twice: give each its own name")
            self._claimed.add(urn)

    def registered(self, urn: str) -> ResourceState | None:
        """Return a resource that the program has registered."""
        with self._lock:
            return self._new.get(urn)

    def all_registered(self) -> list[ResourceState]:
        """Return every resource that the program has registered so far."""
        with self._lock:
            return list(self._new.values())

    def old(self, goal: Goal) -> ResourceState | None:
        """Return what the run found of a resource, under its URN or an alias.

        Raises StepFailed if another resource has already followed the same alias.
        """
        with self._lock:
            for urn in (goal.urn, *goal.aliases):
                if urn in self._old and (urn == goal.urn or urn not in self._claimed):
                    if urn != goal.urn:
                        self._rename(urn, goal.urn)
                        self._followed[urn] = goal.urn
                    return self._old[goal.urn]
                if urn in self._followed:
                    raise StepFailed(
                        f"{urn_name(goal.urn)} and {urn_name(self._followed[urn])} both have the "
                        f"alias {urn}: only one of them can be that resource"
                    )
        return None

    def pending(self) -> list[Pending]:
        """Return the creations whose end is unknown."""
        with self._lock:
            return list(self._pending.values())

    def recovered(self, resource: ResourceState) -> None:
        """Note that a cut-off creation has made this; what it was to replace goes."""
        with self._lock:
            self._pending.pop(resource.urn, None)
            before = self._old.get(resource.urn)
            replaced = None if before is None else replace(before, delete=True)
            self._old[resource.urn] = resource
            if replaced is not None:
                self._leftovers.append(replaced)
        self._journal.done(resource, replaced)

    def began(self, operation: str, urn: str, resource: ResourceState) -> None:
        """Note that a creation is about to happen."""
        self._journal.began(operation, urn, resource.id, resource)  # else nothing is created
        with self._lock:
            self._pending[urn] = Pending(operation, urn, resource.id, resource)

    def abandoned(self, urn: str) -> None:
        """Note that what began has made nothing."""
        with self._lock:
            self._pending.pop(urn, None)
        self._journal.abandoned(urn)

    def is_now(self, new: ResourceState, old: ResourceState | None = None) -> None:
        """Note how a resource is now; nothing is journaled where it is as ``old``."""
        with self._lock:
            self._new[new.urn] = new
            self._pending.pop(new.urn, None)
        if old is None or differs(new, old):
            self.changed = True
            self._journal.done(new)

    def replaced(self, new: ResourceState, old: ResourceState) -> None:
        """Note a resource and, at once, that the one it has replaced goes at the run's end."""
        leftover = replace(old, delete=True)
        with self._lock:
            self._new[new.urn] = new
            self._pending.pop(new.urn, None)
            self._old.pop(new.urn, None)
            self._leftovers.append(leftover)
        self.changed = True
        self._journal.done(new, leftover)

    def leftovers(self, urn: str) -> list[ResourceState]:
        """Return what a resource has replaced, and what still waits for its deletion."""
        with self._lock:
            return [resource for resource in self._leftovers if resource.urn == urn]

    def restored(self, leftover: ResourceState, successor: ResourceState) -> ResourceState:
        """Note that a replaced resource is the wanted one again, and its successor goes."""
        again, outgoing = replace(leftover, delete=False), replace(successor, delete=True)
        with self._lock:
            self._old[again.urn] = again
            self._leftovers = [other for other in self._leftovers if other is not leftover]
            self._leftovers.append(outgoing)
        self.changed = True
        # In this order: recorded twice it is one object still, recorded nowhere it is lost.
        self._journal.done(again, outgoing)
        self._journal.gone(leftover)
        return again

    def gone(self, resource: ResourceState) -> None:
        """Note that a resource was deleted."""
        self._journal.gone(resource)
        with self._lock:
            if resource.delete:
                self._leftovers = [other for other in self._leftovers if other != resource]
            elif resource.urn in self._old and self._old[resource.urn].id == resource.id:
                del self._old[resource.urn]

    def dropped(self) -> list[ResourceState]:
        """Return what the program no longer has: replaced or removed."""
        removed = [resource for urn, resource in self._old.items() if urn not in self._new]
        return [*self._leftovers, *removed]

    def write(self) -> None:
        """Write the checkpoint, in dependency order."""
        # A provider comes before what it made, also among the left-over ones.
        leftovers = sorted(self._leftovers, key=lambda resource: bool(resource.provider))
        present = in_order({**self._old, **self._new})
        known = {resource.urn for resource in [*present, *leftovers]}
        whole = [_without_lost(resource, known) for resource in [*present, *leftovers]]
        self._journal.write(whole, self._pending.values())

    def _rename(self, before: str, after: str) -> None:
        followed = [renamed(resource, before, after) for resource in self._old.values()]
        self._old = {resource.urn: resource for resource in followed}
        self._leftovers = [renamed(resource, before, after) for resource in self._leftovers]
        self.changed = True
        self._journal.renamed(before, after)


def _without_lost(resource: ResourceState, known: Collection[str]) -> ResourceState:
    """Return a resource without references to resources that are gone."""
    return replace(
        resource,
        parent=resource.parent if resource.parent in known else "",
        dependencies=tuple(urn for urn in resource.dependencies if urn in known),
        property_dependencies={
            key: tuple(urn for urn in urns if urn in known)
            for key, urns in resource.property_dependencies.items()
        },
    )
