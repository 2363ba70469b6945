"""A stack's resources in the middle of a run: what was, what is by now, what is left to delete."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from divvy.engine.goal import Goal
from divvy.engine.order import in_order
from divvy.engine.recorded import differs
from divvy.engine.state.resource import ResourceState, renamed
from divvy.engine.state.store import StackState, StateStore
from divvy.engine.values import unwrapped


class RunState:
    """Keeps both lists and journals every change of them; a preview journals nothing."""

    def __init__(self, store: StateStore, state: StackState, *, preview: bool) -> None:
        self._store = store
        self._preview = preview
        self._old = state.live()
        self._leftovers = [found for found in state.resources if found.delete]
        self._pending = {found.urn: found for found in state.pending}
        self._new: dict[str, ResourceState] = {}
        self._lock = threading.Lock()

    def before(self) -> list[ResourceState]:
        """Return what the run found."""
        return list(self._old.values())

    def registered(self, urn: str) -> ResourceState | None:
        """Return a resource that the program has registered."""
        with self._lock:
            return self._new.get(urn)

    def old(self, goal: Goal) -> ResourceState | None:
        """Return what the run found of a resource, under its URN or an alias."""
        with self._lock:
            for urn in (goal.urn, *goal.aliases):
                if urn in self._old:
                    if urn != goal.urn:
                        self._rename(urn, goal.urn)
                    return self._old[goal.urn]
        return None

    def begun_inputs(self, urn: str) -> Mapping[str, Any] | None:
        """Return the inputs of a creation that was cut off: its automatic name is to be used."""
        begun = self._pending.get(urn)
        return None if begun is None or begun.made is None else unwrapped(dict(begun.made.inputs))

    def began(
        self, operation: str, urn: str, identity: str, made: ResourceState | None = None
    ) -> None:
        """Note that a step is about to happen."""
        if not self._preview:
            self._store.began(operation, urn, identity, made)

    def is_now(self, new: ResourceState, old: ResourceState | None = None) -> None:
        """Note how a resource is now; nothing is journaled where it is as ``old``."""
        with self._lock:
            self._new[new.urn] = new
        if not self._preview and (old is None or differs(new, old)):
            self._store.done(new)

    def read(self, resource: ResourceState) -> None:
        """Note a resource that the program reads and the stack does not own."""
        with self._lock:
            self._new[resource.urn] = resource

    def to_be_deleted(self, old: ResourceState) -> None:
        """Note that a replaced resource goes at the end of the run."""
        leftover = replace(old, delete=True)
        self._store.done(leftover)
        with self._lock:
            self._leftovers.append(leftover)

    def gone(self, resource: ResourceState) -> None:
        """Note that a resource was deleted."""
        if not self._preview:
            self._store.gone(resource)
        with self._lock:
            if resource.delete:
                self._leftovers = [one for one in self._leftovers if one != resource]
            elif resource.urn in self._old and self._old[resource.urn].id == resource.id:
                del self._old[resource.urn]

    def dropped(self, targets: Collection[str]) -> list[ResourceState]:
        """Return what the program no longer has: replaced, removed, or begun by a dead run.

        Of the removed ones only ``targets``, if there are any, by URN.
        """
        removed = [
            found
            for urn, found in self._old.items()
            if urn not in self._new and (not targets or urn in targets)
        ]
        begun = [
            found.made
            for urn, found in self._pending.items()
            if found.made is not None and urn not in self._new and urn not in self._old
        ]
        return [*self._leftovers, *removed, *begun]

    def write(self) -> None:
        """Write the checkpoint, in dependency order."""
        if not self._preview:
            merged = {**self._old, **self._new}
            self._store.write([*in_order(merged), *self._leftovers])

    def _rename(self, before: str, after: str) -> None:
        followed = [renamed(found, before, after) for found in self._old.values()]
        self._old = {found.urn: found for found in followed}
        self._leftovers = [renamed(found, before, after) for found in self._leftovers]
        if not self._preview:
            self._store.renamed(before, after)
