"""Reads objects of the cluster that a stack is for, each failure as one error.

An object that cannot be read is none: a note names it, once, and the others are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer

from divvy.errors import CommandError, fail
from divvy.kube.client import Client
from divvy.kube.errors import FORBIDDEN, NOT_FOUND, ApiError, Unreachable
from divvy.kube.kubeconfig import cluster_config
from divvy.kube.objects import resource_of
from divvy.model.problems import printable


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
        client.note = self.note
        self._notes: dict[str, None] = {}
        self._unread: dict[str, dict[str, None]] = {}

    @property
    def context(self) -> str:
        """Return the context of the kubeconfig by which the cluster is read."""
        return self._client.context

    def note(self, text: str) -> None:
        """Note what could not be read, for a person."""
        self._notes[printable(text)] = None

    def taken_notes(self) -> tuple[str, ...]:
        """Return what has been noted since the last time: whoever takes it shows it."""
        notes, self._notes = tuple(self._notes), {}
        return notes

    def unread(self, resource: str) -> tuple[str, ...]:
        """Return the names of the objects of which nothing could be read."""
        return tuple(self._unread.get(resource, ()))

    def listed(self, path: str) -> list[dict[str, Any]]:
        """Return the items of a list; a resource that this cluster does not have has none."""
        return list(self.paged(path))

    def paged(self, path: str) -> Iterator[dict[str, Any]]:
        """Yield the items of a list, page by page; raises NotAllowed."""
        with self._reading(path):
            try:
                for page in self._client.pages(path):
                    if page.skipped:
                        names = self._unread.setdefault(resource_of(path), {})
                        names.update(dict.fromkeys(page.skipped))
                    yield from page.items
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
        reader = ClusterReader(client)
        try:
            yield reader
        finally:
            for note in reader.taken_notes():
                typer.echo(f"warning: {note}", err=True)
