"""The template maker's link to the Kubernetes API: lists that are kept up by watches."""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from divvy.claim_templates.desired_templates import Key, digest_of
from divvy.claim_templates.offered import Share, shares_of
from divvy.kube.access import access_from
from divvy.kube.async_client import (
    SERVER_SECONDS,
    AsyncClient,
    raising_unreachable,
    until_silent,
)
from divvy.kube.errors import CONFLICT, MALFORMED, NOT_FOUND, ApiError, KubeError, Unreachable
from divvy.kube.kind import POD, RESOURCE_SLICE, Kind
from divvy.kube.objects import name_of, resource_of
from divvy.model.api_names import (
    BY_SIZE_LABEL,
    CLAIMS_DRIVER,
    MAX_NAMED_TEMPLATES,
    MAX_TEMPLATES_OF_NAMESPACE,
    TEMPLATE_MAKER,
    TEMPLATE_PREFIX,
    Component,
    component_labels,
)
from divvy.model.pod_phase import is_finished

_log = logging.getLogger(__name__)
_TEMPLATE = Kind("resource.k8s.io/v1", "ResourceClaimTemplate", "resourceclaimtemplates")
_LABELS = component_labels(Component.CLAIMS)
# A pod or template may be as large as etcd takes, 1.5 MiB, and takes several times that when read:
# a tenant's large pods must not fill this container's memory.
_PAGE = 10
_RETRY_SECONDS = 1.0


class Api:
    """Lists, watches, creates and deletes; while the API is away it tries again.

    A watch that is silent for about ``watch_seconds`` is opened again, from a new list: a
    connection that a load balancer has dropped without a word is silent forever.
    """

    def __init__(self, watch_seconds: float = 240.0) -> None:
        self._client = AsyncClient(access_from(os.environ), TEMPLATE_MAKER)
        self._watch_seconds = watch_seconds
        self._in_touch: set[str] = set()

    @property
    def in_touch(self) -> bool:
        """Return whether pods, templates and slices are known as they are now."""
        return self._in_touch == {"pods", "templates", "slices"}

    async def watch_pods(
        self,
        replace: Callable[[Mapping[str, frozenset[Key]]], None],
        change: Callable[[str, frozenset[Key]], None],
    ) -> None:
        """Tell which templates pods name, by the pods' uid, forever."""

        def entry(pod: Mapping[str, Any]) -> tuple[str, frozenset[Key]]:
            return _uid(pod), templates_of(pod)

        query = {"labelSelector": f"{BY_SIZE_LABEL}=true"}
        await self._keep("pods", POD, query, entry, replace, change, frozenset())

    async def watch_templates(
        self,
        replace: Callable[[Mapping[Key, bytes]], None],
        change: Callable[[Key, bytes | None], None],
        is_unneeded: Callable[[Key], Awaitable[bool]],
    ) -> None:
        """Watch the digests of the templates that carry the label of this controller.

        Anybody may label a template like ours, but only ours have names that begin as ours do. What
        a namespace has too much of, and nobody needs, is deleted while the list is read: an earlier
        flood may be larger than this container's memory.
        """

        def entry(template: Any) -> tuple[Key, bytes] | None:
            key = _key(template["metadata"])
            if not key.name.startswith(TEMPLATE_PREFIX):
                return None
            return key, digest_of(_spec(template))

        counts: Counter[str] = Counter()

        async def kept(key: Key, first: bool) -> bool:
            if first:
                counts.clear()
            most = 2 * MAX_TEMPLATES_OF_NAMESPACE
            if counts[key.namespace] >= most and await is_unneeded(key):
                await self.delete(key)
                return False
            counts[key.namespace] += 1
            return True

        query = {"labelSelector": ",".join(f"{name}={text}" for name, text in _LABELS.items())}
        await self._keep("templates", _TEMPLATE, query, entry, replace, change, None, kept)

    async def watch_slices(
        self,
        replace: Callable[[Mapping[str, frozenset[Share]]], None],
        change: Callable[[str, frozenset[Share]], None],
    ) -> None:
        """Tell what the slices of our driver offer, by their names, forever."""

        def entry(slice_: Any) -> tuple[str, frozenset[Share]]:
            return slice_["metadata"]["name"], shares_of(slice_)

        query = {"fieldSelector": f"spec.driver={CLAIMS_DRIVER}"}
        await self._keep("slices", RESOURCE_SLICE, query, entry, replace, change, frozenset())

    async def _keep(
        self,
        what: str,
        kind: Kind,
        query: Mapping[str, str],
        entry: Callable[[Any], tuple[Any, Any] | None],
        replace: Callable[[Mapping[Any, Any]], None],
        change: Callable[[Any, Any], None],
        gone: object,
        kept: Callable[[Any, bool], Awaitable[bool]] | None = None,
    ) -> None:
        """Keep a list up: ``entry`` is all that is kept of an object, None for nothing.

        An object that is deleted changes to ``gone``; ``kept`` tells of each in turn, and whether
        it is the first one, whether it is still there. What cannot be read is named, once.
        """
        resource = resource_of(path := kind.path(""))

        def read(obj: Any) -> tuple[Any, Any] | None:
            try:
                return entry(obj)
            except (*MALFORMED, Unreachable) as error:
                self._client.name(f"{resource} {name_of(obj)}: {error!r}")
                return None

        reported = ""
        while True:
            try:
                # A list is whole however long ago the last watch broke. Each page has its time: a
                # slow server has many of them.
                entries: dict[Any, Any] = {}
                version = ""
                pages = self._client.pages(path, _PAGE, patience=self._watch_seconds, query=query)
                async for page in pages:
                    for key, value in filter(None, map(read, page.items)):
                        if kept is None or await kept(key, not entries):
                            entries[key] = value
                    version = page.version
                    del page  # before the next one is read
                replace(entries)
                self._in_touch.add(what)
                reported = ""
                events = self._client.watch(path, version, query=query)
                # Silence is most often that nothing has happened.
                async for event, obj in until_silent(events, self._watch_seconds):
                    changed = read(obj)
                    del obj
                    if changed is not None:
                        key, value = changed
                        change(key, gone if event == "DELETED" else value)
            except KubeError as error:
                self._in_touch.discard(what)
                if str(error) != reported:
                    reported = str(error)
                    _log.warning("the watch of the %s broke: %s", what, reported or "closed")
                await asyncio.sleep(_RETRY_SECONDS * random.uniform(0.5, 1.5))

    async def pods_of(self, namespace: str) -> AsyncIterator[tuple[str, frozenset[Key]]]:
        """Yield which templates the pods of a namespace name, by the pods' uid."""
        query = {"labelSelector": f"{BY_SIZE_LABEL}=true"}
        path = POD.path(namespace)
        pages = self._client.pages(path, _PAGE, patience=SERVER_SECONDS, query=query)
        async for page in pages:
            for pod in page.items:
                try:
                    yield _uid(pod), templates_of(pod)
                except MALFORMED as error:
                    self._client.name(f"pods {name_of(pod)}: {error!r}")
            del page  # before the next one is read

    async def event(self, key: Key, reason: str, message: str) -> None:
        """Record a warning about a template, which may not be there; raises KubeError."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        about = {"apiVersion": _TEMPLATE.api_version, "kind": _TEMPLATE.kind}
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": "divvy-claim-templates.", "namespace": key.namespace},
            "involvedObject": {**about, "namespace": key.namespace, "name": key.name},
            "type": "Warning",
            "reason": reason,
            "message": message,
            "source": {"component": TEMPLATE_MAKER},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        await self._client.request("POST", f"/api/v1/namespaces/{key.namespace}/events", event)

    async def create(self, key: Key, spec: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Create a template; return it as the API server keeps it, None if the name is taken."""
        metadata = {"name": key.name, "namespace": key.namespace, "labels": _LABELS}
        template = {
            "apiVersion": _TEMPLATE.api_version,
            "kind": _TEMPLATE.kind,
            "metadata": metadata,
            "spec": spec,
        }
        try:
            path = _TEMPLATE.path(key.namespace)
            return _spec(await self._client.request("POST", path, template))
        except ApiError as error:
            if error.code != CONFLICT:
                raise
        return None

    async def read(self, key: Key) -> Mapping[str, Any] | None:
        """Return a template, also one without our label; None if it is gone."""
        try:
            return _spec(await self._client.request("GET", _path(key), patience=SERVER_SECONDS))
        except ApiError as error:
            if error.code != NOT_FOUND:
                raise
        return None

    async def delete(self, key: Key) -> None:
        """Delete a template; it may be gone."""
        try:
            await self._client.request("DELETE", _path(key))
        except ApiError as error:
            if error.code != NOT_FOUND:
                raise

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()


def templates_of(pod: Mapping[str, Any]) -> frozenset[Key]:
    """Return the templates that a pod names and still needs."""
    metadata = pod["metadata"]
    if metadata.get("deletionTimestamp") is not None or is_finished(pod):
        return frozenset()
    claims = (pod.get("spec") or {}).get("resourceClaims") or ()
    names = (claim.get("resourceClaimTemplateName") or "" for claim in claims)
    ours = (name for name in names if name.startswith(TEMPLATE_PREFIX))
    # More are refused, but a pod may be older than the policy.
    return frozenset(
        Key(metadata.get("namespace") or "", name) for name in islice(ours, MAX_NAMED_TEMPLATES)
    )


def _key(metadata: Mapping[str, Any]) -> Key:
    return Key(metadata["namespace"], metadata["name"])


def _path(key: Key) -> str:
    return _TEMPLATE.path(key.namespace, key.name)


def _spec(template: Any) -> Mapping[str, Any]:
    """Return what a template says; the API server adds empty parts. Raises Unreachable."""
    with raising_unreachable():
        return {key: value for key, value in template["spec"].items() if value}


def _uid(pod: Mapping[str, Any]) -> str:
    return pod["metadata"].get("uid") or ""
