"""When a GPU whose profile has changed is free: neither allocated nor held."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from divvy.agent.claims import retirement
from divvy.agent.claims.record import ClaimRecord
from divvy.agent.claims.retirement import Retirement
from divvy.kube import backoff
from divvy.kube.errors import ApiError, Unreachable
from divvy.model.api_names import CLAIMS_DRIVER
from lab.fakes.scene import running, until
from tests.agent.claim_values import BY_SIZE, offered_gpu

GPUS = [offered_gpu(index, BY_SIZE) for index in range(2)]
FIRST, SECOND = (gpu.uuid for gpu in GPUS)
DEVICES = [gpu.gpu.devices[0].name for gpu in GPUS]
LOOK = 0.02


class Lists:
    """Tells of all claims, each time what was allocated when it was asked."""

    def __init__(self) -> None:
        self.allocated: list[str] = []
        self.count = 0
        self.going_on = asyncio.Event()
        self.going_on.set()
        self.refused = False
        self.skipped = ""
        self.odd: Any = None
        self.seconds = 0.0  # what each answer takes
        self.timeouts = 0

    async def claims(
        self, unread: Callable[[str], None], patience: float
    ) -> AsyncIterator[dict[str, Any]]:
        self.count += 1
        if self.skipped:
            unread(self.skipped)
        devices = list(self.allocated)
        await self.going_on.wait()
        if self.seconds > patience:
            self.timeouts += 1
            raise Unreachable("no answer in time", waited=True)
        if self.refused:
            raise ApiError(429, "too many requests")
        for device in devices:
            result = {"driver": CLAIMS_DRIVER, "pool": "pool", "device": device}
            status = {"allocation": {"devices": {"results": [result]}}}
            yield {"metadata": {"name": "c"}, "status": status}
        if self.odd is not None:
            yield {"metadata": {"name": "odd", "namespace": "mallory"}, "status": self.odd}


@asynccontextmanager
async def retiring(
    monkeypatch: pytest.MonkeyPatch, *, forbidden: bool = False
) -> AsyncIterator[tuple[Retirement, Lists]]:
    monkeypatch.setattr(retirement, "_LOOK_SECONDS", LOOK)
    monkeypatch.setattr(retirement, "_SETTLED_SECONDS", 3 * LOOK)
    lists = Lists()
    record = ClaimRecord({gpu.uuid: gpu for gpu in GPUS}, {})
    publisher: Any = SimpleNamespace(current=not forbidden, forbidden=forbidden)
    api: Any = lists
    followed = Retirement(api, publisher, "pool", lambda: record, lambda: True, lambda: None)
    async with running(followed.run()):
        yield followed, lists


async def test_frees_a_retiring_gpu_without_allocations(monkeypatch: pytest.MonkeyPatch) -> None:
    async with retiring(monkeypatch) as (followed, lists):
        lists.allocated = DEVICES[:1]
        followed.begin(frozenset({FIRST, SECOND}))
        await until(lambda: bool(followed.unallocated))
        assert followed.unallocated == {SECOND}


@pytest.mark.parametrize(
    ("skipped", "odd"),
    [
        ("mallory/odd", None),
        ("", {"allocation": {"devices": {"results": [5]}}}),
        ("", {"allocation": {"devices": {"results": [{"driver": CLAIMS_DRIVER}]}}}),
        ("", {"allocation": 5}),
    ],
)
async def test_frees_no_gpu_while_an_allocation_cannot_be_read(
    monkeypatch: pytest.MonkeyPatch, skipped: str, odd: Any
) -> None:
    async with retiring(monkeypatch) as (followed, lists):
        lists.skipped, lists.odd = skipped, odd
        followed.begin(frozenset({FIRST, SECOND}))
        await until(lambda: lists.count > 1)
        assert not followed.unallocated
        assert followed.unknown == "allocations cannot be read (mallory/odd)"
        lists.skipped, lists.odd = "", None
        followed.look_soon()
        await until(lambda: followed.unallocated == {FIRST, SECOND})
        assert followed.unknown == ""


async def test_tells_that_allocations_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    async with retiring(monkeypatch) as (followed, lists):
        lists.refused = True
        followed.begin(frozenset({FIRST}))
        await until(lambda: bool(followed.unknown))
        assert followed.unknown == "allocations cannot be read (too many requests)"


async def test_ignores_a_claim_list_older_than_the_retirement(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No taint kept anybody from it when the list was made."""
    async with retiring(monkeypatch) as (followed, lists):
        lists.going_on.clear()
        followed.begin(frozenset({FIRST}))
        await until(lambda: lists.count == 1)
        lists.allocated = DEVICES[1:]
        followed.begin(frozenset({FIRST, SECOND}))
        lists.going_on.set()
        for _ in range(100):
            assert SECOND not in followed.unallocated
            await asyncio.sleep(LOOK / 4)
        await until(lambda: followed.unallocated == {FIRST})


async def test_frees_no_gpu_while_its_taint_may_not_be_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Some profile has claims: somebody took the right to the slices, and they are allocated."""
    async with retiring(monkeypatch, forbidden=True) as (followed, lists):
        followed.begin(frozenset({FIRST}))
        await asyncio.sleep(20 * LOOK)
        assert not followed.unallocated
        assert not lists.count


@pytest.mark.parametrize("refused", [True, False])
@pytest.mark.parametrize("allocated", [[], DEVICES[:1]])
async def test_lists_all_claims_rarely_while_nothing_changes(
    monkeypatch: pytest.MonkeyPatch, allocated: list[str], *, refused: bool
) -> None:
    """Whether the server refuses, the GPU stays allocated, or what is free is not taken."""
    async with retiring(monkeypatch) as (followed, lists):
        lists.allocated, lists.refused = allocated, refused
        followed.begin(frozenset({FIRST}))
        await asyncio.sleep(100 * LOOK)
        assert 1 <= lists.count <= 8
        before = lists.count
        followed.look_soon()
        await until(lambda: lists.count > before)


async def test_gives_a_slow_server_more_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backoff, "_PAUSE_SECONDS", LOOK)
    async with retiring(monkeypatch) as (followed, lists):
        lists.seconds = 30.0
        followed.begin(frozenset({FIRST}))
        await until(lambda: "no answer in time" in followed.unknown)
        await until(lambda: FIRST in followed.unallocated)
        assert followed.unknown == ""


async def test_asks_a_slow_server_in_vain_at_the_first_look_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The status would say at each look that allocations cannot be read, and then that they can."""
    monkeypatch.setattr(backoff, "_PAUSE_SECONDS", LOOK)
    async with retiring(monkeypatch) as (followed, lists):
        lists.seconds, lists.allocated = 30.0, DEVICES[:1]
        followed.begin(frozenset({FIRST}))
        await until(lambda: lists.timeouts > 0 and not followed.unknown)
        before = lists.timeouts
        answered = lists.count
        await until(lambda: lists.count > answered + 2)
        assert lists.timeouts == before
