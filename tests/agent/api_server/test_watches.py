"""The watches of the node and of the configuration: what they tell, and when they are in touch."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from divvy.agent.api_server import client
from divvy.agent.api_server.client import ApiServer
from divvy.agent.gpu.node import NodeView
from divvy.kube import async_client, backoff
from lab.fakes.api import FakeApi, fake_api


@asynccontextmanager
async def watching(folder: Path) -> AsyncIterator[tuple[FakeApi, ApiServer, list[str | None]]]:
    """Watch the node and a ConfigMap that is not there; yield the events about it."""
    async with fake_api("n") as api:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("KUBECONFIG", str(api.kubeconfig(folder / "config")))
            link = ApiServer("n", "divvy-system", "divvy", watch_seconds=1)
        configs: list[str | None] = []
        loops = [
            asyncio.create_task(link.watch_node(lambda _: None)),
            asyncio.create_task(link.watch_config(configs.append)),
        ]
        try:
            yield api, link, configs
        finally:
            for loop in loops:
                loop.cancel()
            await asyncio.gather(*loops, return_exceptions=True)
            await link.close()


async def test_recognises_a_missing_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The API server is well, and the node may be changed as it was told to be."""
    monkeypatch.setattr(client, "_FIRST_EVENT_SECONDS", 3)
    monkeypatch.setattr(client, "_ABSENT_SECONDS", 1.5)
    async with watching(tmp_path) as (api, link, configs), asyncio.timeout(60):
        while not link.in_touch:
            await asyncio.sleep(0.01)
        assert configs == [None]
        began = time.monotonic()
        for _ in range(300):
            assert link.in_touch
            await asyncio.sleep(0.01)
        # One look in 1.5 seconds, however long it took.
        assert len(configs) <= 2 + (time.monotonic() - began)
        api.configure("{}")
        while configs[-1] is None:
            await asyncio.sleep(0.01)
        assert configs[-1] == "{}"


async def test_learns_that_it_may_watch_a_configuration_that_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_FIRST_EVENT_SECONDS", 0.3)
    monkeypatch.setattr(backoff, "_PAUSE_SECONDS", 0.05)
    async with watching(tmp_path) as (api, link, _), asyncio.timeout(60):
        while not link.in_touch:
            await asyncio.sleep(0.01)
        api.forbidden = {("GET", "/api/v1/namespaces/divvy-system/configmaps")}
        api.drop_connections()
        while not link.refused(0.0):
            await asyncio.sleep(0.01)
        api.forbidden = set()
        while link.refused(0.0):
            await asyncio.sleep(0.01)


async def test_recognises_a_missing_configuration_by_a_server_that_is_slow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each answer takes longer than a first try is given."""
    monkeypatch.setattr(async_client, "_SECONDS", 0.3)
    monkeypatch.setattr(client, "_FIRST_EVENT_SECONDS", 0.3)
    monkeypatch.setattr(client, "_ANSWER_SECONDS", 0.3)
    async with watching(tmp_path) as (api, link, configs), asyncio.timeout(60):
        api.answer_seconds = 1.0
        while not link.in_touch:
            await asyncio.sleep(0.01)
        assert configs == [None]


@pytest.mark.parametrize("silent", [True, False])
async def test_does_not_assume_a_missing_configuration_without_the_servers_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, silent: bool
) -> None:
    monkeypatch.setattr(client, "_FIRST_EVENT_SECONDS", 0.1)
    async with watching(tmp_path) as (api, link, configs):
        api.silent = silent
        api.refused = {("GET", "/api/v1/namespaces/divvy-system/configmaps/divvy")}
        await asyncio.sleep(1.5)
        assert not configs
        assert not link.in_touch


async def test_treats_a_missing_node_as_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its labels choose the profile."""
    monkeypatch.setattr(client, "_FIRST_EVENT_SECONDS", 0.1)
    async with watching(tmp_path) as (api, link, configs):
        api.node = None  # type: ignore[assignment]
        api.configure("{}")
        await asyncio.sleep(1.5)
        assert configs[-1:] == ["{}"]
        assert not link.in_touch


async def test_is_out_of_touch_while_it_cannot_handle_an_event(tmp_path: Path) -> None:
    def refuse(_: NodeView) -> None:
        raise ValueError

    async with watching(tmp_path) as (api, link, _), asyncio.timeout(20):
        api.configure("{}")
        while not link.in_touch:
            await asyncio.sleep(0.01)
        refusing = asyncio.create_task(link.watch_node(refuse))
        while link.in_touch:
            await asyncio.sleep(0.01)
        refusing.cancel()
