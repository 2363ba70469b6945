"""The agent's endpoints: what many who ask, or who never ask, cost it."""

from __future__ import annotations

import asyncio
import contextlib
import stat
from pathlib import Path
from time import monotonic

import pytest

from divvy.agent import agent as agent_module
from divvy.agent.__main__ import _Process
from divvy.agent.agent import Agent
from divvy.agent.settings import settings_from
from divvy.agent.web import Answer, cached, serve, serve_on_socket, text


async def alive() -> Answer:
    return text("200 OK", "alive\n")


async def get(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    answer = await reader.read()
    await leave(writer)
    return answer


async def leave(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


def test_renders_a_page_once_for_concurrent_requests() -> None:
    renderings = 0

    async def page() -> Answer:
        nonlocal renderings
        renderings += 1
        await asyncio.sleep(0.01)
        return text("200 OK", f"{renderings}\n")

    async def ask() -> None:
        answers = await asyncio.gather(*(shared() for _ in range(300)))
        assert {answer[2] for answer in answers} == {b"1\n"}
        await asyncio.sleep(0.3)
        assert (await shared())[2] == b"2\n"

    shared = cached(page, 0.25)
    asyncio.run(ask())


async def test_tells_an_error_in_a_page_to_who_asks_and_to_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Some errors are also what a client's rubbish raises, and would be taken for that."""

    async def broken() -> Answer:
        raise ValueError("no such figure")

    server = await serve("127.0.0.1", 0, {"/": broken})
    async with server:
        port = server.sockets[0].getsockname()[1]
        answer = await get(*await asyncio.open_connection("127.0.0.1", port))
    assert answer.startswith(b"HTTP/1.1 500 ")
    assert answer.endswith(b"internal error: ValueError\n")
    assert "no such figure" in caplog.text


async def test_keeps_others_connections_when_one_client_opens_many() -> None:
    """A pod that floods the port would make the kubelet's probes fail, and end the agent."""
    server = await serve("127.0.0.1", 0, {"/": alive})
    port = server.sockets[0].getsockname()[1]
    async with server:
        probe = await asyncio.open_connection("127.0.0.1", port)
        other = ("127.0.0.2", 0)
        flood = [
            await asyncio.open_connection("127.0.0.1", port, local_addr=other) for _ in range(40)
        ]
        assert b"200 OK" in await get(*probe)
        for _, writer in flood:
            await leave(writer)
        await asyncio.sleep(0.2)  # the server sees that they are gone


async def test_closes_the_oldest_of_too_many_connections() -> None:
    server = await serve("127.0.0.1", 0, {"/": alive})
    port = server.sockets[0].getsockname()[1]
    async with server:
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(32)]
        assert b"200 OK" in await get(*await asyncio.open_connection("127.0.0.1", port))
        async with asyncio.timeout(5):
            assert await idle[0][0].read() == b""  # closed, and nothing was said
        assert b"200 OK" in await get(*idle[31])
        for _, writer in idle:
            await leave(writer)
        await asyncio.sleep(0.2)  # the server sees that they are gone


async def test_restricts_the_debug_socket_to_root(tmp_path: Path) -> None:
    server = await serve_on_socket(tmp_path / "debug.sock", {"/": alive})
    async with server:
        mode = (tmp_path / "debug.sock").stat().st_mode
        assert stat.S_IMODE(mode) == 0o600
        opened = await asyncio.open_unix_connection(tmp_path / "debug.sock")
        assert b"200 OK" in await get(*opened)


def test_fails_the_health_check_while_a_reconciliation_hangs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    process = _Process(
        settings_from({"NODE_NAME": "n1", "NAMESPACE": "divvy-system", "POD_NAME": "divvy"})
    )
    agent = Agent.__new__(Agent)
    agent._reconciled = monotonic()
    process._agent = agent
    assert asyncio.run(process._health())[0] == "200 OK"
    monkeypatch.setattr(agent_module, "monotonic", lambda: monotonic() + 121)
    status, _, page = asyncio.run(process._health())
    assert (status, page) == (
        "503 Service Unavailable",
        b"reconciliation has been stuck for 121 s\n",
    )
