"""One cluster as one user: what is sent, and what becomes of answers and refusals."""

from __future__ import annotations

import json
from base64 import b64encode
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest

from divvy.kube.client import Client
from divvy.kube.errors import ApiError, KubeconfigError, Unreachable, refusal
from divvy.kube.kubeconfig import ClusterConfig
from divvy.kube.media_types import MERGE_PATCH
from tests.kube.answering_server import Server

N = {n: {"metadata": {"name": f"n{n}"}} for n in (1, 2, 3)}


def test_sends_an_object_with_its_type_and_the_query_of_its_path(server: Server) -> None:
    server.answers = [(200, [{"kind": "Pod"}])]
    with server.client() as client:
        patch = {"metadata": {"labels": {"a": "b"}}}
        answer = client.request("PATCH", "/x?a=1", patch, kind=MERGE_PATCH, query={"b": "2"})
    assert answer == {"kind": "Pod"}
    (sent,) = server.requests
    assert (sent.method, sent.path, sent.query) == ("PATCH", "/x", {"a": "1", "b": "2"})
    assert (sent.headers["Content-Type"], sent.body) == (MERGE_PATCH, patch)


def test_raises_a_refusal_with_the_servers_words(server: Server) -> None:
    status = {"kind": "Status", "message": "pods is forbidden", "details": {"kind": "pods"}}
    server.answers = [(403, [status]), (500, [b"etcd is away"]), (404, [status]), (404, [status])]
    with server.client() as client:
        with pytest.raises(ApiError, match="pods is forbidden") as refused:
            client.get("/x")
        assert (refused.value.code, refused.value.body["details"]) == (403, {"kind": "pods"})
        with pytest.raises(ApiError, match="etcd is away"):
            client.get("/x")
        assert client.find("/x") is None
        with pytest.raises(ApiError):
            client.text("/x", 5)


def test_reports_the_page_of_a_proxy_in_one_sentence() -> None:
    assert str(refusal(502, "<html>\n<h1>Bad Gateway</h1>\n")) == (
        "HTTP 502 with a page of HTML, as from a proxy"
    )
    assert str(refusal(404, "404 page not found\n")) == "404 page not found"
    assert str(refusal(500, "")) == "HTTP 500"
    assert len(str(refusal(500, "no\n" * 10_000))) == 500


def test_reports_a_server_that_is_away_or_answers_no_json(server: Server) -> None:
    server.answers = [(200, [b"<html>"])]
    with server.client() as client, pytest.raises(Unreachable):
        client.get("/x")
    server.close()
    with server.client() as client, pytest.raises(Unreachable, match="refused"):
        client.get("/x")


def test_reads_a_list_page_by_page(server: Server) -> None:
    first = {"metadata": {"continue": "t&1", "resourceVersion": "7"}, "items": [N[1], N[2]]}
    last = {"metadata": {"resourceVersion": "7"}, "items": [N[3]]}
    server.answers = [(200, [first]), (200, [last])]
    with server.client() as client:
        pages = list(client.pages("/x?labelSelector=a", {"fieldSelector": "b"}))
    assert [item for page in pages for item in page.items] == list(N.values())
    selectors = {"labelSelector": "a", "fieldSelector": "b", "limit": "500"}
    assert [sent.query for sent in server.requests] == [
        selectors,
        {**selectors, "continue": "t&1"},
    ]


def _expired(token: str) -> tuple[int, list[Any]]:
    """Return what a server answers that no longer has the version of a list."""
    return 410, [{"code": 410, "message": "too old", "metadata": {"continue": token}}]


def test_continues_a_list_whose_version_has_expired(server: Server) -> None:
    first = {"metadata": {"continue": "old", "resourceVersion": "7"}, "items": [N[1], N[2]]}
    last = {"metadata": {"resourceVersion": "9"}, "items": [N[3]]}
    server.answers = [(200, [first]), _expired("fresh"), (200, [last])]
    with server.client() as client:
        pages = list(client.pages("/x"))
    assert [item for page in pages for item in page.items] == list(N.values())
    assert [sent.query.get("continue") for sent in server.requests] == [None, "old", "fresh"]


@pytest.mark.parametrize("token", ["", "fresh"])
def test_reports_a_list_that_cannot_be_continued(server: Server, token: str) -> None:
    first = {"metadata": {"continue": "old"}, "items": [N[1]]}
    server.answers = [(200, [first]), _expired(token), _expired(token)]
    with server.client() as client, pytest.raises(ApiError, match="too old"):
        list(client.pages("/x"))


def _busy(code: int, after: str, calls: list[str]) -> httpx2.MockTransport:
    """Return a server that answers the second request."""

    def answer(request: httpx2.Request) -> httpx2.Response:
        calls.append(request.method)
        if len(calls) > 1:
            return httpx2.Response(200, json={"items": []})
        return httpx2.Response(
            code, json={"message": "too many"}, headers={"Retry-After": after} if after else {}
        )

    return httpx2.MockTransport(answer)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    seen: list[float] = []
    monkeypatch.setattr("divvy.kube.client.time.sleep", seen.append)
    return seen


@pytest.mark.parametrize(("code", "after", "pause"), [(429, "2", 2), (503, "0", 1)])
def test_reads_again_when_a_busy_server_wants_it(
    pauses: list[float], code: int, after: str, pause: float
) -> None:
    calls: list[str] = []
    transport = _busy(code, after, calls)
    with Client(ClusterConfig("http://x"), transport=transport) as client:
        assert client.get("/y") == {"items": []}
    assert (pauses, calls) == ([pause], ["GET", "GET"])


def test_tries_a_dry_run_again_as_a_read(pauses: list[float]) -> None:
    calls: list[str] = []
    with Client(ClusterConfig("http://x"), transport=_busy(429, "1", calls)) as client:
        assert client.request("PATCH", "/y", {}, query={"dryRun": "All"}) == {"items": []}
    assert (pauses, calls) == ([1], ["PATCH", "PATCH"])


def test_leaves_it_to_the_suite_how_often_a_busy_server_is_asked(pauses: list[float]) -> None:
    transport = _busy(429, "1", [])
    impatient = Client(ClusterConfig("http://x"), transport=transport, is_patient=False)
    with impatient as client, pytest.raises(ApiError, match="too many"):
        client.get("/y")
    assert pauses == []


@pytest.mark.parametrize(
    ("method", "code", "after"),
    [("GET", 429, ""), ("GET", 429, "60"), ("GET", 403, "1"), ("POST", 429, "1")],
    ids=["no time named", "too late", "not busy", "a change"],
)
def test_reports_a_refusal_that_is_not_to_be_tried_again(
    pauses: list[float], method: str, code: int, after: str
) -> None:
    calls: list[str] = []
    transport = _busy(code, after, calls)
    with Client(ClusterConfig("http://x"), transport=transport) as client:
        ask = client.get if method == "GET" else partial(client.request, method)
        with pytest.raises(ApiError, match="too many"):
            ask("/y")
    assert (pauses, calls) == ([], [method])


def test_yields_events_until_the_server_ends_the_watch(server: Server) -> None:
    events: list[Any] = [{"type": kind, "object": N[1]} for kind in ("ADDED", "DELETED")]
    gone = {"type": "ERROR", "object": {"code": 410, "message": "too old"}}
    server.answers = [(200, events), (200, [*events, gone]), (410, [gone["object"]])]
    with server.client() as client:
        assert [kind for kind, _ in client.watch("/x", "7", 60)] == ["ADDED", "DELETED"]
        for _ in range(2):
            with pytest.raises(ApiError, match="too old") as error:
                list(client.watch("/x", "7", 60))
            assert error.value.code == 410
    assert server.requests[0].query == {
        "watch": "true",
        "resourceVersion": "7",
        "timeoutSeconds": "60",
    }


def test_reads_a_token_again_once_it_is_refused(server: Server, tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("one\n")
    server.answers = [(200, [{}]), (401, [{}]), (200, [{}]), (401, [{}])]
    with server.client(tokenFile=str(path)) as client:
        client.get("/x")
        path.write_text("two\n")
        client.get("/x")
        # The same token is not sent to a server that has just refused it.
        with pytest.raises(ApiError):
            client.get("/x")
        sent = [request.headers["Authorization"] for request in server.requests]
        assert sent == ["Bearer one", "Bearer one", "Bearer two", "Bearer two"]
        path.unlink()
        server.answers = [(401, [{}])]
        with pytest.raises(KubeconfigError, match=r"token file .*: No such file"):
            client.get("/x")


def test_sends_a_user_without_a_password(server: Server) -> None:
    server.answers = [(200, [{}])]
    with server.client(username="me") as client:
        client.get("/x")
    assert server.requests[0].headers["Authorization"] == f"Basic {b64encode(b'me:').decode()}"


@pytest.mark.parametrize("token", ["sec\nret", "sec\u00e9t", "\n"])
def test_keeps_an_invalid_token_out_of_the_error(
    server: Server, tmp_path: Path, token: str
) -> None:
    path = tmp_path / "token"
    path.write_text(token, encoding="latin-1")
    for user in ({"token": token}, {"tokenFile": str(path)}):
        with (
            server.client(**user) as client,
            pytest.raises(KubeconfigError, match="the token is not one line of ASCII") as problem,
        ):
            client.get("/x")
        assert "sec" not in str(problem.value)
    assert not server.requests


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_reaches_a_server_of_this_machine_past_a_proxy(
    server: Server, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    for scheme in ("HTTP", "ALL"):
        monkeypatch.setenv(f"{scheme}_PROXY", "http://127.0.0.1:1")
    monkeypatch.delenv("NO_PROXY", raising=False)
    server.answers = [(200, [{}])]
    with Client(ClusterConfig(server.url.replace("127.0.0.1", host)), seconds=5) as client:
        assert client.get("/x") == {}


@pytest.mark.parametrize("proxy", ["socks5://127.0.0.1:1", "::::", "ftp://127.0.0.1:1"])
def test_reports_a_proxy_that_cannot_be_used(monkeypatch: pytest.MonkeyPatch, proxy: str) -> None:
    monkeypatch.setenv("HTTPS_PROXY", proxy)
    with pytest.raises(KubeconfigError, match="the proxy of the environment cannot be used"):
        Client(ClusterConfig("https://10.0.0.1:1"))


@pytest.mark.parametrize(
    "body", ["<html>", "null", "[]", "[" * 100_000, '"x"', '{"items": []}', '{"items": 1}', "{}"]
)
def test_reports_a_list_that_is_none(server: Server, body: str) -> None:
    server.answers = [(200, [body.encode()])]
    with server.client() as client, pytest.raises(Unreachable):
        list(client.pages("/x"))


def test_reads_a_list_of_no_items(server: Server) -> None:
    server.answers = [(200, [{"metadata": {}, "items": None}])]
    with server.client() as client:
        assert [page.items for page in client.pages("/x")] == [[]]


@pytest.mark.parametrize("line", [b"<html>", b"null", b"{}", b'{"type": "ERROR"}', b"[" * 100_000])
def test_reports_a_watch_that_is_none(server: Server, line: bytes) -> None:
    server.answers = [(200, [line])]
    with server.client() as client, pytest.raises(Unreachable):
        list(client.watch("/x", "7", 60))


def test_splits_a_watch_at_newlines_alone(server: Server) -> None:
    odd = "a\u0085b\u2028c\u000b"
    event = {"type": "ADDED", "object": {**N[1], "odd": odd}}
    server.answers = [(200, [json.dumps(event, ensure_ascii=False).encode(), {**event}])]
    with server.client() as client:
        assert [obj["odd"] for _, obj in client.watch("/x", "7", 60)] == [odd, odd]


def test_yields_no_bookmarks(server: Server) -> None:
    server.answers = [(200, [{"type": "BOOKMARK", "object": {"metadata": {}}}])]
    with server.client() as client:
        assert not list(client.watch("/x", "7", 60))
