"""What a user can do with a stack: preview, up, refresh, destroy."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from divvy.engine.deployment import Deployment
from divvy.engine.errors import NotSupported, StateProblem
from divvy.engine.executor import ApplyExecutor, PreviewExecutor
from divvy.engine.interrupt import recorded_run
from divvy.engine.monitor import Monitor, serving
from divvy.engine.order import dependents
from divvy.engine.packages import DynamicPackage, KubernetesPackage
from divvy.engine.program import Program, ProgramRun, python_of
from divvy.engine.providers import ProviderPackage, Providers
from divvy.engine.redaction import RedactingWatcher
from divvy.engine.run_state import NO_JOURNAL, RunState
from divvy.engine.state.backend import backend_root
from divvy.engine.state.lock import locked
from divvy.engine.state.secrets import Passphrase, opened_texts, passphrase_from
from divvy.engine.state.stack_state import StackState
from divvy.engine.state.store import StateStore
from divvy.engine.values import secret
from divvy.engine.watcher import Summary, Watcher
from divvy.stack.config import StackConfig, stack_config
from divvy.stack.project import Project

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


@dataclass(frozen=True)
class OpenedConfig:
    """A stack's configuration decrypted; ``secrets`` are the texts that no one may see."""

    values: Mapping[str, str]
    secret_keys: tuple[str, ...]
    secrets: frozenset[str]

    def marked(self) -> dict[str, Any]:
        """Return the values, those of secret keys marked."""
        return {
            key: secret(value) if key in self.secret_keys else value
            for key, value in self.values.items()
        }


def preview(target: Target, watcher: Watcher, program: Program) -> Summary:
    """Run the program without changing anything."""
    return _run(target, watcher, program, preview=True)


def up(target: Target, watcher: Watcher, program: Program) -> Summary:
    """Run the program and bring the cluster to it."""
    with _locked(target):
        return _run(target, watcher, program, preview=False)


def _run(target: Target, watcher: Watcher, program: Program, *, preview: bool) -> Summary:
    began = time.monotonic()
    _refuse_unsupported(target.project)
    config = opened_config(stack_config(target.project, target.stack))
    watcher = RedactingWatcher(watcher, config.secrets)
    store = target.store()
    if preview:
        state = store.load()
    else:
        state = store.begin()
        store.create()
    parallel = _parallel()
    providers = _providers(target, watcher, config.marked())
    deployment = Deployment(
        RunState(NO_JOURNAL if preview else store, state),
        providers,
        watcher,
        PreviewExecutor() if preview else ApplyExecutor(),
        parallel=parallel,
        targets=target.targets,
    )
    monitor = Monitor(
        deployment,
        project=target.project.name,
        stack=target.stack,
        preview=preview,
        parallel=parallel,
        config=config.values,
        secret_keys=config.secret_keys,
        said=watcher.said,
    )
    run = ProgramRun(
        target.project, target.stack, preview, parallel, config.values, config.secret_keys
    )
    try:
        with recorded_run(deployment, providers.cancel):
            deployment.recover()
            # Registrations wait for what they depend on, so there are more than steps at once.
            with serving(monitor, parallel * 2 + 4) as address:
                providers.warm()
                code = program.run(run, address, lambda line: watcher.said("info", line, ""))
            complete = code == 0 and monitor.complete.is_set()
            if not complete and not deployment.summary.failures:
                deployment.failed("program", f"the program ended with exit code {code}")
            _check_targets(target, deployment, state)
            if complete:
                deployment.delete_dropped()
    finally:
        providers.close()
    summary = deployment.summary
    for urn, text in summary.failures.items():
        summary.failures[urn] = watcher.redacted(text)
    summary.seconds = time.monotonic() - began
    return summary


def destroy(target: Target, watcher: Watcher) -> Summary:
    """Delete everything the stack has, dependents first."""
    with _changing(target, watcher) as (deployment, state):
        _check_known(target, state)
        everything = state.before()
        chosen = [one for one in everything if not target.targets or one.urn in target.targets]
        if target.targets:
            users = dependents(target.targets, everything, by_property=False)
            if users:
                names = ", ".join(sorted(one.urn for one in users))
                raise StateProblem(f"these depend on a --target; name them too: {names}")
        deployment.delete_all(chosen)
        for pending in state.pending():
            if pending.urn in target.targets or not target.targets:
                text = (
                    "its creation was interrupted, and whether it exists cannot be determined: "
                    "look for it yourself; `divvy refresh --clear-pending-creates` forgets it"
                )
                deployment.failed(pending.urn, text)
    return deployment.summary


def refresh(target: Target, watcher: Watcher, *, clear_pending: bool = False) -> Summary:
    """Read everything the stack has and record how it is now.

    ``clear_pending`` forgets creations that were cut off and cannot be looked up.
    """
    with _changing(target, watcher) as (deployment, state):
        _check_known(target, state)
        if clear_pending:
            for pending in state.pending():
                state.abandoned(pending.urn)
        chosen = [one for one in state.before() if not target.targets or one.urn in target.targets]
        with ThreadPoolExecutor(_parallel()) as pool:
            list(pool.map(deployment.refresh, chosen))
    return deployment.summary


@contextmanager
def _changing(target: Target, watcher: Watcher) -> Iterator[tuple[Deployment, RunState]]:
    """Hold the stack's lock, and a deployment without a program; what it did is written."""
    with _locked(target):
        began = time.monotonic()
        _refuse_unsupported(target.project)
        store = _existing(target)
        state = RunState(store, store.begin())
        providers = _providers(target, watcher, {})
        deployment = Deployment(state, providers, watcher, ApplyExecutor(), parallel=_parallel())
        try:
            with recorded_run(deployment, providers.cancel):
                deployment.recover()
                yield deployment, state
        finally:
            providers.close()
        deployment.summary.seconds = time.monotonic() - began


def _check_known(target: Target, state: RunState) -> None:
    unknown = target.targets - {resource.urn for resource in state.before()}
    if unknown:
        raise StateProblem(f"the stack has no resource {', '.join(sorted(unknown))} (--target)")


def _check_targets(target: Target, deployment: Deployment, state: StackState) -> None:
    known = {resource.urn for resource in state.resources}
    for urn in sorted(target.targets - known):
        if not deployment.is_registered(urn):
            deployment.failed(urn, f"neither the stack nor the program has {urn} (--target)")


def _existing(target: Target) -> StateStore:
    store = target.store()
    if not store.exists:
        raise StateProblem(f"the stack {target.stack} has no state: nothing was ever deployed")
    return store


def _providers(target: Target, watcher: Watcher, config: Mapping[str, Any]) -> Providers:
    project = target.project
    manager = f"divvy-{project.name}-{target.stack}"
    packages: dict[str, ProviderPackage] = {
        "kubernetes": KubernetesPackage(manager, watcher.told),
        "pulumi-python": DynamicPackage(python_of(project), project.main, project.name),
    }
    return Providers(project.name, target.stack, packages, config)


def opened_config(config: StackConfig) -> OpenedConfig:
    """Return the configuration decrypted."""
    if not config.sealed and not config.nested:
        return OpenedConfig(config.values, (), frozenset())
    crypter = Passphrase(config.salt, lambda: passphrase_from(os.environ))
    opened = {key: crypter.decrypt(text) for key, text in config.sealed.items()}
    secrets = set(opened.values())
    for key, text in config.nested.items():
        opened[key], texts = opened_texts(text, crypter)
        secrets |= texts
    return OpenedConfig({**config.values, **opened}, tuple(sorted(opened)), frozenset(secrets))


def _refuse_unsupported(project: Project) -> None:
    for key, reason in project.unsupported.items():
        raise NotSupported(f"{project.folder / 'Pulumi.yaml'}: `{key}` is not supported: {reason}")


def _parallel() -> int:
    text = os.environ.get("PULUMI_PARALLEL", str(_PARALLEL))
    if not text.isdigit() or int(text) < 1:
        raise StateProblem(f"PULUMI_PARALLEL={text}: write a number of 1 or more")
    return int(text)


@contextmanager
def _locked(target: Target) -> Iterator[None]:
    root = backend_root(target.project) / ".pulumi"
    if not os.access(root.parent, os.W_OK):
        raise StateProblem(f"{root.parent} is not writable: the stack's state is kept there")
    with locked(root, target.project.name, target.stack):
        yield
