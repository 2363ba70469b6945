"""The operations on a stack: preview, up, refresh, destroy."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from divvy.engine.deployment import Deployment
from divvy.engine.errors import NotSupported, StateProblem
from divvy.engine.interrupt import recorded_run
from divvy.engine.monitor import Monitor, serving
from divvy.engine.packages import DynamicPackage, KubernetesPackage
from divvy.engine.program import Program, ProgramRun, python_of
from divvy.engine.providers import ProviderPackage, Providers
from divvy.engine.redaction import RedactingWatcher
from divvy.engine.run_state import RunState
from divvy.engine.state.backend import backend_root
from divvy.engine.state.journal import NO_JOURNAL
from divvy.engine.state.lock import lock_holder, locked
from divvy.engine.state.secrets import Passphrase, opened_texts, passphrase_from
from divvy.engine.state.stack_state import StackState
from divvy.engine.state.store import StateStore
from divvy.engine.subset import Declaration, refused_record
from divvy.engine.urn import urn_name
from divvy.engine.values import secret, texts_in
from divvy.engine.watcher import Summary, Watcher
from divvy.stack.config import StackConfig, stack_config
from divvy.stack.project import Project

_PARALLEL = 16


@dataclass(frozen=True)
class Target:
    """A stack of a project."""

    project: Project
    stack: str

    def store(self) -> StateStore:
        """Return the stack's state store."""
        root = backend_root(self.project)
        return StateStore(root, self.project.name, self.stack, lambda: passphrase_from(os.environ))


@dataclass(frozen=True)
class OpenedConfig:
    """A stack's configuration decrypted; ``secrets`` are the texts to hide."""

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
    other = lock_holder(backend_root(target.project) / ".pulumi", target.project.name, target.stack)
    if other:
        text = f"{other} is changing this stack: this preview may be out of date"
        watcher.message("warning", text, "")
    return _run(target, watcher, program, preview=True)


def up(target: Target, watcher: Watcher, program: Program) -> Summary:
    """Run the program and bring the cluster to it."""
    with _locked(target):
        return _run(target, watcher, program, preview=False)


def _run(target: Target, watcher: Watcher, program: Program, *, preview: bool) -> Summary:
    began = time.monotonic()
    config = opened_config(stack_config(target.project, target.stack))
    watcher = RedactingWatcher(watcher, config.secrets)
    store = target.store()
    state = store.load()
    _refuse_unsupported(target.project, state)
    parallel = _parallel()
    providers = _providers(target, watcher, config.marked())
    deployment = Deployment(
        RunState(NO_JOURNAL if preview else store, state),
        providers,
        watcher,
        preview=preview,
        parallel=parallel,
    )
    monitor = Monitor(
        deployment,
        project=target.project.name,
        stack=target.stack,
        preview=preview,
        parallel=parallel,
        config=config.values,
        secret_keys=config.secret_keys,
        message=watcher.message,
    )
    run = ProgramRun(
        target.project, target.stack, preview, parallel, config.values, config.secret_keys
    )

    def admit(declarations: list[Declaration] | None) -> None:
        deployment.admit(declarations, lambda: None if preview else store.begin(state))

    try:
        with recorded_run(deployment, providers.cancel):
            # Registrations wait for their dependencies, so there are more of them than steps.
            with serving(monitor, parallel * 2 + 4) as address:
                providers.warm()
                try:
                    code = program.run(
                        run, address, admit, lambda line: watcher.message("info", line, "")
                    )
                finally:
                    admit(None)  # no registration waits for it any longer
            complete = code == 0 and monitor.complete.is_set()
            if not complete and not deployment.summary.failures:
                deployment.failed("program", _early_end(code))
            if complete:
                deployment.delete_dropped()
    finally:
        providers.close()
    summary = deployment.summary
    summary.seconds = time.monotonic() - began
    return summary


def _early_end(code: int) -> str:
    if code == 0:
        return (
            "the program ended with exit code 0 before it was done (os._exit, or its process was "
            "replaced): nothing is deleted, since what it would still have registered is unknown"
        )
    return f"the program ended with exit code {code}"


def destroy(target: Target, watcher: Watcher) -> Summary:
    """Delete everything the stack has, dependents first."""
    with _changing(target, watcher) as (deployment, state):
        deployment.delete_all(state.before())
        for pending in state.pending():
            text = (
                "its creation was interrupted, and whether it exists cannot be determined: "
                "look for it yourself; `divvy refresh --clear-pending-creates` forgets it"
            )
            deployment.failed(pending.urn, text)
    return deployment.summary


def refresh(target: Target, watcher: Watcher, *, clear_pending: bool = False) -> Summary:
    """Read everything the stack has and record how it is now.

    ``clear_pending`` forgets creations that were interrupted and cannot be looked up.
    """
    with _changing(target, watcher) as (deployment, state):
        if clear_pending:
            for pending in state.pending():
                state.abandoned(pending.urn)
        deployment.say_identities(state.before())
        with ThreadPoolExecutor(_parallel()) as pool:
            list(pool.map(deployment.refresh, state.before()))
    return deployment.summary


def has_kind(target: Target, kind: str) -> bool:
    """Tell whether the stack has a Kubernetes object of a kind."""
    return any(resource.type.endswith(f":{kind}") for resource in target.store().load().resources)


@contextlib.contextmanager
def _changing(target: Target, watcher: Watcher) -> Iterator[tuple[Deployment, RunState]]:
    """Hold the stack's lock, and a deployment without a program; what it did is written."""
    with _locked(target):
        began = time.monotonic()
        store = _existing(target)
        recorded = store.load()
        _refuse_unsupported(target.project, recorded)
        state = RunState(store, recorded)
        providers = _providers(target, watcher, {})
        deployment = Deployment(state, providers, watcher, parallel=_parallel())
        try:
            with recorded_run(deployment, providers.cancel):
                deployment.admit((), lambda: store.begin(recorded))
                yield deployment, state
        finally:
            providers.close()
        deployment.summary.seconds = time.monotonic() - began


def _existing(target: Target) -> StateStore:
    store = target.store()
    if not store.exists:
        raise StateProblem(f"the stack {target.stack} has no state: nothing was ever deployed")
    return store


def _providers(target: Target, watcher: Watcher, config: Mapping[str, Any]) -> Providers:
    project = target.project
    manager = f"divvy-{project.name}-{target.stack}"
    packages: dict[str, ProviderPackage] = {
        "kubernetes": KubernetesPackage(manager, watcher.waiting),
        "pulumi-python": DynamicPackage(
            python_of(project),
            project.main,
            project.name,
            lambda line: watcher.message("info", line, ""),
        ),
    }
    return Providers(project.name, target.stack, packages, config)


def opened_config(config: StackConfig) -> OpenedConfig:
    """Return the configuration decrypted."""
    if not config.sealed and not config.nested:
        return OpenedConfig(config.values, (), frozenset())
    crypter = Passphrase(config.salt, lambda: passphrase_from(os.environ))
    opened = {key: crypter.decrypt(text) for key, text in config.sealed.items()}
    secrets = set(opened.values())
    for value in opened.values():
        with contextlib.suppress(ValueError):
            parsed = json.loads(value)
            secrets |= texts_in(parsed) if isinstance(parsed, (dict, list)) else set()
    for key, text in config.nested.items():
        opened[key], texts = opened_texts(text, crypter)
        secrets |= texts
    return OpenedConfig({**config.values, **opened}, tuple(sorted(opened)), frozenset(secrets))


def _refuse_unsupported(project: Project, state: StackState) -> None:
    for key, reason in project.unsupported.items():
        raise NotSupported(f"{project.folder / 'Pulumi.yaml'}: `{key}` is not supported: {reason}")
    for resource in state.resources:
        if not resource.custom or resource.external or resource.retain_on_delete:
            continue  # nothing would be deleted
        problem = refused_record(resource.type)
        if problem is not None:
            raise NotSupported(f"{urn_name(resource.urn)}: {problem}")


def _parallel() -> int:
    text = os.environ.get("PULUMI_PARALLEL", str(_PARALLEL))
    if not text.isdigit() or int(text) < 1:
        raise StateProblem(f"PULUMI_PARALLEL={text}: write a number of 1 or more")
    return int(text)


@contextlib.contextmanager
def _locked(target: Target) -> Iterator[None]:
    root = backend_root(target.project) / ".pulumi"
    if not os.access(root.parent, os.W_OK):
        raise StateProblem(f"{root.parent} is not writable, and holds the stack's state")
    with locked(root, target.project.name, target.stack):
        yield
