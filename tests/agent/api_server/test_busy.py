"""Thousands of agents hear of a change at one moment, and the API server is busy with it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from divvy.agent.api_server import client
from divvy.agent.api_server.client import ApiServer
from divvy.agent.api_server.node_status import NodeStatusWriter
from divvy.agent.gpu.node import NodeView
from divvy.agent.gpu.status import NodeStatus
from divvy.kube import backoff
from divvy.kube.backoff import Backoff
from divvy.kube.errors import ApiError, KubeError, Unreachable
from lab.fakes.api import FakeApi
from lab.fakes.prepared_answers import Server, answer, serving
from lab.fakes.scene import running

BUSY = ApiError(429, "too many requests")
LATE = Unreachable("no answer in time", waited=True)
TOO_MANY = answer({"message": "too many requests"}, "429 Too Many Requests")
PATCHED = answer({"metadata": {"uid": "1", "resourceVersion": "9"}})
STATUS = NodeStatus("1", "pool", "whole", "pool", "", "550", simulated=True, gpus=(), resources={})
Link = Callable[[Server], ApiServer]


@pytest.fixture
def link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Link:
    """Give what makes an agent's link to a server."""

    def linked(server: Server) -> ApiServer:
        api = FakeApi("n")
        api.port = server.port
        monkeypatch.setenv("KUBECONFIG", str(api.kubeconfig(tmp_path / "config")))
        return ApiServer("n", "divvy-system", "divvy")

    return linked


@pytest.mark.parametrize(
    ("error", "longest"),
    [
        (BUSY, 15),
        (ApiError(504, ""), 15),
        (ApiError(403, ""), 15),
        (LATE, 15),
        (KubeError, 2),
    ],
)
def test_distinguishes_a_refusing_server_from_an_unreachable_one(
    error: Exception, longest: float
) -> None:
    agent = Backoff()
    pauses = [agent.failed(error) for _ in range(1000)][10:]
    assert longest * 0.5 <= min(pauses) < longest * 0.6
    assert longest * 1.4 < max(pauses) <= longest * 1.5


def test_backs_off_exponentially_with_jitter() -> None:
    agents = [Backoff() for _ in range(1000)]
    for middle in (2, 4, 8, 15, 15, 15):
        pauses = [agent.failed(BUSY) for agent in agents]
        assert middle * 0.5 <= min(pauses) < middle * 0.6
        assert middle * 1.4 < max(pauses) <= middle * 1.5


@pytest.mark.parametrize("then", [Backoff.answered, lambda agent: agent.failed(KubeError)])
def test_resets_the_backoff_after_an_answer_or_no_connection(
    then: Callable[[Backoff], object],
) -> None:
    agent = Backoff()
    for _ in range(5_000):
        agent.failed(BUSY)
    then(agent)
    assert agent.failed(BUSY) <= 3


def test_keeps_its_patience_with_a_server_that_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether its answer came, its watch broke then, or the connection before it did."""
    now = 0.0
    monkeypatch.setattr(backoff, "monotonic", lambda: now)
    agent = Backoff()
    assert agent.patience(10) == 10
    agent.failed(LATE)
    agent.failed(KubeError())
    assert agent.patience(10) == 20
    for _ in range(5_000):
        agent.failed(LATE)
    assert agent.patience(10) == 60
    now += 25
    agent.answered()
    now += 3600
    agent.answered()  # the next event of the same watch
    assert agent.patience(10) == 50
    now += 1
    agent.answered()
    assert agent.patience(10) == 10


async def test_waits_for_a_write_as_long_as_the_server_works_on_it(
    link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("divvy.kube.async_client._SECONDS", 0.1)
    async with serving() as server:
        server.answers, server.seconds = [PATCHED], 0.5
        api = link(server)
        await api.patch_node({}, {"a": "b"})
        await api.close()
        assert len(server.heads) == 1


@pytest.mark.parametrize("odd", [b"", b"[]", b'"x"', b'{"kind":"Status"}', b"{}"])
async def test_rejects_an_odd_answer_to_a_write(link: Link, odd: bytes) -> None:
    async with serving() as server:
        server.answers = [b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(odd), odd)]
        api = link(server)
        with pytest.raises(Unreachable):
            await api.patch_node({}, {"a": "b"})
        await api.close()


async def test_retries_a_refused_write_over_the_same_connection(
    link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backoff, "_PAUSE_SECONDS", 0.05)
    async with serving() as server:
        server.answers = [TOO_MANY, TOO_MANY, TOO_MANY, TOO_MANY, PATCHED]
        api = link(server)
        writer = NodeStatusWriter(api)
        writer.update(NodeView("1", {}, {}), STATUS, None, (), None)
        began = time.monotonic()
        async with running(writer.write()), asyncio.timeout(10):
            while server.answers:
                await asyncio.sleep(0.01)
        # At least half of 0.05 + 0.1 + 0.2 + 0.4 s; at one pace it would be 0.3 s at most.
        assert time.monotonic() - began >= 0.375
        assert server.connections == 1
        await api.close()


async def test_lengthens_the_timeout_of_an_unanswered_watch(
    link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_FIRST_EVENT_SECONDS", 0.05)
    async with serving() as server:
        server.answers, server.seconds = [TOO_MANY] * 100, 1.2
        api = link(server)
        async with running(api.watch_node(lambda _: None)):
            await asyncio.sleep(1)
        await api.close()
        # 0.05 + 0.1 + 0.2 + 0.4 + 0.8 s, and not 20 times 0.05 s.
        assert 2 <= server.connections <= 7
