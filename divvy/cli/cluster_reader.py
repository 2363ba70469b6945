"""Reads objects of the cluster that a stack is for, each failure as one error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from divvy.cli.errors import CommandError, fail
from divvy.kube.client import Client
from divvy.kube.errors import FORBIDDEN, NOT_FOUND, ApiError, Unreachable
from divvy.kube.kubeconfig import cluster_config
from divvy.plan.live_claims import UnreadableClaims


class NotAllowed(CommandError):
    """What a user may not read; ``reason`` is what the API server says of it."""

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(f"this user may not read {what}: {reason}")
        self.reason = reason


class Silent(Exception):
    """The API server did not get an answer from behind it; the text says what came instead."""


class ClusterReader:
    """The API of one cluster, for reading."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def listed(self, path: str) -> list[dict[str, Any]]:
        """Return the items of a list; a resource that this cluster does not have has none."""
        with self._reading(path):
            answer = self._client.find(path)
        return [] if answer is None else list(answer.get("items") or ())

    def paged(self, path: str) -> Iterator[dict[str, Any]]:
        """Yield the items of a list, page by page; raises NotAllowed."""
        with self._reading(path):
            try:
                for page in self._client.pages(path):
                    yield from page["items"]
            except ApiError as error:
                if error.code != NOT_FOUND:
                    raise

    def proxied(self, path: str, seconds: float) -> str:
        """Return what a pod answers behind the API server; raises NotAllowed and Silent."""
        try:
            return self._client.text(path, seconds)
        except Unreachable as error:
            raise Silent(str(error)) from None
        except ApiError as error:
            if error.code == FORBIDDEN:
                raise NotAllowed(path, str(error)) from None
            raise Silent(str(error)) from None

    def find(self, path: str) -> dict[str, Any] | None:
        """Return one object, None if there is none."""
        with self._reading(path):
            return self._client.find(path)

    @contextmanager
    def _reading(self, path: str) -> Iterator[None]:
        try:
            yield
        except Unreachable as error:
            fail(f"the cluster cannot be reached: {self._client.server}: {error}")
        except ApiError as error:
            what = path.partition("?")[0]
            if error.code == FORBIDDEN:
                raise NotAllowed(what, str(error)) from None
            fail(f"the cluster refuses {what}: {error}")


@contextmanager
def reading(kubeconfig: str | None, context: str | None) -> Iterator[ClusterReader]:
    """Read the cluster that `divvy up` deploys to; raises KubeconfigError."""
    with Client(cluster_config(kubeconfig, context)) as client:
        try:
            yield ClusterReader(client)
        except UnreadableClaims as unreadable:
            fail(str(unreadable))
