"""The agent's HTTP endpoints: on the pod's address, and on a Unix socket of the node.

Anybody in the cluster may open connections, so that they are few and short: where there are too
many, the oldest of whoever has the most makes way.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

_HEADERS = (
    "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {size}\r\n"
    "Connection: close\r\n\r\n"
)
_TEXT = "text/plain; charset=utf-8"
_MAX_CONNECTIONS = 32
_MAX_HEADER_LINES = 100
_REQUEST_SECONDS = 10.0
_log = logging.getLogger(__name__)
Answer = tuple[str, str, bytes]
Page = Callable[[], Awaitable[Answer]]


def text(status: str, body: str) -> Answer:
    """Return a plain text answer."""
    return status, _TEXT, body.encode()


def cached(page: Page, seconds: float) -> Page:
    """Return a page that is made once in so many seconds, whoever and how many ask."""
    lock = asyncio.Lock()
    cache: list[tuple[float, Answer]] = []

    async def answer() -> Answer:
        async with lock:
            if not cache or time.monotonic() - cache[0][0] >= seconds:
                fresh = await page()
                cache[:] = [(time.monotonic(), fresh)]
            return cache[0][1]

    return answer


async def serve(address: str, port: int, pages: Mapping[str, Page]) -> asyncio.Server:
    """Start serving GET requests for the given paths."""
    return await asyncio.start_server(_Clients(pages), address, port)


async def serve_while(
    work: Coroutine[Any, Any, None], address: str, port: int, pages: Mapping[str, Page]
) -> None:
    """Serve pages while work goes on; SIGTERM and SIGINT end it in order."""
    working = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, working.cancel)
    server = await serve(address, port, pages)
    try:
        await working
    except asyncio.CancelledError:
        _log.info("stopping")
    finally:
        server.close()


async def serve_on_socket(path: Path, pages: Mapping[str, Page]) -> asyncio.Server:
    """Start serving the same on a Unix socket that its owner alone may open."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    before = os.umask(0o177)
    try:
        return await asyncio.start_unix_server(_Clients(pages), path)
    finally:
        os.umask(before)


class _Clients:
    """Answers connections, and closes one for each past the most there may be."""

    def __init__(self, pages: Mapping[str, Page]) -> None:
        self._pages = pages
        self._open: dict[asyncio.StreamWriter, str] = {}  # whose, in the order of their coming

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open[writer] = _address(writer)
        if len(self._open) > _MAX_CONNECTIONS:
            self._make_way()
        try:
            async with asyncio.timeout(_REQUEST_SECONDS):
                await self._answer(reader, writer)
        except (TimeoutError, ConnectionError, ValueError):
            pass  # a client that hangs, leaves or sends rubbish disturbs no other
        finally:
            self._open.pop(writer, None)
            writer.close()

    def _make_way(self) -> None:
        """Close the oldest connection of the address that has the most: the kubelet has one."""
        most, _ = Counter(self._open.values()).most_common(1)[0]
        oldest = next(writer for writer, whose in self._open.items() if whose == most)
        del self._open[oldest]
        oldest.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = await reader.readline()
        for _ in range(_MAX_HEADER_LINES):
            if not (await reader.readline()).strip():
                break
        method, _, rest = line.decode("latin-1").partition(" ")
        path = rest.split(" ", 1)[0].split("?", 1)[0]
        page = self._pages.get(path) if method == "GET" else None
        missing = text("404 Not Found", "not found\n")
        status, kind, body = await _rendered(page, path) if page else missing
        head = _HEADERS.format(status=status, kind=kind, size=len(body))
        writer.write(head.encode() + body)
        await writer.drain()


async def _rendered(page: Page, path: str) -> Answer:
    """Return a page; an error in it is told to whoever asks, and to the log."""
    try:
        return await page()
    except Exception as error:
        _log.exception("%s failed", path)
        return text("500 Internal Server Error", f"internal error: {type(error).__name__}\n")


def _address(writer: asyncio.StreamWriter) -> str:
    peer = writer.get_extra_info("peername")
    return str(peer[0]) if isinstance(peer, tuple) else ""
