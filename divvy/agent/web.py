"""The agent's HTTP endpoints: on the pod's address, and on a Unix socket of the node."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

_HEADERS = (
    "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {size}\r\n"
    "Connection: close\r\n\r\n"
)
_TEXT = "text/plain; charset=utf-8"
Answer = tuple[str, str, bytes]
Page = Callable[[], Awaitable[Answer]]
_Client = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def text(status: str, body: str) -> Answer:
    """Return a plain text answer."""
    return status, _TEXT, body.encode()


async def serve(address: str, port: int, pages: Mapping[str, Page]) -> asyncio.Server:
    """Start serving GET requests for the given paths."""
    return await asyncio.start_server(_answering(pages), address, port)


async def serve_on_socket(path: Path, pages: Mapping[str, Page]) -> asyncio.Server:
    """Start serving the same on a Unix socket that its owner alone may open."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    before = os.umask(0o177)
    try:
        return await asyncio.start_unix_server(_answering(pages), path)
    finally:
        os.umask(before)


def _answering(pages: Mapping[str, Page]) -> _Client:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(10):
                line = await reader.readline()
                while (await reader.readline()).strip():
                    pass
                method, _, rest = line.decode("latin-1").partition(" ")
                path = rest.split(" ", 1)[0].split("?", 1)[0]
                page = pages.get(path) if method == "GET" else None
                status, kind, body = await page() if page else text("404 Not Found", "not found\n")
                head = _HEADERS.format(status=status, kind=kind, size=len(body))
                writer.write(head.encode() + body)
                await writer.drain()
        except (TimeoutError, ConnectionError, ValueError):
            pass  # a client that hangs, leaves or sends rubbish concerns nobody else
        finally:
            writer.close()

    return answer
