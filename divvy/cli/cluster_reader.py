"""Reads objects of the cluster that a stack is for, each failure as one error."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import httpx2

from divvy.cli.errors import CommandError, fail
from divvy.kube.kubeconfig import client, cluster_config
from divvy.plan.live_claims import UnreadableClaims

_NOT_FOUND = 404
_FORBIDDEN = 403
# The API server sends this many objects at a time: all pods of a large cluster are gigabytes.
_PAGE = 500


class NotAllowed(CommandError):
    """What a user may not read; ``reason`` is what the API server says of it."""

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(f"this user may not read {what}: {reason}")
        self.reason = reason


class Silent(Exception):
    """Behind the API server nobody answers; the text says what came instead."""


class ClusterReader:
    """The API of one cluster, for reading."""

    def __init__(self, http: httpx2.Client) -> None:
        self._http = http

    def listed(self, path: str) -> list[dict[str, Any]]:
        """Return the items of a list; a resource that this cluster does not have has none."""
        answer = self._get(path)
        return [] if answer is None else answer["items"]

    def paged(self, path: str) -> Iterator[dict[str, Any]]:
        """Yield the items of a list, page by page; raises NotAllowed."""
        query = f"{path}{'&' if '?' in path else '?'}limit={_PAGE}"
        going_on: str | None = ""
        while going_on is not None:
            page = self._get(f"{query}&continue={quote(going_on)}" if going_on else query)
            yield from () if page is None else page["items"]
            going_on = None if page is None else page["metadata"].get("continue") or None

    def proxied(self, path: str, seconds: float) -> str:
        """Return what a pod answers behind the API server; raises NotAllowed and Silent."""
        try:
            answer = self._http.get(path, timeout=seconds)
        except httpx2.HTTPError as error:
            raise Silent(str(error) or type(error).__name__) from None
        if answer.status_code == _FORBIDDEN:
            raise NotAllowed(path, answer_message(answer))
        if not answer.is_success:
            raise Silent(answer_message(answer))
        return answer.text

    def one(self, path: str) -> dict[str, Any] | None:
        """Return one object, None if there is none."""
        obj: dict[str, Any] | None = self._get(path)
        return obj

    def _get(self, path: str) -> Any:
        try:
            answer = self._http.get(path)
        except httpx2.HTTPError as error:
            server = str(self._http.base_url).rstrip("/")
            fail(f"the cluster cannot be reached: {server}: {error}")
        if answer.status_code == _NOT_FOUND:
            return None
        if answer.status_code == _FORBIDDEN:
            raise NotAllowed(path.partition("?")[0], answer_message(answer))
        if not answer.is_success:
            fail(f"the cluster refuses {path.partition('?')[0]}: {answer_message(answer)}")
        return answer.json()


@contextmanager
def reading(kubeconfig: str | None, context: str | None) -> Iterator[ClusterReader]:
    """Read the cluster that the engine would deploy to; raises KubeconfigError."""
    with client(cluster_config(kubeconfig, context), timeout=30) as http:
        try:
            yield ClusterReader(http)
        except UnreadableClaims as unreadable:
            fail(str(unreadable))


def answer_message(answer: httpx2.Response) -> str:
    """Return what the API server says of a request that it refused."""
    try:
        return str(answer.json()["message"])
    except (ValueError, KeyError, TypeError):
        return answer.text.strip()
