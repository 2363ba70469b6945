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
    Unreachable,
    refusal,
)
from divvy.kube.kubeconfig import ClusterConfig
from divvy.kube.media_types import JSON

# The API server sends so many objects at a time: all pods of a large cluster are gigabytes.
_PAGE = 500
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
            obj = json.loads(self.text)
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
    ) -> None:
        self.server = config.server
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
    ) -> Answer:
        """Make one request and return the answer, also a refusal."""
        with _reached():
            answer = self._http.request(
                method,
                _target(path, query),
                content=None if body is None else json.dumps(body),
                headers={} if body is None else {"Content-Type": kind},
                timeout=httpx2.USE_CLIENT_DEFAULT if seconds is None else seconds,
            )
        return Answer(answer.status_code, answer.text, _retry_after(answer))

    def request(self, method: str, path: str, body: object = None, **options: Any) -> Any:
        """Make one request and return the object that it is answered with."""
        return self.send(method, path, body, **options).object()

    def get(self, path: str, query: Mapping[str, str] = _NOTHING) -> Any:
        """Return an object or a list; retries when a busy server asks for it.

        No retry begins later than one answer may take.
        """
        deadline = time.monotonic() + self._patience
        while True:
            answer = self.send("GET", path, query=query)
            delay = answer.retry_after
            if delay is None or time.monotonic() + delay > deadline:
                return answer.object()
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

    def pages(self, path: str, query: Mapping[str, str] = _NOTHING) -> Iterator[dict[str, Any]]:
        """Yield the pages of a list.

        If the server no longer has the version of the first page, the others are of a later one.
        """
        token = ""
        while True:
            more = {"continue": token} if token else {}
            try:
                page = self.get(path, {**query, "limit": str(_PAGE), **more})
            except ApiError as error:
                with _reached():
                    fresh = (error.body.get("metadata") or {}).get("continue")
                if error.code != GONE or not fresh or fresh == token:
                    raise
                token = fresh
                continue
            with _reached():
                page["items"] = list(page["items"] or ())
                token = page["metadata"].get("continue") or ""
            yield page
            if not token:
                return

    def watch(
        self, path: str, version: str, seconds: int, query: Mapping[str, str] = _NOTHING
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield what happens since a version, until the server ends the watch after ``seconds``."""
        since = {"watch": "true", "resourceVersion": version, "timeoutSeconds": str(seconds)}
        target = _target(path, {**query, **since})
        patience = httpx2.Timeout(self._seconds, read=seconds + self._seconds)
        with _reached(), self._http.stream("GET", target, timeout=patience) as answer:
            if not answer.is_success:
                raise refusal(answer.status_code, answer.read().decode(errors="replace"))
            for line in _lines(answer.iter_bytes()):
                event = json.loads(line)
                kind, obj = event["type"], event["object"]
                if kind == "ERROR":
                    raise ApiError(obj.get("code") or 0, str(obj.get("message")), obj)
                if kind != "BOOKMARK":  # of the object it has nothing but the version
                    yield kind, obj


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
        raise Unreachable(str(error) or type(error).__name__) from error


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
