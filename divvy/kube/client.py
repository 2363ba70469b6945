"""Requests to one cluster as one user, one after another: for programs, not for loops."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from ipaddress import ip_address
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Self
from urllib.parse import urlencode, urlsplit

import httpx2

from divvy.kube.credential_plugin import plugin_token
from divvy.kube.errors import (
    GONE,
    MALFORMED,
    NOT_FOUND,
    TOO_MANY_REQUESTS,
    ApiError,
    KubeconfigError,
    KubeError,
    Unreachable,
    refusal,
)
from divvy.kube.kubeconfig import ClusterConfig
from divvy.kube.media_types import JSON
from divvy.kube.objects import (
    Page,
    may_be_too_large,
    name_of,
    read_object,
    read_page,
    resource_of,
    trimmed,
)
from divvy.kube.shapes import shape_problem

# The API server sends so many objects at a time: all pods of a large cluster are gigabytes. Where
# they are longer than this, fewer: a tenant can make each object as large as etcd takes.
_PAGE, _MAX_PAGE = 500, 1 << 23
# One object is 9 MiB at most, and that only as one long text; a log may be long.
_MAX_ANSWER = 1 << 26
_NOTHING: Mapping[str, str] = MappingProxyType({})


class Answer(NamedTuple):
    """What the API server answers; ``retry_after``: seconds until a busy one wants a retry."""

    code: int
    text: str
    retry_after: int | None = None

    @property
    def is_success(self) -> bool:
        """Return whether it did what it was asked for."""
        return 200 <= self.code < 300

    def object(self) -> dict[str, Any]:
        """Return the object that it is; raises ApiError and Unreachable."""
        if not self.is_success:
            raise refusal(self.code, self.text)
        with _reached():
            obj = read_object(self.text)
            if not isinstance(obj, dict):
                raise TypeError("the answer is not an object")
        return obj


class Client:
    """Thread-safe; raises Unreachable, ApiError, and KubeconfigError of a credential plugin."""

    def __init__(
        self,
        config: ClusterConfig,
        seconds: float = 30.0,
        transport: httpx2.BaseTransport | None = None,
        *,
        is_patient: bool = True,
        note: Callable[[str], None] = lambda _: None,
    ) -> None:
        """``note`` is told which objects of lists and watches could not be read whole."""
        self.note = note
        self.server = config.server
        self.context = config.context
        self.namespace = config.namespace
        self._seconds = seconds
        # How long requests to a busy server are retried.
        self._patience = seconds if is_patient else 0.0
        try:
            self._http = httpx2.Client(
                base_url=config.server,
                verify=config.tls(),
                auth=_auth(config),
                timeout=seconds,
                transport=transport,
                trust_env=not _is_loopback(config.server),
            )
        except (httpx2.InvalidURL, ImportError, ValueError) as error:
            raise KubeconfigError(f"the proxy of the environment cannot be used: {error}") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def send(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        kind: str = JSON,
        query: Mapping[str, str] = _NOTHING,
        seconds: float | None = None,
        longest: int = _MAX_ANSWER,
    ) -> Answer:
        """Make one request and return the answer, also a refusal; Unreachable if it is too long."""
        with (
            _reached(),
            self._http.stream(
                method,
                _target(path, query),
                content=None if body is None else json.dumps(body),
                headers={} if body is None else {"Content-Type": kind},
                timeout=httpx2.USE_CLIENT_DEFAULT if seconds is None else seconds,
            ) as answer,
        ):
            text = bytearray()
            for part in answer.iter_bytes():
                text += part
                if len(text) > longest:
                    raise Unreachable(f"the answer is longer than {longest} bytes", too_long=True)
            whole = str(text, "utf-8", "replace")
        return Answer(answer.status_code, whole, _retry_after(answer))

    def request(self, method: str, path: str, body: object = None, **options: Any) -> Any:
        """Make one request and return the object that it is answered with.

        A dry run, which changes nothing, is retried as a read is.
        """
        if options.get("query", _NOTHING).get("dryRun"):
            return self._patiently(lambda: self.send(method, path, body, **options)).object()
        return self.send(method, path, body, **options).object()

    def get(self, path: str, query: Mapping[str, str] = _NOTHING) -> Any:
        """Return an object; retries when a busy server asks for it.

        No retry begins later than one answer may take.
        """
        return self._patiently(lambda: self.send("GET", path, query=query)).object()

    def _patiently(self, send: Callable[[], Answer]) -> Answer:
        deadline = time.monotonic() + self._patience
        while True:
            answer = send()
            delay = answer.retry_after
            if delay is None or time.monotonic() + delay > deadline:
                return answer
            time.sleep(delay)

    def find(self, path: str) -> dict[str, Any] | None:
        """Return an object, None if it does not exist."""
        try:
            obj: dict[str, Any] = self.get(path)
        except ApiError as error:
            if error.code == NOT_FOUND:
                return None
            raise
        return obj

    def text(self, path: str, seconds: float, query: Mapping[str, str] = _NOTHING) -> str:
        """Return an answer as it is: of a log, or of what is behind a proxy."""
        answer = self.send("GET", path, query=query, seconds=seconds)
        if not answer.is_success:
            raise refusal(answer.code, answer.text)
        return answer.text

    def pages(self, path: str, query: Mapping[str, str] = _NOTHING) -> Iterator[Page]:
        """Yield the pages of a list, its objects without what no decision reads.

        Pages are smaller for a while where one is too long or too slow. If the server no longer has
        the version of the first page, the others are of a later one.
        """
        resource, token, size = resource_of(path), "", _PAGE
        while True:
            more = {"continue": token} if token else {}
            try:
                page = self._page(path, {**query, "limit": str(size), **more}, size)
            except (ApiError, Unreachable) as error:
                if size > 1 and may_be_too_large(error):
                    size = max(1, size // 8)
                    continue
                token = _later(error, token)
                continue
            size = min(_PAGE, size + max(1, size // 4))
            for text in page.notes:
                self.note(f"{resource} {text}")
            for obj in page.items:
                trimmed(obj, resource)
            if page.more == token != "":
                raise Unreachable("it sends the same page of a list again and again")
            token = page.more
            yield page
            del page
            if not token:
                return

    def _page(self, path: str, query: Mapping[str, str], size: int) -> Page:
        longest = _MAX_ANSWER if size == 1 else _MAX_PAGE
        answer = self._patiently(lambda: self.send("GET", path, query=query, longest=longest))
        if not answer.is_success:
            raise refusal(answer.code, answer.text)
        resource = resource_of(path)
        with _reached():
            return read_page(answer.text, resource)

    def watch(
        self, path: str, version: str, seconds: int, query: Mapping[str, str] = _NOTHING
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield what happens since a version, until the server ends the watch after ``seconds``.

        What is no object of the API is noted, and costs the watch nothing.
        """
        since = {"watch": "true", "resourceVersion": version, "timeoutSeconds": str(seconds)}
        target = _target(path, {**query, **since})
        patience = httpx2.Timeout(self._seconds, read=seconds + self._seconds)
        with _reached(), self._http.stream("GET", target, timeout=patience) as answer:
            if not answer.is_success:
                raise refusal(answer.status_code, answer.read().decode(errors="replace"))
            for line in _lines(answer.iter_bytes()):
                event = read_object(line)
                kind, obj = event["type"], event["object"]
                if kind == "ERROR":
                    raise ApiError(obj.get("code") or 0, str(obj.get("message")), obj)
                if kind == "BOOKMARK":  # of the object it has nothing but the version
                    continue
                if problem := shape_problem(obj, resource_of(path)):
                    self.note(f"{resource_of(path)} {name_of(obj)}: {problem}")
                else:
                    yield kind, obj


def _later(error: KubeError, token: str) -> str:
    """Return where to go on in a list whose version the server no longer has; raises the error."""
    if not isinstance(error, ApiError) or error.code != GONE:
        raise error
    with _reached():
        fresh = (error.body.get("metadata") or {}).get("continue")
    if not fresh or fresh == token:
        raise error
    return str(fresh)


def _retry_after(answer: httpx2.Response) -> int | None:
    """Return the seconds of a busy server's Retry-After, as client-go reads it."""
    is_busy = answer.status_code == TOO_MANY_REQUESTS or answer.is_server_error
    seconds = answer.headers.get("Retry-After", "")
    return max(1, int(seconds)) if is_busy and seconds.isdecimal() else None


def _lines(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Split at newlines alone: httpx also does at U+0085, which an object may hold."""
    rest = b""
    for part in parts:
        *lines, rest = (rest + part).split(b"\n")
        yield from lines
    if rest:
        yield rest


def _target(path: str, query: Mapping[str, str]) -> str:
    """Add to the query that a path may have already."""
    return f"{path}{'&' if '?' in path else '?'}{urlencode(query)}" if query else path


def _is_loopback(server: str) -> bool:
    """Tell whether no proxy leads there, as kubectl decides it."""
    host = urlsplit(server).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@contextmanager
def _reached() -> Iterator[None]:
    try:
        yield
    except (httpx2.HTTPError, *MALFORMED) as error:
        # A server that cannot be connected to is not busy.
        waited = isinstance(error, httpx2.ReadTimeout)
        raise Unreachable(str(error) or type(error).__name__, waited=waited) from error


def _auth(config: ClusterConfig) -> httpx2.Auth | None:
    user = config.user
    if path := user.get("tokenFile"):
        return _Bearer(lambda: _token_of(path))
    if token := user.get("token"):
        return _Bearer(lambda: str(token))
    if user.get("exec"):
        return _Bearer(lambda: plugin_token(config))
    if user.get("username"):
        return httpx2.BasicAuth(user["username"], user.get("password") or "")
    return None


def _token_of(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError as error:
        raise KubeconfigError(f"kubeconfig: token file {path}: {error.strerror}") from None


def _header_value(token: str) -> str:
    token = token.strip()
    if not (token and token.isascii() and token.isprintable()):
        # It stays out of the error, which may be logged.
        raise KubeconfigError("kubeconfig: the token is not one line of ASCII")
    return token


class _Bearer(httpx2.Auth):
    """Sends a token, and another one when the server refuses the last.

    Threads that need one at a time share it: a plugin may open a browser.
    """

    def __init__(self, read: Callable[[], str]) -> None:
        self._read = read
        self._token: str | None = None
        self._reading = threading.Lock()

    def auth_flow(
        self, request: httpx2.Request
    ) -> Generator[httpx2.Request, httpx2.Response, None]:
        known = self._token
        if known is not None:
            request.headers["Authorization"] = f"Bearer {known}"
            answer = yield request
            if answer.status_code != httpx2.codes.UNAUTHORIZED:
                return
        with self._reading:
            if self._token == known:
                self._token = _header_value(self._read())
            token = self._token
        if token != known:
            request.headers["Authorization"] = f"Bearer {token}"
            yield request
