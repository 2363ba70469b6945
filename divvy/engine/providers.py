"""Which provider serves a resource: the explicit one it names, or the default of its package."""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Callable
from importlib.metadata import version as installed_version
from pathlib import Path

from divvy.engine.dynamic import DynamicProvider
from divvy.engine.errors import EngineError, NotSupported, StepFailed
from divvy.engine.goal import Goal
from divvy.engine.provider import Provider
from divvy.engine.state.resource import ResourceState
from divvy.engine.urn import (
    PROVIDER_PREFIX,
    make_urn,
    provider_reference,
    split_provider_reference,
)
from divvy.engine.values import unwrapped

_KUBERNETES = f"{PROVIDER_PREFIX}kubernetes"
_DYNAMIC = f"{PROVIDER_PREFIX}pulumi-python"


class Providers:
    """Makes each provider once, when it is first needed."""

    def __init__(
        self,
        project: str,
        stack: str,
        *,
        folder: Path,
        python: str,
        told: Callable[[str, str], None],
    ) -> None:
        self._project = project
        self._stack = stack
        self._folder = folder
        self._python = python
        self._told = told
        self._states: dict[str, ResourceState] = {}
        self._made: dict[tuple[str, str], Provider] = {}
        self._lock = threading.Lock()
        self._closed = False

    def known(self, resource: ResourceState) -> None:
        """Note a provider resource of the stack."""
        self._states[resource.urn] = resource

    def warm(self) -> None:
        """Start in the background what takes a moment, for providers the state knows."""
        for urn, state in list(self._states.items()):
            if state.type in (_DYNAMIC, _KUBERNETES):
                reference = provider_reference(urn, state.id)
                threading.Thread(target=self._warm, args=(reference,), daemon=True).start()

    def _warm(self, reference: str) -> None:
        # Who needs the provider is told why there is none.
        with contextlib.suppress(EngineError):
            self.of(reference).warm()

    def new_identity(self) -> str:
        """Return a fresh id for a provider resource."""
        return str(uuid.uuid4())

    def default_for(self, goal: Goal) -> tuple[str, Goal]:
        """Return URN and goal of the default provider for a resource."""
        package = goal.type.split(":", 1)[0]
        kind = f"{PROVIDER_PREFIX}{package}"
        inputs = {}
        name = "default"
        if package == "kubernetes":
            release = goal.version or installed_version("pulumi-kubernetes")
            name = f"default_{release.replace('.', '_')}"
            inputs = {"version": release}
        elif package != "pulumi-python":
            raise NotSupported(
                f"{goal.name}: no provider for {package!r}; the embedded engine has kubernetes and "
                "pulumi-python:dynamic"
            )
        urn = make_urn(self._stack, self._project, "", kind, name)
        return urn, Goal(urn, kind, name, custom=True, inputs=inputs)

    def of(self, reference: str) -> Provider:
        """Return the provider that a reference (``<urn>::<id>``) names."""
        urn, _ = split_provider_reference(reference)
        state = self._states.get(urn)
        if state is None:
            raise StepFailed(f"the provider {urn} is not part of the stack")
        configuration = unwrapped(dict(state.inputs))
        key = (urn, repr(sorted(configuration.items())))
        with self._lock:
            if self._closed:
                raise StepFailed("the run is over: no provider is started any more")
            if key not in self._made:
                self._made[key] = self._make(state.type, configuration)
            return self._made[key]

    def _make(self, kind: str, configuration: dict[str, object]) -> Provider:
        if kind == _KUBERNETES:
            # A client of Kubernetes takes a moment to load; so it is loaded beside the program.
            from divvy.engine.kubernetes.provider import KubernetesProvider  # noqa: PLC0415

            manager = f"divvy-{self._project}-{self._stack}"
            return KubernetesProvider(configuration, manager, self._told)
        if kind == _DYNAMIC:
            return DynamicProvider(self._python, self._folder, self._project)
        raise NotSupported(f"no provider {kind!r} in the embedded engine")

    def close(self) -> None:
        """Close every provider; none is made any more, though some may just be warming up."""
        with self._lock:
            self._closed = True
        for provider in self._made.values():
            provider.close()
