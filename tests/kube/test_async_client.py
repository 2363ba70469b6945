"""Requests and watches over a server that answers byte by byte as it is told to."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager

import pytest

from divvy.kube.access import Access
from divvy.kube.async_client import AsyncClient
from divvy.kube.errors import ApiError, Unreachable
from divvy.kube.objects import Page
from lab.fakes.listening import listening
from lab.fakes.prepared_answers import Server, answer, chunked, serving, silent
from lab.fakes.scene import play

LINES = {
    version: json.dumps(
        {"type": "ADDED", "object": {"metadata": {"name": "n", "resourceVersion": version}}}
    )
    + "\n"
    for version in ("7", "8", "9")
}


def client_of(server: Server) -> AsyncClient:
    return AsyncClient(Access("127.0.0.1", server.port))


async def raised(kind: type[Exception], prepared: bytes | None) -> Exception:
    """Return the error of a request that is answered with this."""
    async with serving() as server:
        server.answers = [prepared]
        client = client_of(server)
        with pytest.raises(kind) as problem:
            await client.request("GET", "/api")
        await client.close()
    return problem.value


async def test_sends_requests_over_a_kept_connection() -> None:
    async with serving() as server:
        client = client_of(server)
        server.answers = [answer({"a": 1}), chunked('{"b"', ":2}")]
        assert await client.request("POST", "/api/v1/x", {"name": "é"}) == {"a": 1}
        assert await client.request("GET", "/api/v1/x", query={"limit": "1"}) == {"b": 2}
        await client.close()
        first, second = (head.splitlines()[0] for head in server.heads)
        assert first == "POST /api/v1/x?fieldManager=divvy-agent HTTP/1.1"
        assert second == "GET /api/v1/x?limit=1 HTTP/1.1"
        assert json.loads(server.bodies[0]) == {"name": "é"}
        assert server.connections == 1


async def test_opens_a_new_connection_after_the_server_closed_one() -> None:
    async with serving() as server:
        client = client_of(server)
        for number in range(2):
            server.answers = [answer(number)]  # it closes after its last one
            assert await client.request("GET", "/api") == number
            await asyncio.sleep(0.05)
        await client.close()
        assert server.connections == 2


def test_discards_an_unsolicited_answer_before_the_next_request() -> None:
    unasked = answer("unasked", "408 Request Timeout")

    async def scene(*, at_once: bool) -> None:
        asked = 0

        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal asked
            while await reader.readuntil(b"\r\n\r\n"):
                asked += 1
                writer.write(answer(asked) + (unasked if at_once else b""))
                await asyncio.sleep(0.02)
                writer.write(b"" if at_once else unasked)

        async with listening(talk) as port:
            client = client_of(Server(port))
            for number in (1, 2, 3):
                assert await client.request("GET", "/api") == number
                await asyncio.sleep(0.05)
            await client.close()

    for at_once in (True, False):
        play(lambda at_once=at_once: scene(at_once=at_once))  # type: ignore[misc]


async def test_reports_the_code_and_message_of_a_refusal() -> None:
    refusal = await raised(ApiError, answer({"message": "it is another's"}, "409 Conflict"))
    assert isinstance(refusal, ApiError)
    assert (refusal.code, str(refusal)) == (409, "it is another's")
    assert str(await raised(ApiError, answer("busy", "503 Unavailable"))) == "HTTP status 503"


@pytest.mark.parametrize(
    "cut",
    [
        None,
        b"HTTP/1.1 200 OK\r\nContent-",
        b"HTTP/1.1 200 OK\r\nContent-Type: a\r\n\r\n{",
        b"SSH-2.0-OpenSSH\r\n",
        chunked('{"a"', end=False),
        chunked("[" * 100_000),
    ],
)
async def test_treats_a_truncated_or_malformed_answer_as_none(cut: bytes | None) -> None:
    assert str(await raised(Unreachable, cut))


async def test_reports_a_refused_connection_as_unreachable() -> None:
    async with serving() as server:
        client = client_of(server)
    with pytest.raises(Unreachable, match="onnect"):
        await client.request("GET", "/api")


async def watched(*answers: bytes, count: int) -> tuple[list[str], list[str], str]:
    """Return versions seen, requests made and the error that ended it."""
    versions: list[str] = []
    requests: list[str] = []
    problems: list[str] = []
    async with serving() as server:
        server.answers = [*answers]
        try:
            async with aclosing(client_of(server).watch("/api/v1/nodes")) as events:
                async for _, seen in events:
                    versions.append(seen["metadata"]["resourceVersion"])
                    if len(versions) == count:
                        break
        except ApiError as error:
            problems.append(f"{error.code}: {error}")
        except Unreachable as error:
            problems.append(str(error))
        requests.extend(head.splitlines()[0].split()[1] for head in server.heads)
    return versions, requests, "".join(problems)


async def test_resumes_a_watch_at_its_resource_version() -> None:
    # A line may come in two parts, and two in one.
    first = chunked(LINES["7"] + LINES["8"][:20], LINES["8"][20:])
    versions, requests, problem = await watched(first, chunked(LINES["9"]), count=3)
    assert versions == ["7", "8", "9"]
    path = "/api/v1/nodes?"
    assert requests == [f"{path}watch=true", f"{path}resourceVersion=8&watch=true"]
    assert problem == ""


async def test_takes_only_the_version_from_a_bookmark() -> None:
    first = chunked(LINES["7"], LINES["8"].replace("ADDED", "BOOKMARK"))
    versions, requests, _ = await watched(first, chunked(LINES["9"]), count=2)
    assert versions == ["7", "9"]
    assert "resourceVersion=8" in requests[1]


async def test_backs_off_from_a_server_that_ends_every_watch_at_once() -> None:
    async with serving() as server:
        server.answers = [chunked()] * 100
        events = client_of(server).watch("/api/v1/nodes")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1.5):
                await anext(events)
        await events.aclose()
        assert len(server.heads) == 2
        server.answers.clear()


async def test_reports_a_broken_or_refused_watch() -> None:
    versions, _, problem = await watched(chunked(LINES["7"], end=False), count=2)
    assert (versions, problem[:22]) == (["7"], "peer closed connection")
    assert (await watched(chunked('{"type":"ERROR","object":null}\n'), count=1))[2]
    gone = '{"type":"ERROR","object":{"code":410,"message":"too old"}}\n'
    assert (await watched(chunked(gone), count=2))[2] == "410: too old"
    for odd in ("null", '"410"', "[]"):
        error = f'{{"type":"ERROR","object":{{"code":{odd},"message":"odd"}}}}\n'
        assert (await watched(chunked(error), count=1))[2] == "0: odd"


@asynccontextmanager
async def trickling(status: str) -> AsyncIterator[int]:
    """Answer with a body that goes on byte by byte forever; yield the port."""

    async def trickle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 {status}\r\nContent-Length: 1000\r\n\r\n".encode())
        while not writer.is_closing():
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(0.02)

    async with listening(trickle) as port:
        yield port


@pytest.mark.parametrize(
    ("status", "expected"), [("200 OK", Unreachable), ("429 Too Many Requests", ApiError)]
)
async def test_times_out_a_trickling_answer(
    status: str, expected: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("divvy.kube.async_client._WORDS_SECONDS", 0.2)
    async with trickling(status) as port, asyncio.timeout(3):
        with pytest.raises(expected) as problem:
            await AsyncClient(Access("127.0.0.1", port)).request("PATCH", "/", {}, patience=0.7)
        if isinstance(problem.value, ApiError):
            assert problem.value.code == 429
        else:
            assert isinstance(problem.value, Unreachable)
            assert problem.value.waited


async def test_reports_a_truncated_refusal_as_a_refusal() -> None:
    cut = b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 100\r\n\r\n{"
    refusal = await raised(ApiError, cut)
    assert isinstance(refusal, ApiError)
    assert (refusal.code, str(refusal)) == (429, "HTTP status 429")


async def test_shortens_a_refusal_to_one_line() -> None:
    message = str(
        await raised(ApiError, answer({"message": "a\n\x1b[31mb " + "c" * 9000}, "403 Forbidden"))
    )
    assert message.startswith("a [31mb cccc")
    assert len(message) == 500
    longest = answer({"message": "a" * 100_000}, "500 Internal Server Error")
    assert str(await raised(ApiError, longest)) == "HTTP status 500"


async def test_bounds_the_length_of_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("divvy.kube.async_client._MAX_ANSWER", 1000)
    assert (
        str(await raised(Unreachable, answer("a" * 1000))) == "the answer is longer than 1000 bytes"
    )
    _, _, problem = await watched(chunked(*["a" * 400] * 3), count=1)
    assert problem == "an event is longer than 1000 bytes"


async def test_reports_a_connection_closed_before_an_answer() -> None:
    for cut in (None, b"HTTP/1.1 200 OK\r\nContent-"):
        assert str(await raised(Unreachable, cut)) == "the connection ended before an answer"


async def test_gives_up_an_unacknowledged_request_before_its_timeout() -> None:
    """As a host that has lost its power: a busy server's kernel acknowledges."""
    async with serving() as server:
        client = client_of(server)
        server.answers = [answer(1), answer(2)]
        await client.request("GET", "/api")
        (idle,) = client._idle
        kept = idle.writer.get_extra_info("socket")
        assert kept.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 15_000
        await client.close()
        server.answers.clear()


async def test_times_out_an_answer_that_never_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("divvy.kube.async_client._SECONDS", 0.1)
    async with silent() as port:
        with pytest.raises(Unreachable, match="in time"):
            await AsyncClient(Access("127.0.0.1", port)).request("GET", "/api")


async def test_asks_for_few_pages_in_vain_where_all_objects_are_large() -> None:
    """Nodes of 18 KiB each, as those with many images are: 233 of them make the longest page."""
    limits: list[int] = []
    objects, most = 5000, 233

    class Cluster(AsyncClient):
        async def _page(self, _path: str, query: Mapping[str, str], *_: object) -> Page:
            limits.append(int(query["limit"]))
            if limits[-1] > most:
                raise Unreachable("the answer is too long", too_long=True)
            end = int(query.get("continue", 0)) + limits[-1]
            items = [{"n": n} for n in range(end - limits[-1], min(end, objects))]
            return Page(items, "", str(end) if end < objects else "")

    pages = Cluster(Access("127.0.0.1", 1)).pages("/api/v1/nodes", 250)
    assert [item["n"] async for page in pages for item in page.items] == list(range(objects))
    assert sum(limit > most for limit in limits) < 10
    assert len(limits) < 100
