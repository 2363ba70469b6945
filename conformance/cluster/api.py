"""The API server as the suite uses it: requests that fail for the moment are made again."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import httpx2
from lightkube import ApiError, Client
from lightkube.generic_resource import create_global_resource

Node = create_global_resource("", "v1", "Node", "nodes")
_Answer = TypeVar("_Answer")
_MOMENTARY = (429, 500, 502, 503, 504)
_PAUSES = (0.5, 1.0, 2.0, 4.0)
_CONFLICT, _NOT_FOUND = 409, 404


class Api:
    """A client that has patience with a busy API server; ``requests`` counts what was asked."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.requests: Counter[str] = Counter()

    def get(self, kind: Any, name: str, namespace: str | None = None) -> Any:
        """Return an object; raises ApiError."""
        return self._ask("get", lambda: self._client.get(kind, name, namespace=namespace))

    def find(self, kind: Any, **selection: Any) -> list[Any]:
        """Return objects; raises ApiError."""
        return self.find_at(kind, **selection)[0]

    def find_at(self, kind: Any, **selection: Any) -> tuple[list[Any], str]:
        """Return objects and the version of the list, from which a watch goes on."""

        def ask() -> tuple[list[Any], str]:
            listed = self._client.list(kind, **selection)
            return list(listed), listed.resourceVersion

        return self._ask("list", ask)

    def find_known(self, kind: Any, **selection: Any) -> list[Any]:
        """Return objects of a kind that the API server may not have; [] where it has not."""
        try:
            return self.find(kind, **selection)
        except ApiError as problem:
            if problem.status.code == _NOT_FOUND:
                return []
            raise

    def create(self, obj: Any) -> Any:
        """Create an object; it is there if an answer got lost and the object did not."""
        asked = 0

        def ask() -> Any:
            nonlocal asked
            asked += 1
            try:
                return self._client.create(obj)
            except ApiError as problem:
                if asked > 1 and problem.status.code == _CONFLICT:
                    return None
                raise

        return self._ask("create", ask)

    def delete(self, kind: Any, name: str, **options: Any) -> None:
        """Delete an object, or find it gone."""

        def ask() -> None:
            try:
                self._client.delete(kind, name, **options)
            except ApiError as problem:
                if problem.status.code != _NOT_FOUND:
                    raise

        self._ask("delete", ask)

    def patch(self, kind: Any, name: str, patch: Mapping[str, Any], **options: Any) -> Any:
        """Change an object."""
        return self._ask("patch", lambda: self._client.patch(kind, name, dict(patch), **options))

    def log(self, name: str, namespace: str, container: str) -> str:
        """Return what a container has printed, "" where there is nothing yet."""
        self.requests["log"] += 1
        with contextlib.suppress(ApiError, httpx2.TransportError):
            lines = self._client.log(name, namespace=namespace, container=container, newlines=True)
            return "".join(lines)
        return ""

    def watch(self, kind: Any, namespace: str, version: str, seconds: int) -> Iterator[Any]:
        """Yield (operation, object) until the server ends the watch; raises ApiError."""
        self.requests["watch"] += 1
        return self._client.watch(
            kind, namespace=namespace, resource_version=version, server_timeout=seconds
        )

    def _ask(self, verb: str, ask: Callable[[], _Answer]) -> _Answer:
        for pause in _PAUSES:
            self.requests[verb] += 1
            try:
                return ask()
            except ApiError as problem:
                if problem.status.code not in _MOMENTARY:
                    raise
            except httpx2.TransportError:
                pass
            time.sleep(pause)
        self.requests[verb] += 1
        return ask()
