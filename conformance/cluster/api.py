"""The API server as the suite uses it: requests that fail for the moment are made again."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from divvy.kube.client import Client
from divvy.kube.errors import (
    CONFLICT,
    NOT_FOUND,
    TOO_MANY_REQUESTS,
    UNAVAILABLE,
    ApiError,
    KubeError,
    Unreachable,
)
from divvy.kube.kind import Kind
from divvy.kube.media_types import MERGE_PATCH
from divvy.kube.objects import Page

_Answer = TypeVar("_Answer")
# Before 1.34 Kubernetes has claims and slices as these alone, and drivers whose claims hold GPUs.
_EARLIER = {"resource.k8s.io/v1": ("resource.k8s.io/v1beta2", "resource.k8s.io/v1beta1")}
_MOMENTARY = (TOO_MANY_REQUESTS, 500, 502, UNAVAILABLE, 504)
_PAUSES = (0.5, 1.0, 2.0, 4.0)
# Before what must not be left undone is given up: two minutes.
_LONG_PAUSES = (8.0,) * 14
# Of one try: a connection that was dropped without a word must not cost a run its lease.
SECONDS = 10.0


class Api:
    """A client that has patience with a busy API server; ``requests`` counts what was asked."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.requests: Counter[str] = Counter()

    def get(self, kind: Kind, name: str, namespace: str = "") -> dict[str, Any]:
        """Return an object; raises ApiError."""
        path = kind.path(namespace, name)
        obj: dict[str, Any] = self._ask("get", lambda: self._client.get(path))
        return obj

    def find(
        self,
        kind: Kind,
        namespace: str = "",
        labels: Mapping[str, str] | None = None,
        fields: Mapping[str, str] | None = None,
    ) -> list[dict[str, Any]]:
        """Return the objects of a namespace, or of all; raises ApiError."""
        return self.find_at(kind, namespace, labels, fields)[0]

    def find_at(
        self,
        kind: Kind,
        namespace: str = "",
        labels: Mapping[str, str] | None = None,
        fields: Mapping[str, str] | None = None,
    ) -> tuple[list[dict[str, Any]], str]:
        """Return objects and the version of the list, from which a watch goes on."""
        pages = self._pages(kind, namespace, labels, fields)
        # A later page can be of a later version, and so miss what happened to an earlier one.
        return [item for page in pages for item in page.items], pages[0].version

    def find_known(self, kind: Kind, namespace: str = "") -> list[dict[str, Any]]:
        """Return objects of a kind that the API server may not have; [] if it has not."""
        return self.find_whole(kind, namespace)[0]

    def find_whole(
        self, kind: Kind, namespace: str = "", fields: Mapping[str, str] | None = None
    ) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
        """Return objects as ``find_known`` does, and the names of those that cannot be read."""
        pages: list[Page] = []
        for version in (kind.api_version, *_EARLIER.get(kind.api_version, ())):
            try:
                pages = self._pages(replace(kind, api_version=version), namespace, None, fields)
                break
            except ApiError as problem:
                if problem.code != NOT_FOUND:
                    raise
        items = [item for page in pages for item in page.items]
        return items, tuple(name for page in pages for name in page.skipped)

    def _pages(
        self,
        kind: Kind,
        namespace: str,
        labels: Mapping[str, str] | None,
        fields: Mapping[str, str] | None,
    ) -> list[Page]:
        selectors = {"labelSelector": labels, "fieldSelector": fields}
        query = {name: _selector(chosen) for name, chosen in selectors.items() if chosen}
        return self._ask("list", lambda: list(self._client.pages(kind.path(namespace), query)))

    def create(self, kind: Kind, obj: Mapping[str, Any]) -> Any:
        """Create an object; it is there if an answer got lost and the object did not."""
        body = {"apiVersion": kind.api_version, "kind": kind.kind, **obj}
        path = kind.path(obj["metadata"].get("namespace", ""))
        attempts = 0

        def ask() -> Any:
            nonlocal attempts
            attempts += 1
            try:
                return self._client.request("POST", path, body)
            except ApiError as problem:
                if attempts > 1 and problem.code == CONFLICT:
                    return None
                raise

        return self._ask("create", ask)

    def delete(
        self, kind: Kind, name: str, namespace: str = "", grace_period: int | None = None
    ) -> None:
        """Delete an object, or find it gone."""
        body = {} if grace_period is None else {"gracePeriodSeconds": grace_period}

        def ask() -> None:
            try:
                self._client.request("DELETE", kind.path(namespace, name), body)
            except ApiError as problem:
                if problem.code != NOT_FOUND:
                    raise

        self._ask("delete", ask)

    def patch(
        self,
        kind: Kind,
        name: str,
        patch: Mapping[str, Any],
        namespace: str = "",
        *,
        undoes: bool = False,
    ) -> Any:
        """Change an object by a merge patch; one that ``undoes`` something has more patience."""
        path = kind.path(namespace, name)
        return self._ask(
            "patch",
            lambda: self._client.request("PATCH", path, patch, kind=MERGE_PATCH),
            _LONG_PAUSES if undoes else (),
        )

    def log(self, name: str, namespace: str, container: str, *, is_last: bool = False) -> str:
        """Return what a container has printed, "" if nothing yet.

        The last words of one that has ended are asked for again where the server is busy.
        """

        def ask() -> str:
            path = f"/api/v1/namespaces/{namespace}/pods/{name}/log"
            return self._client.text(path, SECONDS, {"container": container})

        with contextlib.suppress(KubeError):
            if is_last:
                return self._ask("log", ask)
            self.requests["log"] += 1
            return ask()
        return ""

    def watch(
        self, kind: Kind, namespace: str, version: str, seconds: int
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield (operation, object) until the server ends the watch; raises ApiError."""
        self.requests["watch"] += 1
        return self._client.watch(kind.path(namespace), version, seconds)

    def _ask(self, verb: str, ask: Callable[[], _Answer], more: Sequence[float] = ()) -> _Answer:
        for pause in (*_PAUSES, *more):
            self.requests[verb] += 1
            try:
                return ask()
            except KubeError as problem:
                if not is_momentary(problem):
                    raise
            time.sleep(pause)
        self.requests[verb] += 1
        return ask()


def is_momentary(problem: KubeError) -> bool:
    """Return whether the same request may be answered in a moment."""
    if isinstance(problem, ApiError):
        return problem.code in _MOMENTARY
    return isinstance(problem, Unreachable)


def _selector(chosen: Mapping[str, str]) -> str:
    return ",".join(f"{name}={value}" for name, value in chosen.items())
