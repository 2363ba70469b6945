"""Requests to the API server and watches of it: JSON over HTTP/1.1, which h11 speaks.

For loops that wait for events. A client for every API takes some 9 MB of each node and a seventh of
the processor time of a start; the agent makes a dozen kinds of request to one server.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import random
import socket
from asyncio import StreamReader, StreamWriter, timeout
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from time import monotonic
from types import MappingProxyType
from typing import Any, TypeVar
from urllib.parse import urlencode

import h11

from divvy.kube.access import Access
from divvy.kube.errors import MALFORMED, ApiError, Unreachable
from divvy.kube.media_types import JSON
from divvy.kube.objects import (
    Page,
    may_be_too_large,
    name_of,
    read_object,
    read_page,
    resource_of,
    version_of,
)
from divvy.kube.shapes import shape_problem

_log = logging.getLogger(__name__)
_Event = TypeVar("_Event")
# For a connection, and for the whole answer to a read.
_SECONDS = 10.0
# The API server itself gives up a request after a minute (its --request-timeout) and says so. Who
# leaves before has it do in vain what it does for thousands of nodes, and asks again.
SERVER_SECONDS = 65.0
# What the other end has not even acknowledged for so long is lost: a busy server's kernel still
# acknowledges.
_UNACKNOWLEDGED_SECONDS = 15.0
# A connection in no use for longer is not used again: servers close such.
_IDLE_SECONDS = 5.0
_WRITES = frozenset({"POST", "PUT", "PATCH"})
# A server that ends every watch at once is not asked again without a pause.
_AGAIN_SECONDS = 1.0
_MAX_PART = 1 << 16
# Of JSON that takes up to 24 times as much when it is read, as lists of small objects do; the
# container may have 300 MiB. One object is 9 MiB at most, and that only as one long text.
_MAX_ANSWER, _MAX_PAGE = 1 << 24, 1 << 22
_MAX_REFUSAL = 1 << 16
# The words of a refusal come with it, and its code is known without them.
_WORDS_SECONDS = 2.0
# Of a refusal: it goes into the log, and into the node's status, which holds 256 KiB.
_MAX_WORDS = 500
# Of objects that cannot be read whole so many are named in the log: tenants choose their names.
_MOST_NAMED = 100
# What a connection, or reading an odd answer, fails with.
_BROKEN = (OSError, EOFError, *MALFORMED, h11.ProtocolError)  # of these TimeoutError is an OSError


@dataclass
class _Connection:
    """A connection to the server, and when it was in use last (monotonic)."""

    reader: StreamReader
    writer: StreamWriter
    http: h11.Connection = field(default_factory=lambda: h11.Connection(h11.CLIENT))
    used: float = 0.0

    async def send(self, request: h11.Request, body: bytes) -> None:
        """Send a whole request."""
        for event in (request, h11.Data(data=body), h11.EndOfMessage()):
            self.writer.write(self.http.send(event) or b"")
        await self.writer.drain()

    async def status(self) -> int:
        """Return the status of the answer that comes."""
        while True:
            event = await self._event()
            if isinstance(event, h11.Response):
                return event.status_code

    async def part(self) -> bytes | None:
        """Return a part of the answer's body as it arrives, None at its end."""
        event = await self._event()
        return bytes(event.data) if isinstance(event, h11.Data) else None

    async def _event(self) -> object:
        while (event := self.http.next_event()) is h11.NEED_DATA:
            data = await self.reader.read(_MAX_PART)
            if not data and self.http.their_state is h11.SEND_RESPONSE:
                raise EOFError("the connection ended before an answer")
            self.http.receive_data(data)
        return event

    def rest(self) -> bool:
        """Get ready for another request; False if the connection ends with this answer."""
        more, _ = self.http.trailing_data
        if more or self._ended or {self.http.our_state, self.http.their_state} != {h11.DONE}:
            return False
        self.http.start_next_cycle()
        self.used = monotonic()
        return True

    async def usable(self) -> bool:
        """Return whether another request may go this way now; it is closed where none may.

        What a server says without being asked would be taken for the answer to that request.
        """
        silent = False
        try:
            if not self._ended and monotonic() - self.used < _IDLE_SECONDS:
                async with timeout(0):
                    await self.reader.read(1)
        except TimeoutError as error:
            silent = error.errno is None  # otherwise the kernel's: no acknowledgement
        finally:
            if not silent:
                self.close()
        return silent

    @property
    def _ended(self) -> bool:
        return self.reader.at_eof() or self.writer.is_closing()

    def close(self) -> None:
        """Close it at once: a server that has stopped listening would hold up a farewell."""
        self.writer.transport.abort()


class AsyncClient:
    """Talks to one API server; raises Unreachable and ApiError."""

    def __init__(self, access: Access, manager: str = "divvy-agent") -> None:
        self._access = access
        self._manager = manager
        self._idle: list[_Connection] = []
        self._named: set[str] = set()

    async def request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        kind: str = JSON,
        patience: float | None = None,
        query: Mapping[str, str] = MappingProxyType({}),
        longest: int | None = None,
    ) -> Any:
        """Make one request and return the object that it is answered with.

        ``patience``: how long the whole answer may take, where it is not the usual 10 s, and 65 s
        for what changes something;
        ``longest``: how many bytes it may have, where not the usual 16 MiB.
        """
        if method in _WRITES:
            query = {**query, "fieldManager": self._manager}
        usual = _SECONDS if method == "GET" else SERVER_SECONDS
        seconds = usual if patience is None else patience
        async with self._exchange(method, path, query, body, kind, seconds) as connection:
            text = await self._answer(connection, longest or _MAX_ANSWER)
            return read_object(text) if text else None

    async def pages(
        self,
        path: str,
        limit: int,
        *,
        patience: float | None = None,
        query: Mapping[str, str] = MappingProxyType({}),
    ) -> AsyncIterator[Page]:
        """Yield the pages of a list: smaller ones for a while where one is too long or too slow.

        A tenant can make each object as large as etcd takes: who keeps no page but the last has
        one in memory at a time, if it lets go of that, too. What nobody can read is named in the
        log, once.
        """
        more = ""
        size = limit
        while True:
            options = {**query, "limit": str(size), **({"continue": more} if more else {})}
            try:
                page = await self._page(path, options, size, patience)
            except (ApiError, Unreachable) as error:
                if size == 1 or not may_be_too_large(error):
                    raise
                size = max(1, size // 8)
                continue
            # Not at once: where all objects are large, every page that is too long is read in vain.
            size = min(limit, size + max(1, size // 4))
            for text in page.notes:
                self.name(f"{resource_of(path)} {text}")
            if page.more == more != "":
                raise Unreachable("it sends the same page of a list again and again")
            more = page.more
            yield page
            del page
            if not more:
                return

    async def _page(
        self, path: str, query: Mapping[str, str], size: int, patience: float | None
    ) -> Page:
        seconds = _SECONDS if patience is None else patience
        async with self._exchange("GET", path, query, None, JSON, seconds) as connection:
            longest = _MAX_ANSWER if size == 1 else _MAX_PAGE
            return read_page(await self._answer(connection, longest), resource_of(path))

    def name(self, text: str) -> None:
        """Name an object that cannot be read whole in the log, once."""
        if text in self._named or len(self._named) > _MOST_NAMED:
            return
        self._named.add(text)
        if len(self._named) > _MOST_NAMED:
            text = "more objects cannot be read whole; these are not named"
        _log.warning("not read: %s", text)

    async def watch(
        self,
        path: str,
        version: str = "",
        on_open: Callable[[], None] = lambda: None,
        query: Mapping[str, str] = MappingProxyType({}),
    ) -> AsyncGenerator[tuple[str, dict[str, Any]], None]:
        """Yield what happens, forever: it goes on where the server ends a watch in good order.

        Without a ``version`` it begins with what there is. It waits for each event as long as it
        takes; ``on_open`` is called where the server has taken the watch. What is no object of the
        API is named in the log, and costs the watch nothing.
        """
        while True:
            since = {"resourceVersion": version} if version else {}
            options = {**query, **since, "watch": "true"}
            async with self._exchange("GET", path, options, None, JSON, None) as connection:
                on_open()
                async for line in _lines(connection):
                    event = read_object(line)
                    kind, seen = event["type"], event["object"]
                    if kind == "ERROR":
                        code = seen.get("code")
                        message = seen.get("message") or "watch failed"
                        raise ApiError(code if isinstance(code, int) else 0, _words(message))
                    version = version_of(seen) or version
                    if kind != "BOOKMARK":  # of the object it has nothing but the version
                        if problem := shape_problem(seen, resource_of(path)):
                            self.name(f"{resource_of(path)} {name_of(seen)}: {problem}")
                        else:
                            yield kind, seen
                    del line, event, seen  # before the next one is read: each may be large
            await asyncio.sleep(_AGAIN_SECONDS)

    async def close(self) -> None:
        """Close the connections."""
        while self._idle:
            self._idle.pop().close()

    @contextlib.asynccontextmanager
    async def _exchange(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: object,
        kind: str,
        seconds: float | None,
    ) -> AsyncIterator[_Connection]:
        """Send a request and yield its connection, at the body of an answer that is no refusal.

        All that comes has to come within ``seconds``. The connection is closed in the end, unless
        it waits for another request.
        """
        connection: _Connection | None = None
        with raising_unreachable():
            try:
                async with timeout(_SECONDS):
                    connection = await self._connection()
                async with timeout(seconds):
                    await connection.send(*self._request(method, path, query, body, kind))
                    code = await connection.status()
                    if code >= 300:
                        raise await self._refusal(code, connection)
                    yield connection
            finally:
                if connection is not None and connection not in self._idle:
                    connection.close()

    async def _answer(self, connection: _Connection, most: int) -> bytes:
        """Return the whole body of an answer; the connection then waits for another request."""
        text = bytearray()
        while (part := await connection.part()) is not None:
            text += part
            if len(text) > most:
                raise Unreachable(f"the answer is longer than {most} bytes", too_long=True)
        if connection.rest():
            self._idle.append(connection)
        return bytes(text)

    async def _refusal(self, code: int, connection: _Connection) -> ApiError:
        """Return a refusal with what the server says of it, if it does within a while."""
        message = ""
        with contextlib.suppress(*_BROKEN, Unreachable):
            async with timeout(_WORDS_SECONDS):
                message = read_object(await self._answer(connection, _MAX_REFUSAL)).get("message")
        return ApiError(code, _words(message or f"HTTP status {code}"))

    def _request(
        self, method: str, path: str, query: Mapping[str, str], body: object, kind: str
    ) -> tuple[h11.Request, bytes]:
        access = self._access
        host = f"[{access.host}]" if ":" in access.host else access.host
        headers = {"Host": f"{host}:{access.port}", "Accept": JSON, "User-Agent": self._manager}
        if token := access.bearer():
            headers["Authorization"] = f"Bearer {token}"
        content = b""
        if body is not None:
            content = json.dumps(body, separators=(",", ":")).encode()
            headers |= {"Content-Type": kind, "Content-Length": str(len(content))}
        target = f"{access.path}{path}" + (f"?{urlencode(query)}" if query else "")
        return h11.Request(method=method, target=target, headers=list(headers.items())), content

    async def _connection(self) -> _Connection:
        while self._idle:
            connection = self._idle.pop()
            with contextlib.suppress(OSError):
                if await connection.usable():
                    return connection
        access = self._access
        streams = await asyncio.open_connection(access.host, access.port, ssl=access.context())
        milliseconds = int(_UNACKNOWLEDGED_SECONDS * 1000)
        tcp_socket = streams[1].get_extra_info("socket")
        tcp_socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)
        return _Connection(*streams)


async def until_silent(
    events: AsyncGenerator[_Event, None], seconds: float
) -> AsyncIterator[_Event]:
    """Yield events until none has come for about so long: programs that began at once drift apart.

    A connection that a load balancer has dropped without a word is silent forever.
    """
    async with contextlib.aclosing(events):
        while True:
            try:
                async with timeout(seconds * random.uniform(0.8, 1.2)):
                    event = await anext(events)
            except (TimeoutError, StopAsyncIteration):
                return
            yield event
            del event


async def _lines(connection: _Connection) -> AsyncIterator[bytes]:
    pieces: list[bytes] = []
    length = 0
    while (part := await connection.part()) is not None:
        *ends, rest = part.split(b"\n")
        for end in ends:
            yield b"".join((*pieces, end))
            pieces.clear()
            length = 0
        pieces.append(rest)
        length += len(rest)
        if length > _MAX_ANSWER:
            raise ValueError(f"an event is longer than {_MAX_ANSWER} bytes")


def _words(message: object) -> str:
    """Return what a server says as one line that is not too long."""
    line = " ".join("".join(c if c.isprintable() else " " for c in str(message)).split())
    return line if len(line) <= _MAX_WORDS else f"{line[: _MAX_WORDS - 1]}…"


@contextlib.contextmanager
def raising_unreachable() -> Iterator[None]:
    """Raise Unreachable for whatever a connection, or reading an odd answer, fails with."""
    try:
        yield
    except TimeoutError as error:
        raise Unreachable("no answer in time", waited=True) from error
    except _BROKEN as error:
        raise Unreachable(str(error) or type(error).__name__) from error
