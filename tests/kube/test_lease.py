"""Whose turn it is, without comparing the clocks of two nodes."""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from divvy.agent.node_runtime.__main__ import LEASE, LEASE_SECONDS, RENEW_DEADLINE
from divvy.agent.node_runtime.prepare import MAX_CHANGE_SECONDS
from divvy.kube.client import Client
from divvy.kube.errors import ApiError, Unreachable
from divvy.kube.lease import HeldLease, Lease, LeaseLost, Observation, hold_lease, is_free, observe
from lab.driver_clients.driver_root import eventually
from tests.beside import repeating


class OneLease:
    """The API as far as one Lease goes: versions, conflicts, being away."""

    def __init__(self, holder: str | None = None, renewed: str = "") -> None:
        self.version, self.away = 1, False
        metadata = {"name": LEASE, "namespace": "divvy-system"}
        spec = {"holderIdentity": holder, "leaseDurationSeconds": 1, "renewTime": renewed}
        self.lease: dict[str, Any] | None = (
            None if holder is None else {"metadata": metadata, "spec": spec}
        )

    def find(self, path: str) -> dict[str, Any] | None:
        self._require_there()
        assert path.endswith(f"/namespaces/divvy-system/leases/{LEASE}")
        if self.lease is None:
            return None
        version = {**self.lease["metadata"], "resourceVersion": str(self.version)}
        return copy.deepcopy({**self.lease, "metadata": version})

    def request(self, method: str, path: str, lease: dict[str, Any]) -> None:
        self._require_there()
        if method == "POST":
            assert path.endswith("/namespaces/divvy-system/leases")
            conflict = self.lease is not None
        else:
            assert (method, path[-len(LEASE) :]) == ("PUT", LEASE)
            conflict = lease["metadata"]["resourceVersion"] != str(self.version)
        if conflict:
            raise ApiError(409, "no")
        self.lease, self.version = lease, self.version + 1

    def holder(self) -> str | None:
        assert self.lease is not None
        holder: str | None = self.lease["spec"]["holderIdentity"]
        return holder

    def _require_there(self) -> None:
        if self.away:
            raise Unreachable("away")


def hold(
    api: OneLease, waiting: Callable[[str], None] = lambda _: None, deadline: float = RENEW_DEADLINE
) -> AbstractContextManager[HeldLease]:
    lease = Lease(LEASE, "divvy-system", LEASE_SECONDS, deadline, renew=0.02, retry=0.05)
    return hold_lease(cast(Client, api), lease, "this", waiting)


def test_yields_a_resource_version_once() -> None:
    first = observe(None, "7", 100.0)
    assert observe(first, "7", 130.0) == first == Observation("7", 100.0)
    assert observe(first, "8", 130.0) == Observation("8", 130.0)


@pytest.mark.parametrize(
    ("holder", "age", "free"),
    [
        ("", 0.0, True),
        ("this", 0.0, True),
        ("other", 0.0, False),
        ("other", 59.9, False),
        ("other", 60.0, True),
    ],
)
def test_takes_a_lease_unchanged_for_its_whole_duration(
    holder: str, age: float, free: bool
) -> None:
    assert is_free("this", holder, 60.0, Observation("7", 100.0), 100.0 + age) is free


@pytest.mark.parametrize("ahead", [timedelta(days=-400), timedelta(), timedelta(days=400)])
def test_ignores_the_holders_clock(ahead: timedelta) -> None:
    """A lease renewed at any time is left to its holder for its second; then it is taken."""
    api = OneLease("other", (datetime.now(UTC) + ahead).isoformat())
    began = time.monotonic()
    with hold(api):
        assert 1.0 <= time.monotonic() - began < 3
        assert api.holder() == "this"
    assert api.holder() == ""


def test_waits_for_no_holder_for_years(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stolen token wrote the longest time there is: after its end nobody could begin."""
    monkeypatch.setattr("divvy.kube.lease._LONGEST_SECONDS", 0.2)
    api = OneLease("thief")
    assert api.lease is not None
    api.lease["spec"]["leaseDurationSeconds"] = (1 << 31) - 1
    began = time.monotonic()
    with hold(api):
        assert time.monotonic() - began < 3


def test_reports_once_whom_it_waits_for() -> None:
    api = OneLease("other")
    reported: list[str] = []
    with hold(api, reported.append):
        pass
    assert reported == ["other"]


def test_respects_a_lease_that_its_holder_renews() -> None:
    api = OneLease("other", datetime.now(UTC).isoformat())

    def renew() -> None:
        api.version += 1

    seconds: list[float] = []
    began = time.monotonic()

    def take() -> None:
        with hold(api):
            seconds.append(time.monotonic() - began)

    this = threading.Thread(target=take)
    with repeating(renew, 0.3):
        this.start()
        time.sleep(2.5)
        assert not seconds
    this.join(5)
    assert seconds


def test_renews_a_held_lease() -> None:
    api = OneLease()
    with hold(api) as held:
        version = api.version
        assert eventually(lambda: api.version >= version + 3)
        held.require()


@pytest.mark.parametrize("how", ["another", "released", "deleted"])
def test_refuses_to_begin_after_losing_the_lease(how: str) -> None:
    api = OneLease()
    with hold(api) as held:
        held.require()
        if how == "deleted":
            api.lease = None
        else:
            assert api.lease is not None
            api.lease["spec"]["holderIdentity"] = {"another": "other", "released": ""}[how]
            api.version += 1
        assert eventually(lambda: not holds(held))
        with pytest.raises(LeaseLost, match=r"deleted|held by"):
            held.require()
    if how == "another":
        assert api.holder() == "other"


def test_refuses_to_begin_after_failing_to_renew_the_lease() -> None:
    api = OneLease()
    with hold(api, deadline=0.2) as held:
        api.away = True
        time.sleep(0.1)
        held.require()
        time.sleep(0.3)
        with pytest.raises(LeaseLost, match="could not be renewed"):
            held.require()
        api.away = False
        assert eventually(lambda: holds(held))


def holds(held: HeldLease) -> bool:
    try:
        held.require()
    except LeaseLost:
        return False
    return True


def test_ends_what_it_began_before_another_node_takes_the_lease() -> None:
    assert MAX_CHANGE_SECONDS <= LEASE_SECONDS - RENEW_DEADLINE
