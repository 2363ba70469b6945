"""Servers on a port of this machine that leave no connection behind."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

Client = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def listening(client: Client, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """Serve each connection with ``client``; yield the port.

    At the end each connection is closed, and waited for: one that its loop outlives would be
    reported by whatever test collects it.
    """
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await client(reader, writer)
            writer.close()
            await writer.wait_closed()
        except (OSError, EOFError):
            writer.close()  # the other side has left
        except asyncio.CancelledError:
            if not writer.is_closing():  # what is closed cannot be aborted
                writer.transport.abort()
        finally:
            tasks.discard(task)

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks)
        await asyncio.sleep(0)  # an aborted transport closes its socket in the next round
