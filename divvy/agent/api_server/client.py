"""The agent's link to the Kubernetes API: watches, patches of its node, Events, evictions."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from time import monotonic
from typing import Any

from divvy.agent.gpu.node import NodeView
from divvy.kube.access import access_from
from divvy.kube.async_client import AsyncClient, raising_unreachable
from divvy.kube.backoff import Backoff
from divvy.kube.errors import MALFORMED, NOT_FOUND, ApiError, KubeError
from divvy.kube.media_types import MERGE_PATCH
from divvy.model.api_names import CONFIG_KEY

_log = logging.getLogger(__name__)
# A watch begins with the objects that exist: one that stays silent has lost its server, or the
# server is busy.
_FIRST_EVENT_SECONDS = 15.0
_ABSENT_SECONDS = 60.0
# At first: a server that is slow is given longer.
_ANSWER_SECONDS = 10.0
_REFUSALS = (401, 403)
_WRITE = "write to its node"


@dataclass(frozen=True)
class _Watched:
    """One object that is watched; one that is ``optional`` may not be there."""

    what: str
    path: str
    name: str
    on_event: Callable[[str, Mapping[str, Any]], None]
    optional: bool = False


class ApiServer:
    """Watches and patches; while the API is away it retries and nothing else stops.

    A watch is opened again when nothing has arrived for about ``watch_seconds``: a connection that
    a load balancer has dropped without a word is silent forever, and an object may be for weeks.
    """

    def __init__(
        self, node: str, namespace: str, config_map: str, watch_seconds: float = 240.0
    ) -> None:
        self._client = AsyncClient(access_from(os.environ))
        self._node = node
        self._namespace = namespace
        self._config_map = config_map
        self._watch_seconds = watch_seconds
        self._in_touch: set[str] = set()
        # What is refused → since when, and in which words.
        self._refused: dict[str, tuple[float, str]] = {}

    @property
    def in_touch(self) -> bool:
        """Return whether both watches have told the present state, and have not broken since."""
        return self._in_touch == {"node", "configuration"}

    def refused(self, seconds: float) -> str:
        """Return what the API server has refused for longer than this, "" if nothing."""
        lasting = [
            f"the API server refuses to let the agent {what}: {words}"
            for what, (since, words) in sorted(self._refused.items())
            if monotonic() - since > seconds
        ]
        return "; ".join(lasting)

    @property
    def is_write_refused(self) -> bool:
        """Return whether the last write to the node that was answered was refused."""
        return _WRITE in self._refused

    def _note(self, what: str, error: Exception | None) -> None:
        """Note whether something was refused; what was not answered says nothing."""
        if error is None:
            self._refused.pop(what, None)
        elif isinstance(error, ApiError) and error.code in _REFUSALS:
            self._refused.setdefault(what, (monotonic(), str(error)))

    async def watch_node(self, on_node: Callable[[NodeView], None]) -> None:
        """Call ``on_node`` with the node now and after every change of it, forever."""

        def on_event(kind: str, node: Mapping[str, Any]) -> None:
            if kind != "DELETED":
                on_node(_view(node))

        await self._watch(_Watched("node", "/api/v1/nodes", self._node, on_event))

    async def watch_config(self, on_config: Callable[[str | None], None]) -> None:
        """Call ``on_config`` with the stack's canonical JSON now and after every change.

        None says that there is no such ConfigMap, or no such key in it.
        """

        def on_event(kind: str, config_map: Mapping[str, Any]) -> None:
            data = {} if kind == "DELETED" else config_map.get("data") or {}
            on_config(data.get(CONFIG_KEY))

        path = f"/api/v1/namespaces/{self._namespace}/configmaps"
        watched = _Watched("configuration", path, self._config_map, on_event, optional=True)
        await self._watch(watched)

    async def _watch(self, watched: _Watched) -> None:
        try:
            await self._follow(watched)
        finally:
            self._in_touch.discard(watched.what)

    async def _follow(self, watched: _Watched) -> None:
        what, on_event = watched.what, watched.on_event
        reported = ""
        absent = False
        backoff = Backoff()
        while True:
            has_events = False
            first = _ABSENT_SECONDS if absent else backoff.patience(_FIRST_EVENT_SECONDS)
            opened = asyncio.Event()
            query = {"fieldSelector": f"metadata.name={watched.name}"}
            try:
                events = self._client.watch(watched.path, on_open=opened.set, query=query)
                async with contextlib.aclosing(events):
                    while True:
                        patience = self._watch_seconds if has_events else first
                        # Agents that started at one time drift apart.
                        async with asyncio.timeout(patience * random.uniform(0.8, 1.2)):  # noqa: S311
                            kind, seen = await anext(events)
                        has_events, absent = True, False
                        backoff.answered()
                        self._in_touch.add(what)
                        self._note(f"watch the {what}", None)
                        reported = ""
                        try:
                            on_event(kind, seen)
                        except MALFORMED as error:
                            # What is known stays, and the next change of it is another chance: but
                            # until then nobody knows what the node or the stack is to be.
                            self._in_touch.discard(what)
                            _log.warning("the %s cannot be read: %r", what, error)
            except TimeoutError:
                if has_events:
                    continue  # the first event of the next watch is the present state
                if opened.is_set():
                    self._note(f"watch the {what}", None)
                # Of an object that is not there no watch tells anything.
                can_be_absent = watched.optional and opened.is_set()
                absent = can_be_absent and await self._is_absent(
                    watched, backoff.patience(_ANSWER_SECONDS)
                )
                if absent:
                    backoff.answered()
                    self._in_touch.add(what)
                    on_event("DELETED", {})
                else:
                    self._in_touch.discard(what)
                    backoff.unanswered()
            except (KubeError, StopAsyncIteration) as error:
                absent = False
                self._in_touch.discard(what)
                self._note(f"watch the {what}", error)
                if str(error) != reported:
                    reported = str(error)
                    _log.warning("the watch of the %s broke: %s", what, reported or "closed")
                await asyncio.sleep(backoff.failed(error))

    async def _is_absent(self, watched: _Watched, patience: float) -> bool:
        path = f"{watched.path}/{watched.name}"
        try:
            await self._client.request("GET", path, patience=patience)
        except KubeError as error:
            return isinstance(error, ApiError) and error.code == NOT_FOUND
        return False

    async def patch_node(
        self, labels: Mapping[str, str | None], annotations: Mapping[str, str | None]
    ) -> NodeView:
        """Merge labels and annotations into the node (None removes) and return it as it is then.

        Raises KubeError.
        """
        patch = {"metadata": {"labels": dict(labels), "annotations": dict(annotations)}}
        path = f"/api/v1/nodes/{self._node}"
        try:
            written = await self._client.request("PATCH", path, patch, kind=MERGE_PATCH)
        except KubeError as error:
            self._note(_WRITE, error)
            raise
        self._note(_WRITE, None)
        with raising_unreachable():
            return _view(written)

    async def event(self, node_uid: str, kind: str, reason: str, message: str) -> None:
        """Record a Kubernetes Event about the node; ``kind`` is "Normal" or "Warning".

        Raises KubeError.
        """
        # The kubelet, too, uses the node's name as uid; kubectl describe looks for it.
        node = _reference("Node", self._node, node_uid or self._node)
        await self._record(node, "default", kind, reason, message)

    async def pod_event(self, pod: str, uid: str, reason: str, message: str) -> None:
        """Record a warning about a pod, "namespace/name"; raises KubeError."""
        namespace, _, name = pod.partition("/")
        about = {**_reference("Pod", name, uid), "namespace": namespace}
        await self._record(about, namespace, "Warning", reason, message)

    async def _record(
        self, about: Mapping[str, str], namespace: str, kind: str, reason: str, message: str
    ) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{about['name']}.", "namespace": namespace},
            "involvedObject": about,
            "type": kind,
            "reason": reason,
            "message": message[:1024],
            "source": {"component": "divvy-agent", "host": self._node},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        await self._client.request("POST", f"/api/v1/namespaces/{namespace}/events", event)

    async def evict(self, pod: str, uid: str) -> str | None:
        """Ask for the eviction of "namespace/name"; the refusal's text, None when accepted.

        ``uid`` is a precondition: another pod that has come to that name is left alone.
        """
        namespace, _, name = pod.partition("/")
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": {"preconditions": {"uid": uid}},
        }
        try:
            await self._client.request(
                "POST", f"/api/v1/namespaces/{namespace}/pods/{name}/eviction", eviction
            )
        except KubeError as error:
            return str(error)
        return None

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()


def _reference(kind: str, name: str, uid: str) -> dict[str, str]:
    return {"apiVersion": "v1", "kind": kind, "name": name, "uid": uid}


def _view(node: Mapping[str, Any]) -> NodeView:
    meta = node["metadata"]
    info = (node.get("status") or {}).get("nodeInfo") or {}
    return NodeView(
        meta.get("uid") or "",
        meta.get("labels") or {},
        meta.get("annotations") or {},
        info.get("containerRuntimeVersion") or "",
        meta.get("resourceVersion") or "",
    )
