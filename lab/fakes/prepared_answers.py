"""A server that gives prepared answers byte by byte, or none."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from lab.fakes.listening import listening


@dataclass
class Server:
    """Gives prepared answers, one for each request, and closes where one is None."""

    port: int = 0
    answers: list[bytes | None] = field(default_factory=list)
    heads: list[str] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    seconds: float = 0.0
    """How long it thinks about each."""
    connections: int = 0
    open: int = 0

    async def client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open += 1
        try:
            while self.answers:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                sizes = [line for line in head.splitlines() if line.startswith("Content-Length")]
                size = int(sizes[0].split()[1]) if sizes else 0
                self.heads.append(head)
                self.bodies.append(await reader.readexactly(size))
                answer = self.answers.pop(0)
                if answer is None:
                    break
                await asyncio.sleep(self.seconds)
                writer.write(answer)
                await writer.drain()
                if b"Length" not in answer and not answer.endswith(b"0\r\n\r\n"):
                    break
        finally:
            self.open -= 1


@asynccontextmanager
async def serving(tls: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    """Serve on a port of this machine."""
    server = Server()
    async with listening(server.client, tls) as server.port:
        yield server
        while server.open:  # the client leaves its connections first
            await asyncio.sleep(0.01)


def answer(body: object, status: str = "200 OK") -> bytes:
    """Return an answer in one piece."""
    text = json.dumps(body).encode()
    return b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status.encode(), len(text), text)


def chunked(*parts: str, end: bool = True) -> bytes:
    """Return an answer in chunks; without its ``end`` it is cut off."""
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part.encode()) for part in parts)
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + chunks + (b"0\r\n\r\n" if end else b"")


@asynccontextmanager
async def silent() -> AsyncIterator[int]:
    """Take connections and say nothing; yield the port."""

    async def say_nothing(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    async with listening(say_nothing) as port:
        yield port
