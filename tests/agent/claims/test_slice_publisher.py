"""The publisher against an API of its own: few writes, and nothing left as it should not be."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from divvy.agent.api_server import claims_api
from divvy.agent.api_server.claims_api import ClaimsApi
from divvy.agent.claims import slice_publisher
from divvy.agent.claims.slice_publisher import MAX_GENERATION, SlicePublisher
from divvy.kube import async_client, backoff
from divvy.kube.errors import Unreachable
from divvy.model.slice_specs import slice_specs
from lab.fakes.api import FakeApi, fake_api
from lab.fakes.scene import running, until
from tests.agent.claim_values import ON_DEMAND, offered_gpu

GPUS = [offered_gpu(index, ON_DEMAND) for index in range(3)]


def specs(**tasks: int) -> dict[str, dict[str, Any]]:
    by_gpu = {name.replace("_", "-"): number for name, number in tasks.items()}
    return slice_specs("node", GPUS, {}, by_gpu, {}, {})


@asynccontextmanager
async def serving(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[FakeApi, ClaimsApi]]:
    """Serve an API, and give a client of it."""
    async with fake_api("node") as api:
        monkeypatch.setenv("KUBECONFIG", str(api.kubeconfig(folder / "kubeconfig")))
        claims = ClaimsApi("node")
        try:
            yield api, claims
        finally:
            await claims.close()


@asynccontextmanager
async def publishing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[FakeApi, SlicePublisher]]:
    """Run a publisher that has published once."""
    async with serving(folder, monkeypatch) as (api, claims):
        publisher = SlicePublisher(claims, "node", lambda: None)
        async with running(publisher.run()):
            publisher.publish(specs(), "uid")
            await until(lambda: publisher.current)
            yield api, publisher


def published(api: FakeApi) -> list[tuple[int, Any]]:
    """Return generation and content of every slice."""
    slices = api.resources.slices
    return [
        (
            slices[name]["spec"]["pool"]["generation"],
            slices[name]["spec"].get("devices", slices[name]["spec"].get("sharedCounters")),
        )
        for name in sorted(slices)
    ]


async def test_updates_one_slice_in_its_generation_and_several_in_a_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with publishing(tmp_path, monkeypatch) as (api, publisher):
        assert len(api.resources.writes) == 4
        assert {generation for generation, _ in published(api)} == {1}
        publisher.publish(specs(GPU_0=2), "uid")
        await until(lambda: publisher.current)
        assert api.resources.writes[4:] == [("PUT", "node-divvy.gpu-by-size-0")]
        assert {generation for generation, _ in published(api)} == {1}
        fewer = slice_specs("node", GPUS[:2], {}, {}, {}, {})
        publisher.publish(fewer, "uid")
        await until(lambda: publisher.current)
        assert {generation for generation, _ in published(api)} == {2}
        publisher.publish({}, "uid")
        await until(lambda: publisher.current)
        assert not api.resources.slices


@pytest.mark.parametrize("last", [MAX_GENERATION, MAX_GENERATION - 1])
@pytest.mark.parametrize("name", ["node-divvy.gpu-odd", "node-divvy.gpu-gpus-0"])
async def test_begins_again_after_the_last_generation_that_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, last: int
) -> None:
    """A stolen token of the node has written a slice of the highest generation."""
    async with publishing(tmp_path, monkeypatch) as (api, publisher):
        genuine = published(api)
        spec = json.loads(json.dumps(api.resources.slices["node-divvy.gpu-gpus-0"]["spec"]))
        spec["pool"]["generation"] = last
        api.resources.slices.setdefault(name, {"metadata": {"name": name}})
        api.resources.change(name, spec)
        await until(lambda: len(api.resources.slices) == 4 and len(_generations(api)) == 1)
        await until(lambda: publisher.current and not publisher.problem)
        assert [devices for _, devices in published(api)] == [devices for _, devices in genuine]
        publisher.publish(specs(GPU_0=1, GPU_1=2), "uid")
        await until(lambda: publisher.current)
        assert max(_generations(api)) <= MAX_GENERATION
        assert not publisher.problem


def _generations(api: FakeApi) -> set[int]:
    return {generation for generation, _ in published(api)}


async def test_recreates_a_slice_deleted_before_its_creation_was_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The watch tells of the deletion first, and then the answer would count for what there is."""
    async with publishing(tmp_path, monkeypatch) as (api, publisher):
        before = published(api)
        resources, name = api.resources, "node-divvy.gpu-by-size-0"
        answer = resources.answer

        async def late(method: str, target: str, body: Any, writer: Any) -> None:
            await answer(method, target, body, writer)
            if method == "POST":
                resources.answer = answer  # type: ignore[method-assign]
                resources.delete(name)
                await asyncio.sleep(0.5)

        resources.answer = late  # type: ignore[method-assign]
        resources.delete(name)
        await until(lambda: len(resources.writes) >= 6 and name in resources.slices)
        await until(lambda: publisher.current)
        assert published(api) == before


@pytest.mark.parametrize("text", ["", "{}", "[]"])
async def test_goes_on_after_an_answer_that_is_no_slice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """As something between agent and API server gives it; the slice itself is written."""
    async with publishing(tmp_path, monkeypatch) as (api, publisher):
        api.resources.odd_answers[:] = [text.encode()]
        publisher.publish(specs(GPU_0=2), "uid")
        await until(lambda: "not published" in publisher.problem)
        await until(lambda: publisher.current and not publisher.problem)
        assert not api.resources.odd_answers
        before = published(api)
        api.resources.delete("node-divvy.gpu-by-size-0")
        await until(lambda: published(api) == before)


async def test_goes_on_when_it_is_started_again_after_an_unforeseen_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path, monkeypatch) as (_, claims):
        create, errors = claims.create_slice, [ZeroDivisionError()]

        async def created(slice_: Any) -> dict[str, Any]:
            if errors:
                raise errors.pop()
            return await create(slice_)

        monkeypatch.setattr(claims, "create_slice", created)
        publisher = SlicePublisher(claims, "node", lambda: None)
        publisher.publish(specs(), "uid")
        with pytest.raises(ZeroDivisionError):
            await publisher.run()
        async with running(publisher.run()):
            await until(lambda: publisher.current)


async def test_starts_with_the_api_away_and_earlier_slices_present(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with publishing(tmp_path, monkeypatch) as (api, publisher):
        api.resources.away = True
        publisher.publish(specs(GPU_0=1), "uid")
        await until(lambda: "not published" in publisher.problem)
        assert not publisher.current
        api.resources.away = False
        # The problem goes once the watch is answered, a moment after the writes.
        await until(lambda: publisher.current and not publisher.problem)
        writes = len(api.resources.writes)
        claims = ClaimsApi("node")
        another = SlicePublisher(claims, "node", lambda: None)
        async with running(another.run()):
            another.publish(specs(GPU_0=1), "uid")
            await until(lambda: another.current)
        await claims.close()
        assert len(api.resources.writes) == writes


async def test_reports_a_server_that_drops_fields_of_a_slice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An API server without the feature drops a field: shares would be whole GPUs."""
    async with publishing(tmp_path, monkeypatch) as (api, publisher):
        stored = api.resources._stored

        def less(body: dict[str, Any]) -> dict[str, Any]:
            kept = stored(body)
            for device in kept["spec"].get("devices", ()):
                device.pop("allowMultipleAllocations", None)
            return kept

        monkeypatch.setattr(api.resources, "_stored", less)
        publisher.publish(specs(GPU_0=1), "uid")
        await until(lambda: "does not keep slice" in publisher.problem)
        writes = len(api.resources.writes)
        publisher.publish(specs(GPU_0=1), "uid")
        await asyncio.sleep(0.3)
        assert len(api.resources.writes) == writes


async def test_backs_off_from_a_server_that_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backoff, "_PAUSE_SECONDS", 0.05)
    async with publishing(tmp_path, monkeypatch) as (api, publisher):
        api.resources.away = True
        before = api.resources.requests
        publisher.publish(specs(GPU_0=2), "uid")
        await asyncio.sleep(1.5)
        # 0.05 + 0.1 + 0.2 + 0.4 + 0.8 s, and not 30 times 0.05 s.
        assert 2 <= api.resources.requests - before <= 8
        assert publisher.problem == "the slices of this node are not published: away"
        api.resources.away = False
        await until(lambda: publisher.current and not publisher.problem)


async def test_publishes_by_a_server_that_is_slow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answers take longer than a first try is given: the next ones are given more time."""
    monkeypatch.setattr(backoff, "_PAUSE_SECONDS", 0.05)
    monkeypatch.setattr(async_client, "_SECONDS", 0.3)
    monkeypatch.setattr(slice_publisher, "_LIST_SECONDS", 0.3)
    problems: list[str] = []
    async with serving(tmp_path, monkeypatch) as (api, claims):
        api.answer_seconds = 1.0
        publisher = SlicePublisher(claims, "node", lambda: problems.append(publisher.problem))
        publisher.publish(specs(), "uid")
        async with running(publisher.run()):
            await until(lambda: publisher.current and not publisher.problem)
            assert "no answer in time" in problems[0]
            problems.clear()
            # The watch breaks, and its version is forgotten: the slices are listed again.
            requests, api.resources.unwatched = api.resources.requests, 410
            api.drop_connections()
            await until(lambda: api.resources.requests > requests)
            api.resources.unwatched = None
            await asyncio.sleep(0.1)
            publisher.publish(specs(GPU_0=2), "uid")
            await until(lambda: publisher.current)
            assert not any("no answer in time" in problem for problem in problems)


async def test_rests_without_rights_when_nothing_is_to_be_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rights go with the last claims; an agent that has restarted hears of that afterwards."""
    monkeypatch.setattr(backoff, "_PAUSE_SECONDS", 0.05)
    async with publishing(tmp_path, monkeypatch) as (api, publisher):
        api.resources.forbidden = True
        publisher.publish(specs(GPU_0=2), "uid")
        await until(lambda: "forbidden" in publisher.problem)
        publisher.publish({}, "uid")
        await until(lambda: publisher.current and not publisher.problem)
        before = api.resources.requests
        await asyncio.sleep(0.5)
        assert api.resources.requests == before
        api.resources.forbidden = False
        publisher.publish(specs(), "uid")
        await until(lambda: publisher.current)
        assert not publisher.forbidden


async def test_relists_without_a_problem_after_a_forgotten_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backoff, "_PAUSE_SECONDS", 0.05)
    problems: list[str] = []
    tell = SlicePublisher._tell
    monkeypatch.setattr(
        SlicePublisher,
        "_tell",
        lambda self, problem: (problems.append(problem), tell(self, problem)),
    )
    async with publishing(tmp_path, monkeypatch) as (api, publisher):
        api.resources.unwatched = 410
        api.drop_connections()
        for tasks in (2, 3):
            publisher.publish(specs(GPU_0=tasks), "uid")
            await until(lambda: publisher.current)
        listed = api.resources.requests
        await until(lambda: api.resources.requests >= listed + 3)
        assert not any(problems)


async def test_reports_a_refused_watch_until_one_opens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backoff, "_PAUSE_SECONDS", 0.05)
    async with publishing(tmp_path, monkeypatch) as (api, publisher):
        problems: list[str] = []
        publisher._on_change = lambda: problems.append(publisher.problem)
        api.resources.unwatched = 429
        api.drop_connections()
        await until(lambda: bool(problems))
        before = api.resources.requests
        await asyncio.sleep(1.5)
        # List and watch after 0.05, 0.1, 0.2, 0.4 and 0.8 s, and not 30 times.
        assert 2 <= api.resources.requests - before <= 14
        api.resources.unwatched = None
        await until(lambda: publisher.problem == "")
        assert [bool(problem) for problem in problems] == [True, False]


async def test_reports_a_slice_of_somebody_else_without_retrying_constantly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backoff, "_PAUSE_SECONDS", 0.05)
    async with publishing(tmp_path, monkeypatch) as (api, publisher):
        publisher.publish({}, "uid")
        await until(lambda: publisher.current)
        api.resources.others = set(specs())
        before = api.resources.requests
        publisher.publish(specs(), "uid")
        await asyncio.sleep(1.5)
        assert 4 <= api.resources.requests - before <= 20
        assert "already exists" in publisher.problem
        api.resources.others = set()
        await until(lambda: publisher.current and not publisher.problem)


@pytest.mark.parametrize(("longest", "lists"), [(1 << 24, 3), (700, 6)])
async def test_reads_all_claims_page_by_page(
    longest: int, lists: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By smaller pages, where a page is longer than the agent can hold."""
    monkeypatch.setattr(claims_api, "_PAGE", 2)
    monkeypatch.setattr(async_client, "_MAX_PAGE", longest)
    async with serving(tmp_path, monkeypatch) as (api, claims):
        for number in range(5):
            claim = api.resources.allocate(f"c{number}")
            claim["metadata"]["annotations"] = {"large": "a" * (300 if number > 1 else 1)}
        unread: list[str] = []
        names = [
            resource_slice["metadata"]["name"]
            async for resource_slice in claims.claims(unread.append, 10.0)
        ]
        assert names == ["c0", "c1", "c2", "c3", "c4"]
        assert api.resources.lists == lists


async def test_reads_large_pages_again_after_a_few_large_claims(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tenant's large claims must not make it ask for all that follow one by one."""
    monkeypatch.setattr(claims_api, "_PAGE", 16)
    monkeypatch.setattr(async_client, "_MAX_PAGE", 12_000)
    async with serving(tmp_path, monkeypatch) as (api, claims):
        for number in range(64):
            claim = api.resources.allocate(f"c{number:02}")
            claim["metadata"]["annotations"] = {"large": "a" * (6000 if number < 3 else 1)}
        unread: list[str] = []
        assert len([claim async for claim in claims.claims(unread.append, 10.0)]) == 64
        assert api.resources.lists < 16


async def test_reads_nothing_from_an_empty_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A preparation asks again, where an internal error would hold its pod up for a minute."""
    async with serving(tmp_path, monkeypatch) as (api, claims):
        api.resources.allocate("mine")
        api.resources.odd_answers[:] = [b""]
        with pytest.raises(Unreachable):
            await claims.claim("default", "mine")
        assert await claims.claim("default", "mine")
