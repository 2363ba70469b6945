"""The template maker's link to the Kubernetes API: lists that are kept up by watches."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Mapping
from itertools import islice
from typing import Any, cast

import httpx2
from lightkube import ALL_NS, ApiError, AsyncClient
from lightkube.generic_resource import create_global_resource, create_namespaced_resource
from lightkube.resources.core_v1 import Pod

from divvy.claim_templates.offered import Share, shares_of
from divvy.claim_templates.wanted import Key
from divvy.model.contract import (
    BY_SIZE_LABEL,
    CLAIMS_DRIVER,
    MAX_NAMED_TEMPLATES,
    TEMPLATE_MAKER,
    TEMPLATE_PREFIX,
    Component,
    component_labels,
)

_log = logging.getLogger(__name__)
_GROUP, _VERSION = "resource.k8s.io", "v1"
_Template: Any = create_namespaced_resource(
    _GROUP, _VERSION, "ResourceClaimTemplate", "resourceclaimtemplates"
)
_Slice: Any = create_global_resource(_GROUP, _VERSION, "ResourceSlice", "resourceslices")
_LABELS = component_labels(Component.CLAIMS)
_OVER = ("Succeeded", "Failed")
# A pod or template may be as large as etcd takes, 1.5 MiB, and takes several times that when read:
# a tenant's large pods must not fill this container's memory.
_PAGE = 10
_RETRY_SECONDS = 1.0
AWAY = (ApiError, httpx2.HTTPError)


class Api:
    """Lists, watches, creates and deletes; while the API is away it tries again.

    A watch that is silent for about ``watch_seconds`` is opened again, from a new list: a
    connection that a load balancer has dropped without a word is silent for ever.
    """

    def __init__(self, watch_seconds: float = 240.0) -> None:
        # Its overloads know no resource that is made at run time.
        self._client: Any = AsyncClient(field_manager=TEMPLATE_MAKER)
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
        """Tell which templates pods name, by the pods' uid, for ever."""

        def entry(pod: Pod) -> tuple[str, frozenset[Key]]:
            return _uid(pod), templates_of(pod)

        def on_event(kind: str, pod: Pod) -> None:
            change(_uid(pod), frozenset() if kind == "DELETED" else templates_of(pod))

        options = {"namespace": ALL_NS, "labels": {BY_SIZE_LABEL: "true"}}
        await self._keep("pods", Pod, options, entry, replace, on_event)

    async def watch_templates(
        self,
        replace: Callable[[Mapping[Key, Mapping[str, Any]]], None],
        change: Callable[[Key, Mapping[str, Any] | None], None],
    ) -> None:
        """Watch the specifications of the templates that carry the label of this controller.

        Anybody may label a template like ours, but only ours have names that begin as ours do.
        """

        def entry(template: Any) -> tuple[Key, Mapping[str, Any]] | None:
            key = Key(template.metadata.namespace, template.metadata.name)
            return (key, _spec(template)) if key.name.startswith(TEMPLATE_PREFIX) else None

        def on_event(kind: str, template: Any) -> None:
            if (own := entry(template)) is not None:
                change(own[0], None if kind == "DELETED" else own[1])

        options = {"namespace": ALL_NS, "labels": _LABELS}
        await self._keep("templates", _Template, options, entry, replace, on_event)

    async def watch_slices(
        self,
        replace: Callable[[Mapping[str, frozenset[Share]]], None],
        change: Callable[[str, frozenset[Share]], None],
    ) -> None:
        """Tell what the slices of our driver offer, by their names, for ever."""

        def entry(slice_: Any) -> tuple[str, frozenset[Share]]:
            return slice_.metadata.name, shares_of(slice_)

        def on_event(kind: str, slice_: Any) -> None:
            name, shares = entry(slice_)
            change(name, frozenset() if kind == "DELETED" else shares)

        options = {"fields": {"spec.driver": CLAIMS_DRIVER}}
        await self._keep("slices", _Slice, options, entry, replace, on_event)

    async def _keep(
        self,
        what: str,
        resource: Any,
        options: Mapping[str, Any],
        entry: Callable[[Any], tuple[Any, Any] | None],
        replace: Callable[[Mapping[Any, Any]], None],
        on_event: Callable[[str, Any], None],
    ) -> None:
        """Keep a list up: ``entry`` is all that is kept of an object, None for nothing."""
        reported = ""
        while True:
            is_listed = False
            try:
                # A list is whole however long ago the last watch broke.
                listed = self._client.list(resource, chunk_size=_PAGE, **options)
                replace(await self._entries(listed, entry))
                is_listed = True
                self._in_touch.add(what)
                reported = ""
                await self._follow(resource, options, listed.resourceVersion, on_event)
            except TimeoutError:
                if not is_listed:
                    self._in_touch.discard(what)
                continue  # silence after a list is most often that nothing has happened
            except (*AWAY, StopAsyncIteration) as error:
                self._in_touch.discard(what)
                if str(error) != reported:
                    reported = str(error)
                    _log.warning("the watch of the %s broke: %s", what, reported or "closed")
            await asyncio.sleep(_RETRY_SECONDS * random.uniform(0.5, 1.5))

    async def _entries(
        self, listed: AsyncIterable[Any], entry: Callable[[Any], tuple[Any, Any] | None]
    ) -> dict[Any, Any]:
        """Return what is kept of a list. Each page has its time: a slow server has many of them."""
        entries: dict[Any, Any] = {}
        objects = aiter(listed)
        while True:
            try:
                async with asyncio.timeout(self._watch_seconds):
                    obj = await anext(objects)
            except StopAsyncIteration:
                return entries
            if (kept := entry(obj)) is not None:
                entries[kept[0]] = kept[1]

    async def _follow(
        self,
        resource: Any,
        options: Mapping[str, Any],
        version: str,
        on_event: Callable[[str, Any], None],
    ) -> None:
        """Tell every change since a version, until nothing has arrived for long."""
        opened = self._client.watch(resource, resource_version=version, **options)
        events = cast("AsyncGenerator[tuple[str, Any], None]", opened)
        async with contextlib.aclosing(events):
            while True:
                patience = self._watch_seconds * random.uniform(0.8, 1.2)
                async with asyncio.timeout(patience):
                    kind, obj = await anext(events)
                on_event(kind, obj)

    async def create(self, key: Key, spec: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Create a template; return it as the API server keeps it, None if the name is taken."""
        template = _Template(
            apiVersion=f"{_GROUP}/{_VERSION}",
            kind="ResourceClaimTemplate",
            metadata={
                "name": key.name,
                "namespace": key.namespace,
                "labels": _LABELS,
            },
            spec=spec,
        )
        try:
            return _spec(await self._client.create(template, namespace=key.namespace))
        except ApiError as error:
            if error.status.code != 409:
                raise
        return None

    async def read(self, key: Key) -> Mapping[str, Any] | None:
        """Return a template, also one without our label; None if it is gone."""
        try:
            return _spec(await self._client.get(_Template, key.name, namespace=key.namespace))
        except ApiError as error:
            if error.status.code != 404:
                raise
        return None

    async def delete(self, key: Key) -> None:
        """Delete a template; it may be gone."""
        try:
            await self._client.delete(_Template, key.name, namespace=key.namespace)
        except ApiError as error:
            if error.status.code != 404:
                raise

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()


def templates_of(pod: Pod) -> frozenset[Key]:
    """Return the templates that a pod names and still needs."""
    if pod.spec is None or pod.metadata is None or pod.metadata.deletionTimestamp is not None:
        return frozenset()
    if pod.status is not None and pod.status.phase in _OVER:
        return frozenset()
    claims = (claim.resourceClaimTemplateName for claim in pod.spec.resourceClaims or ())
    names = (name for name in claims if name and name.startswith(TEMPLATE_PREFIX))
    # More are refused, but a pod may be older than the policy.
    return frozenset(
        Key(pod.metadata.namespace or "", name) for name in islice(names, MAX_NAMED_TEMPLATES)
    )


def _spec(template: Any) -> Mapping[str, Any]:
    """Return what a template says; the API server adds empty parts."""
    return {key: value for key, value in template["spec"].items() if value}


def _uid(pod: Pod) -> str:
    return (pod.metadata.uid if pod.metadata else None) or ""
