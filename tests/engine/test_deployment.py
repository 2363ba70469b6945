"""A run's state without a program: what a refresh and an ordered deletion do to it."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from divvy.engine.deployment import Deployment
from divvy.engine.errors import NotAdmitted, StateProblem
from divvy.engine.goal import Goal
from divvy.engine.order import dependents_first, in_order, needs
from divvy.engine.provider import ProviderResult
from divvy.engine.redaction import RedactingWatcher
from divvy.engine.run_state import RunState
from divvy.engine.state.journal import NO_JOURNAL
from divvy.engine.state.resource import ResourceState
from divvy.engine.state.stack_state import StackState
from divvy.engine.subset import Declaration
from divvy.engine.urn import inherited_alias, make_urn
from divvy.engine.watcher import SILENT

URN = "urn:pulumi:dev::p::t::"


def resource(name: str, **more: object) -> ResourceState:
    return ResourceState(f"{URN}{name}", "t", custom=True, id=name, **more)  # type: ignore[arg-type]


def test_ends_the_run_on_a_workers_exception_and_raises_it() -> None:
    def full_disk(_: ResourceState) -> bool:
        raise OSError("no space left on device")

    with pytest.raises(OSError, match="no space left"):
        dependents_first([resource("a"), resource("b")], full_disk, 2)


def test_deletes_a_provider_after_its_objects_and_before_its_successors() -> None:
    provider = resource("p")
    dependent = resource("a", provider=f"{URN}p::p")
    other = resource("b", provider=f"{URN}p::q")
    assert needs(dependent, provider)
    assert not needs(other, provider)


@pytest.mark.parametrize(
    ("child", "before"), [("new-x", "old-x"), ("fixed", "fixed"), ("sub-new", "sub-new")]
)
def test_derives_a_childs_old_name_from_its_parents(child: str, before: str) -> None:
    parent, alias = (make_urn("dev", "p", "", "x:index:C", name) for name in ("new", "old"))
    expected = make_urn("dev", "p", alias, "t", before)
    assert inherited_alias("t", child, parent, alias) == expected


def test_hides_secrets_longest_first_and_skips_short_ones() -> None:
    watcher = RedactingWatcher(SILENT, {"hunter", "hunter22", "a"})
    assert watcher.redacted("a hunter22 and a hunter") == "a [secret] and a [secret]"


def test_orders_generations_that_need_each_other() -> None:
    # "a" and "b" have changed sides since "a" was replaced, and the old "a" is left.
    left = replace(resource("a", dependencies=(f"{URN}b",)), id="old", delete=True)
    live = [resource("a"), resource("b", dependencies=(f"{URN}a",))]
    gone: list[str] = []

    def delete(state: ResourceState) -> bool:
        gone.append(state.id)
        return True

    dependents_first([*live, left], delete, 1)
    assert sorted(gone) == ["a", "b", "old"]
    assert gone.index("b") < gone.index("a")


def test_names_records_that_need_each_other() -> None:
    first, other = (
        resource("a", dependencies=(f"{URN}b",)),
        resource("b", dependencies=(f"{URN}a",)),
    )
    with pytest.raises(StateProblem, match="depend on each other, as recorded: a, b"):
        dependents_first([first, other], lambda _: True, 1)
    assert len(in_order({state.urn: state for state in (first, other)})) == 2


def test_leaves_waiting_deletions_after_an_interrupt() -> None:
    gone: list[str] = []

    def delete(state: ResourceState) -> bool:
        gone.append(state.id)
        time.sleep(0.05)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        dependents_first([resource(name) for name in "abcdef"], delete, 1)
    assert len(gone) <= 2


class CountingProvider:
    """Counts how many creations run at once."""

    def __init__(self) -> None:
        self.now = self.most = 0
        self._lock = threading.Lock()

    def check(self, urn: str, old: object, new: Mapping[str, Any]) -> dict[str, Any]:
        return dict(new)

    def begin(self, inputs: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        return "", {}

    def object_name(self, inputs: Mapping[str, Any]) -> str:
        return ""

    def secret_paths(self, inputs: Mapping[str, Any]) -> tuple[str, ...]:
        return ()

    def create(
        self, urn: str, inputs: Mapping[str, Any], begun: Mapping[str, Any], *, timeout: float
    ) -> ProviderResult:
        with self._lock:
            self.now += 1
            self.most = max(self.most, self.now)
        time.sleep(0.01)
        with self._lock:
            self.now -= 1
        return ProviderResult(urn, {})


def run_of(provider: object, parallel: int = 2) -> Deployment:
    providers: Any = SimpleNamespace(of=lambda _: provider, cluster_key=lambda _: "")
    return Deployment(RunState(NO_JOURNAL, StackState()), providers, SILENT, parallel=parallel)


def goals(number: int) -> list[Goal]:
    return [
        Goal(f"{URN}{n}", "t", str(n), custom=True, inputs={}, provider="p::1")
        for n in range(number)
    ]


def test_limits_the_steps_that_run_at_once() -> None:
    provider = CountingProvider()
    run = run_of(provider)
    run.admit((), lambda: None)
    with ThreadPoolExecutor(12) as pool:
        list(pool.map(run.register, goals(12)))
    assert provider.most == 2


def test_holds_registrations_until_the_program_is_admitted() -> None:
    provider = CountingProvider()
    run = run_of(provider)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(run.register, goals(1)[0])
        time.sleep(0.05)
        assert not waiting.done()
        run.admit((), lambda: None)
        waiting.result(timeout=10)


@pytest.mark.parametrize("declared", [None, [Declaration("aws:s3:Bucket", "b")]])
def test_registers_nothing_of_a_refused_or_early_ending_program(
    declared: list[Declaration] | None,
) -> None:
    provider = CountingProvider()
    run = run_of(provider)
    starts: list[bool] = []
    run.admit(declared, lambda: starts.append(True))
    with pytest.raises(NotAdmitted):
        run.register(goals(1)[0])
    assert (starts, provider.most) == ([], 0)


def test_keeps_a_replaced_resource_beside_its_successor_in_a_refresh() -> None:
    live, leftover = resource("a"), replace(resource("a"), id="old", delete=True)
    state = RunState(NO_JOURNAL, StackState((live, leftover)))
    providers: Any = None
    Deployment(state, providers, SILENT).refresh(leftover)
    assert state.before() == [live, leftover]
    assert state.all_registered() == []
