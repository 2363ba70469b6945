"""A run's state without a program: what a refresh and an ordered deletion do to it."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from divvy.engine.deployment import Deployment
from divvy.engine.errors import NotAdmitted, StateProblem, StepFailed
from divvy.engine.goal import Goal
from divvy.engine.order import dependents_first, in_order, needs
from divvy.engine.provider import Provider, ProviderResult
from divvy.engine.recorded import plain
from divvy.engine.redaction import RedactingWatcher
from divvy.engine.run_state import RunState
from divvy.engine.state.journal import NO_JOURNAL
from divvy.engine.state.resource import ResourceState
from divvy.engine.state.stack_state import StackState
from divvy.engine.subset import Declaration
from divvy.engine.urn import inherited_alias, make_urn
from divvy.engine.values import secret
from divvy.engine.watcher import SILENT
from tests.engine.memory_provider import MemoryJournal, MemoryProvider

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


class CountingProvider(MemoryProvider):
    """Counts how many creations run at once."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.most = 0
        self._lock = threading.Lock()

    def create(
        self,
        urn: str,
        inputs: Mapping[str, Any],
        initial_outputs: Mapping[str, Any],
        *,
        timeout: float,
    ) -> ProviderResult:
        with self._lock:
            self.now += 1
            self.most = max(self.most, self.now)
        time.sleep(0.01)
        with self._lock:
            self.now -= 1
        return super().create(urn, inputs, initial_outputs, timeout=timeout)


def run_of(
    provider: Provider,
    state: RunState | None = None,
    *,
    parallel: int = 2,
) -> Deployment:
    providers: Any = SimpleNamespace(
        of=lambda _: provider, cluster_key=lambda _: "", same_cluster=lambda *_: True
    )
    state = state or RunState(NO_JOURNAL, StackState())
    return Deployment(state, providers, SILENT, parallel=parallel)


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


PASSWORD = secret("hunter22")
RECORDED = replace(
    resource("a", inputs={"password": PASSWORD, "size": 1, "zone": "b"}, provider="p::1"),
    id="a-0",
    created="2026-01-01T00:00:00Z",
    rest={"sourcePosition": "x"},
)


class Registration:
    """One registration of the resource "a", the stack's only one, and what came of it."""

    def __init__(
        self,
        old: ResourceState | None,
        inputs: Mapping[str, Any],
        failure: StepFailed | None = None,
        **options: Any,
    ) -> None:
        self.provider = MemoryProvider()
        self.provider.create_failure = failure
        if old is not None:
            self.provider.objects[old.id] = dict(plain(old).inputs)
        self.journal = MemoryJournal()
        self.state = RunState(self.journal, StackState(() if old is None else (old,)))
        self.run = run_of(self.provider, self.state)
        self.run.admit((), lambda: None)
        goal = Goal(f"{URN}a", "t", "a", custom=True, inputs=inputs, provider="p::1", **options)
        with contextlib.suppress(StepFailed):
            self.run.register(goal)


def test_records_a_creation_before_and_after_it_with_its_secrets_marked() -> None:
    registration = Registration(None, {"password": PASSWORD, "size": 1})
    assert registration.journal.events == ["began", "done"]
    for _, record, _ in registration.journal.notes:
        assert record is not None
        assert record.inputs == {"password": PASSWORD, "size": 1}
        assert record.outputs["url"] == secret("https://user:hunter22@host")
    assert registration.provider.objects == {"a-1": {"password": "hunter22", "size": 1}}


def test_updates_in_place_with_the_time_of_creation_and_unknown_fields_kept() -> None:
    inputs = {"password": PASSWORD, "size": 2, "zone": "b"}
    registration = Registration(RECORDED, inputs)
    [(event, new, replaced)] = registration.journal.notes
    assert (event, replaced) == ("done", None)
    assert new is not None
    assert (new.id, new.created, new.rest) == ("a-0", RECORDED.created, RECORDED.rest)
    assert new.inputs == inputs
    assert new.outputs["url"] == secret("https://user:hunter22@host")
    assert registration.provider.objects["a-0"]["size"] == 2
    assert registration.state.dropped() == []


def test_updates_what_was_changed_outside_alone() -> None:
    registration = Registration(RECORDED, RECORDED.inputs)
    assert registration.journal.events == []
    registration.provider.objects["a-0"]["size"] = 5
    run = run_of(registration.provider, RunState(registration.journal, StackState((RECORDED,))))
    run.admit((), lambda: None)
    run.register(Goal(f"{URN}a", "t", "a", custom=True, inputs=RECORDED.inputs, provider="p::1"))
    assert registration.provider.objects == {"a-0": plain(RECORDED).inputs}
    assert [step.operation for step in run.summary.steps] == ["update"]


def test_replaces_with_the_old_object_kept_until_the_runs_end() -> None:
    inputs = {"password": PASSWORD, "size": 1, "zone": "c"}
    registration = Registration(RECORDED, inputs)
    assert registration.journal.events == ["began", "done"]
    _, new, replaced = registration.journal.notes[1]
    assert new is not None
    assert (new.id, new.rest) == ("a-1", {})
    assert new.created > RECORDED.created
    assert new.outputs["url"] == secret("https://user:hunter22@host")
    assert replaced == replace(RECORDED, delete=True)
    assert set(registration.provider.objects) == {"a-0", "a-1"}
    registration.run.delete_dropped()
    assert registration.journal.events[2:] == ["gone"]
    assert set(registration.provider.objects) == {"a-1"}


def test_deletes_before_it_replaces_if_the_program_asks_for_it() -> None:
    registration = Registration(
        RECORDED, {**RECORDED.inputs, "zone": "c"}, delete_before_replace=True
    )
    assert registration.journal.events == ["gone", "began", "done"]
    assert set(registration.provider.objects) == {"a-1"}
    assert registration.state.dropped() == []


@pytest.mark.parametrize(
    ("failure", "events", "pending"),
    [
        (StepFailed("refused: hunter22"), ["began", "abandoned"], 0),
        # The answer was lost on its way: the next run looks for the object.
        (StepFailed("no answer: hunter22", unsure=True), ["began"], 1),
        (StepFailed("not ready: hunter22", {"size": 1}), ["began", "done"], 0),
    ],
)
def test_records_a_failed_creation_as_far_as_it_came(
    failure: StepFailed, events: list[str], pending: int
) -> None:
    registration = Registration(None, {"password": PASSWORD, "size": 1}, failure)
    assert registration.journal.events == events
    assert len(registration.state.pending()) == pending
    [text] = registration.run.summary.failures.values()
    assert "hunter22" not in text
    for _, record, _ in registration.journal.notes[1:]:
        assert record is None or record.init_errors == (text,)


def test_keeps_the_secrets_of_other_resources_and_of_the_configuration_out_of_a_failure() -> None:
    """A container's log may repeat what its pod mounts: another resource has it."""
    provider = MemoryProvider()
    journal = MemoryJournal()
    providers: Any = SimpleNamespace(
        of=lambda _: provider, cluster_key=lambda _: "", same_cluster=lambda *_: True
    )
    state = RunState(journal, StackState())
    run = Deployment(state, providers, RedactingWatcher(SILENT, {"swordfish"}))
    run.admit((), lambda: None)
    inputs = {"password": PASSWORD}
    run.register(Goal(f"{URN}a", "t", "a", custom=True, inputs=inputs, provider="p::1"))
    provider.create_failure = StepFailed("log: hunter22 swordfish", {"size": 1})
    with pytest.raises(StepFailed, match=r"^log: \[secret\] \[secret\]$"):
        run.register(Goal(f"{URN}b", "t", "b", custom=True, inputs={}, provider="p::1"))
    _, record, _ = journal.notes[-1]
    assert record is not None
    assert record.init_errors == ("log: [secret] [secret]",)


def test_leaves_no_creation_open_that_it_could_not_write_down() -> None:
    class FullDisk(MemoryJournal):
        def began(
            self, operation: str, urn: str, identity: str, resource: ResourceState | None = None
        ) -> None:
            raise StateProblem("the disk is full")

    provider, state = MemoryProvider(), RunState(FullDisk(), StackState())
    run = run_of(provider, state)
    run.admit((), lambda: None)
    with pytest.raises(StateProblem):
        run.register(Goal(f"{URN}a", "t", "a", custom=True, inputs={}, provider="p::1"))
    assert (provider.objects, state.pending()) == ({}, [])


def test_keeps_secrets_out_of_what_a_provider_says_of_inputs() -> None:
    class Strict(MemoryProvider):
        def check(
            self, urn: str, old: Mapping[str, Any] | None, new: Mapping[str, Any]
        ) -> dict[str, Any]:
            raise StepFailed(f"{new['password']} is too short")

    run = run_of(Strict())
    run.admit((), lambda: None)
    inputs = {"password": PASSWORD}
    with pytest.raises(StepFailed):
        run.register(Goal(f"{URN}a", "t", "a", custom=True, inputs=inputs, provider="p::1"))
    assert run.summary.failures == {f"{URN}a": "[secret] is too short"}
