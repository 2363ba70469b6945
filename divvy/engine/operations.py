"""What a user can do with a stack: preview, up, refresh, destroy."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace

from divvy.engine.deployment import Deployment
from divvy.engine.errors import EngineError, ProjectProblem, StateProblem
from divvy.engine.monitor import Monitor, serving
from divvy.engine.program import Program, ProgramRun, python_of
from divvy.engine.project import Project, StackConfig, backend_root, stack_config
from divvy.engine.providers import Providers
from divvy.engine.state.lock import locked
from divvy.engine.state.resource import ResourceState, now
from divvy.engine.state.secrets import Passphrase, passphrase_from
from divvy.engine.state.store import StateStore
from divvy.engine.urn import PROVIDER_PREFIX
from divvy.engine.values import unwrapped
from divvy.engine.watcher import StepReport, Summary, Watcher

_PARALLEL = 16


@dataclass(frozen=True)
class Target:
    """A stack of a project; ``targets`` restricts a run to these URNs."""

    project: Project
    stack: str
    targets: frozenset[str] = frozenset()

    def store(self) -> StateStore:
        """Return the stack's state store."""
        root = backend_root(self.project)
        return StateStore(root, self.project.name, self.stack, lambda: passphrase_from(os.environ))


def preview(target: Target, watcher: Watcher, program: Program) -> Summary:
    """Run the program without changing anything."""
    return _run(target, watcher, program, preview=True)


def up(target: Target, watcher: Watcher, program: Program) -> Summary:
    """Run the program and bring the cluster to it."""
    with _locked(target):
        return _run(target, watcher, program, preview=False)


def _run(target: Target, watcher: Watcher, program: Program, *, preview: bool) -> Summary:
    began = time.monotonic()
    config = stack_config(target.project, target.stack)
    values, secret_keys = opened_config(config)
    store = target.store()
    state = store.load()
    if not preview:
        store.create()
    parallel = int(os.environ.get("PULUMI_PARALLEL", _PARALLEL))
    providers = _providers(target, watcher)
    deployment = Deployment(
        store,
        state,
        providers,
        watcher,
        preview=preview,
        parallel=parallel,
        targets=target.targets,
    )
    monitor = Monitor(
        deployment,
        project=target.project.name,
        stack=target.stack,
        preview=preview,
        parallel=parallel,
        config=values,
        secret_keys=secret_keys,
        said=watcher.said,
    )
    run = ProgramRun(target.project, target.stack, preview, parallel, values, secret_keys)
    try:
        # A registration holds a worker until its resource is ready.
        with serving(monitor, workers=parallel * 2 + 4) as address:
            providers.warm()
            code = program.run(run, address, lambda line: watcher.said("info", line, ""))
        complete = code == 0 and monitor.complete.is_set()
        if not complete and not deployment.summary.failures:
            deployment.summary.failures["program"] = f"the program ended with exit code {code}"
        deployment.finish(complete=complete)
    finally:
        providers.close()
    deployment.summary.seconds = time.monotonic() - began
    return deployment.summary


def destroy(target: Target, watcher: Watcher, *, preview: bool = False) -> Summary:
    """Delete everything the stack has, dependents first."""
    with _locked(target):
        began = time.monotonic()
        store = _existing(target)
        state = store.load()
        providers = _providers(target, watcher)
        deployment = Deployment(store, state, providers, watcher, preview=preview)
        doomed = [
            found for found in state.resources if not target.targets or found.urn in target.targets
        ]
        try:
            deployment.delete_all(doomed)
            deployment.finish(complete=False)
        finally:
            providers.close()
        deployment.summary.seconds = time.monotonic() - began
        return deployment.summary


def refresh(target: Target, watcher: Watcher, *, preview: bool = False) -> Summary:
    """Read everything the stack has and record how it is now."""
    with _locked(target):
        began = time.monotonic()
        store = _existing(target)
        state = store.load()
        providers = _providers(target, watcher)
        for found in state.resources:
            if found.type.startswith(PROVIDER_PREFIX):
                providers.known(found)
        summary = Summary()
        try:
            with ThreadPoolExecutor(_PARALLEL) as pool:
                fresh = list(
                    pool.map(
                        lambda old: _refreshed(old, providers, watcher, summary), state.resources
                    )
                )
        finally:
            providers.close()
        kept = [found for found in fresh if found is not None]
        if not preview:
            store.write(_without_lost(kept))
        summary.seconds = time.monotonic() - began
        return summary


def _refreshed(
    old: ResourceState, providers: Providers, watcher: Watcher, summary: Summary
) -> ResourceState | None:
    if not old.custom or old.external or old.type.startswith(PROVIDER_PREFIX):
        return old
    plain = replace(old, inputs=unwrapped(dict(old.inputs)), outputs=unwrapped(dict(old.outputs)))
    step = StepReport("refresh", old.urn, old)
    watcher.began(step)
    try:
        provider = providers.of(old.provider)
        drifted = provider.drifted(plain)
        found = provider.read(plain)
    except EngineError as failure:
        summary.failures[old.urn] = str(failure)
        watcher.ended(step, str(failure))
        return old
    if found is None:
        step = StepReport("delete", old.urn, old)
        new = None
    else:
        inputs, outputs = found
        same = inputs == plain.inputs and not drifted
        new = replace(
            old,
            inputs=old.inputs if same else inputs,
            outputs=old.outputs if same and old.outputs == outputs else outputs,
            modified=old.modified if same else now(),
        )
        step = StepReport("same" if same else "update", old.urn, old, new, drifted or ())
    summary.steps.append(step)
    watcher.ended(step, None)
    return new


def _without_lost(resources: list[ResourceState]) -> list[ResourceState]:
    """Drop references to resources that are gone."""
    known = {found.urn for found in resources}
    return [
        replace(found, dependencies=tuple(urn for urn in found.dependencies if urn in known))
        for found in resources
    ]


def _existing(target: Target) -> StateStore:
    store = target.store()
    if not store.exists:
        raise ProjectProblem(f"the stack {target.stack} has no state: nothing was ever deployed")
    return store


def _providers(target: Target, watcher: Watcher) -> Providers:
    return Providers(
        target.project.name,
        target.stack,
        folder=target.project.main,
        python=python_of(target.project),
        told=watcher.told,
    )


def opened_config(config: StackConfig) -> tuple[Mapping[str, str], tuple[str, ...]]:
    """Return the configuration decrypted, and which keys are secret."""
    if not config.sealed:
        return config.values, ()
    crypter = Passphrase(config.salt, lambda: passphrase_from(os.environ))
    opened = {key: crypter.decrypt(text) for key, text in config.sealed.items()}
    return {**config.values, **opened}, tuple(sorted(opened))


@contextmanager
def _locked(target: Target) -> Iterator[None]:
    root = backend_root(target.project) / ".pulumi"
    if not os.access(root.parent, os.W_OK):
        raise StateProblem(f"{root.parent} is not writable: the stack's state is kept there")
    with locked(root, target.project.name, target.stack):
        yield
