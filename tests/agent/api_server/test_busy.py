"""Thousands of agents hear of a change at one moment, and the API server is busy with it."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from pathlib import Path

import pytest

from divvy.agent.api_server import client
from divvy.agent.api_server.client import ApiServer, is_busy, retry_seconds
from divvy.agent.api_server.node_status import NodeStatusWriter
from divvy.agent.api_server.rest import ApiError, Unanswered, Unreachable
from divvy.agent.decide.node import NodeView
from divvy.agent.decide.status import NodeStatus
from tests.fakes.api import FakeApi
from tests.fakes.prepared_answers import answer, serving
from tests.fakes.scene import play

TOO_MANY = answer({"message": "too many requests"}, "429 Too Many Requests")
STATUS = NodeStatus("1", "pool", "whole", "pool", "", "550", simulated=True, gpus=(), resources={})


@pytest.fixture
def kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeApi:
    """Return a fake whose port the agent's configuration will name."""
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    return FakeApi("n")


def link(kubeconfig: FakeApi, path: Path, port: int) -> ApiServer:
    kubeconfig.port = port
    kubeconfig.kubeconfig(path / "config")
    return ApiServer("n", "divvy-system", "divvy")


def test_a_server_that_is_busy_is_not_one_that_is_away() -> None:
    assert is_busy(ApiError(429, ""))
    assert is_busy(ApiError(504, ""))
    assert is_busy(Unanswered("no answer in time"))
    assert not is_busy(ApiError(403, ""))
    assert not is_busy(ApiError(410, ""))
    assert not is_busy(Unreachable("connection refused"))


@pytest.mark.parametrize(
    ("unanswered", "middle"), [(0, 2), (1, 4), (2, 8), (3, 15), (4, 15), (100_000, 15)]
)
def test_agents_come_back_later_each_time_and_at_different_moments(
    unanswered: int, middle: float
) -> None:
    pauses = [retry_seconds(unanswered) for _ in range(1000)]
    assert middle * 0.5 <= min(pauses) < middle * 0.6
    assert middle * 1.4 < max(pauses) <= middle * 1.5


def test_a_write_is_waited_for_as_long_as_the_server_works_at_it(
    kubeconfig: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("divvy.agent.api_server.rest._SECONDS", 0.1)

    async def scene() -> None:
        async with serving() as server:
            server.answers, server.seconds = [answer({})], 0.5
            api = link(kubeconfig, tmp_path, server.port)
            await api.patch_node({}, {"a": "b"})
            await api.close()
            assert len(server.heads) == 1

    play(scene)


def test_what_is_refused_is_written_later_over_the_same_connection(
    kubeconfig: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_RETRY_SECONDS", 0.05)

    async def scene() -> None:
        async with serving() as server:
            server.answers = [TOO_MANY, TOO_MANY, TOO_MANY, answer({})]
            api = link(kubeconfig, tmp_path, server.port)
            writer = NodeStatusWriter(api)
            writer.update(NodeView("1", {}, {}), STATUS, None, (), None)
            began = time.monotonic()
            task = asyncio.create_task(writer.run())
            async with asyncio.timeout(10):
                while server.answers:
                    await asyncio.sleep(0.01)
            # Half of 0.1 + 0.2 + 0.4 s at the least; at one pace it would be half of 0.15 s.
            assert time.monotonic() - began >= 0.35
            assert server.connections == 1
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            await api.close()

    play(scene)


def test_a_watch_that_is_not_answered_is_given_more_time(
    kubeconfig: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_FIRST_EVENT_SECONDS", 0.05)

    async def scene() -> None:
        async with serving() as server:
            server.answers, server.seconds = [TOO_MANY] * 100, 1.2
            api = link(kubeconfig, tmp_path, server.port)
            watching = asyncio.create_task(api.watch_node(lambda _: None))
            await asyncio.sleep(1)
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching
            await api.close()
            # 0.05 + 0.1 + 0.2 + 0.4 + 0.8 s, and not 20 times 0.05 s.
            assert 2 <= server.connections <= 7

    play(scene)
