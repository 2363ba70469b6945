"""Which provider serves a resource: the explicit one it names, or the default of its package."""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol

from divvy.engine.errors import EngineError, NotSupported, StepFailed
from divvy.engine.goal import Goal
from divvy.engine.provider import Provider, other_cluster, same_cluster
from divvy.engine.recorded import recorded
from divvy.engine.state.resource import ResourceState
from divvy.engine.subset import LEADS_ON, PROVIDER_PREFIX
from divvy.engine.urn import (
    make_urn,
    provider_reference,
    split_provider_reference,
    urn_name,
)
from divvy.engine.values import has_unknown, unwrapped

# What a provider resource is recorded with beside the official fields: which cluster holds the
# stack's objects. Among its outputs, the official provider would take it for a change.
CLUSTER = "divvyCluster"
_EARLIER_CLUSTER = "__cluster"
_INTERNAL = "__internal"
_WARMING_SECONDS = 2.0


def recorded_cluster(provider: ResourceState) -> Mapping[str, str] | None:
    """Return the cluster that a provider resource was recorded with, None if with none.

    Version 0.2 recorded it among the outputs. The official engine records none.
    """
    cluster: Mapping[str, str] | None = provider.rest.get(CLUSTER)
    return cluster or provider.outputs.get(_EARLIER_CLUSTER)


class ProviderPackage(Protocol):
    """A kind of provider."""

    @property
    def connection(self) -> tuple[str, ...]:
        """Return the options that say which cluster."""

    def default(self, version: str, config: Mapping[str, Any]) -> tuple[str, str, dict[str, Any]]:
        """Return name, version and options of the default provider.

        ``config`` is the stack's configuration, secrets marked.
        """

    def make(self, configuration: Mapping[str, Any], cluster: Mapping[str, str]) -> Provider:
        """Return a provider with these options; ``cluster`` is the one recorded with it."""


class Providers:
    """Makes each provider once, when it is first needed.

    ``packages`` are by name ("kubernetes"); ``config`` is the stack's configuration, secrets
    marked: it configures default providers.
    """

    def __init__(
        self,
        project: str,
        stack: str,
        packages: Mapping[str, ProviderPackage],
        config: Mapping[str, Any],
    ) -> None:
        self._project = project
        self._stack = stack
        self._packages = packages
        self._config = config
        self._states: dict[str, ResourceState] = {}
        self._providers: dict[tuple[str, str], Provider] = {}
        self._lock = threading.Lock()
        self._warming: list[threading.Thread] = []
        self._closed = False

    def known(self, resource: ResourceState) -> None:
        """Note a provider resource of the stack."""
        self._states[provider_reference(resource.urn, resource.id)] = resource

    def warm(self) -> None:
        """Start in the background what takes a moment, for providers the state knows."""
        for reference, state in list(self._states.items()):
            if not state.delete:
                thread = threading.Thread(target=self._warm, args=(reference,), daemon=True)
                self._warming.append(thread)
                thread.start()

    def _warm(self, reference: str) -> None:
        # Its first step reports why it cannot be reached; the run may also be over.
        with contextlib.suppress(EngineError, RuntimeError):
            self.of(reference).warm()

    def default_for(self, goal: Goal) -> tuple[str, Goal]:
        """Return URN and goal of the default provider for a resource."""
        package = goal.type.split(":", 1)[0]
        kind = f"{PROVIDER_PREFIX}{package}"
        name, release, inputs = self._package(kind).default(goal.version, self._config)
        urn = make_urn(self._stack, self._project, "", kind, name)
        return urn, Goal(urn, kind, name, custom=True, inputs=inputs, version=release)

    def registered(self, goal: Goal, old: ResourceState | None) -> tuple[str, ResourceState]:
        """Return how a provider resource is recorded now, and its step.

        The step is "create", "same" or "update". Raises NotSupported for a configuration that
        another resource gives, StepFailed if it leads to another cluster than recorded.
        """
        inputs = dict(goal.inputs)
        if has_unknown(inputs) or any(goal.property_dependencies.values()):
            raise NotSupported(f"a provider configured by another resource {LEADS_ON}")
        if goal.version:
            inputs["version"] = goal.version
        outputs = dict(inputs)
        # The official engine has it among the inputs of every provider, and not of the outputs.
        inputs[_INTERNAL] = {} if old is None else old.inputs.get(_INTERNAL, {})
        identity = old.id if old is not None else str(uuid.uuid4())
        new = recorded(goal, old, identity, inputs, outputs)
        cluster = self._instance(new).cluster()
        if cluster:
            if old is not None:
                self._refuse_other_cluster(old, inputs, cluster)
                # A user who may not see the uid leaves the guard against another cluster alone.
                uid = cluster["uid"] or (recorded_cluster(old) or {}).get("uid", "")
                cluster = {**cluster, "uid": uid}
            new = replace(new, rest={**new.rest, CLUSTER: dict(cluster)})
        self.known(new)
        return "create" if old is None else "same" if old.inputs == inputs else "update", new

    def reconnected(self, old: ResourceState, new: ResourceState) -> bool:
        """Tell whether a provider's cluster or user is another one's, by its options."""
        connection = self._packages[old.type.removeprefix(PROVIDER_PREFIX)].connection
        return any(old.inputs.get(key) != new.inputs.get(key) for key in connection)

    def reachable(self, resource: ResourceState) -> bool:
        """Tell whether the cluster of a recorded provider answers its user."""
        try:
            self._instance(resource).identity()
        except EngineError:
            return False
        return True

    def same_cluster(self, left: str, right: str) -> bool:
        """Tell whether two provider references lead to the same cluster."""
        return left == right or same_cluster(self._cluster_of(left), self._cluster_of(right))

    def cluster_key(self, reference: str) -> str:
        """Return a text that two references to one cluster share."""
        cluster = self._cluster_of(reference)
        return cluster.get("uid") or cluster.get("server") or reference

    def of(self, reference: str) -> Provider:
        """Return the provider that a reference (``<urn>::<id>``) names."""
        return self._instance(self._state(reference))

    def cancel(self) -> None:
        """Stop all waits; operations return their current state."""
        for provider in list(self._providers.values()):
            provider.cancel()

    def close(self) -> None:
        """Close every provider; no more are made."""
        with self._lock:
            self._closed = True
        # A process that ends while one of its threads is in OpenSSL can crash. One whose server
        # does not answer only waits.
        deadline = time.monotonic() + _WARMING_SECONDS
        for thread in self._warming:
            thread.join(max(0.0, deadline - time.monotonic()))
        for provider in self._providers.values():
            provider.close()

    def _state(self, reference: str) -> ResourceState:
        state = self._states.get(reference)
        if state is None:
            urn, _ = split_provider_reference(reference)
            raise StepFailed(f"the provider {urn} is not part of the stack")
        return state

    def _refuse_other_cluster(
        self, old: ResourceState, inputs: Mapping[str, Any], cluster: Mapping[str, str]
    ) -> None:
        before = recorded_cluster(old)
        if before is None and self.reconnected(old, replace(old, inputs=inputs)):
            before = self._instance(old).cluster()  # the official engine records no cluster
        if before is not None and not same_cluster(before, cluster):
            raise other_cluster(urn_name(old.urn), cluster["server"], before["server"])

    def _cluster_of(self, reference: str) -> Mapping[str, str]:
        state = self._state(reference)
        return recorded_cluster(state) or self._instance(state).cluster()

    def _instance(self, state: ResourceState) -> Provider:
        configuration = unwrapped(dict(state.inputs))
        reference = provider_reference(state.urn, state.id)
        key = (reference, repr(sorted(configuration.items())))
        with self._lock:
            if self._closed:
                raise StepFailed("the run is over: no more providers are started")
            if key not in self._providers:
                cluster = recorded_cluster(state) or {}
                self._providers[key] = self._package(state.type).make(configuration, cluster)
            return self._providers[key]

    def _package(self, kind: str) -> ProviderPackage:
        name = kind.removeprefix(PROVIDER_PREFIX)
        if name not in self._packages:
            raise NotSupported(f"the provider {name} {LEADS_ON}")
        return self._packages[name]
