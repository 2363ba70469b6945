"""The agent's link to the Kubernetes API: watch its node and its ConfigMap, tell its state."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import httpx2
from lightkube import ApiError, AsyncClient
from lightkube.models.core_v1 import EventSource, ObjectReference
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import ConfigMap, Event, Node, PodEviction
from lightkube.types import PatchType

CONFIG_KEY = "cluster.json"
_log = logging.getLogger(__name__)
_RETRY_SECONDS = 2.0
_AWAY = (ApiError, httpx2.HTTPError)


@dataclass(frozen=True)
class NodeView:
    """What the agent reads of its Node object; ``runtime`` is the container runtime's version."""

    uid: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    runtime: str = ""


class ClusterLink:
    """Watches and patches; while the API is away it retries and nothing else stops."""

    def __init__(self, node: str, namespace: str, config_map: str) -> None:
        self._client = AsyncClient(namespace=namespace, field_manager="divvy-agent")
        self._node = node
        self._namespace = namespace
        self._config_map = config_map

    async def watch_node(self, seen: Callable[[NodeView], None]) -> None:
        """Call ``seen`` with the node now and after every change of it, for ever."""
        while True:
            with contextlib.suppress(*_AWAY):
                async for kind, node in self._client.watch(
                    Node, fields={"metadata.name": self._node}
                ):
                    if kind != "DELETED" and node.metadata is not None:
                        seen(_view(node, node.metadata))
            await asyncio.sleep(_RETRY_SECONDS)

    async def watch_config(self, seen: Callable[[str | None], None]) -> None:
        """Call ``seen`` with the stack's canonical JSON now and after every change.

        None says that there is no such ConfigMap, or no such key in it.
        """
        while True:
            with contextlib.suppress(*_AWAY):
                async for kind, found in self._client.watch(
                    ConfigMap,
                    namespace=self._namespace,
                    fields={"metadata.name": self._config_map},
                ):
                    gone = kind == "DELETED" or found.data is None
                    seen(None if gone else (found.data or {}).get(CONFIG_KEY))
            await asyncio.sleep(_RETRY_SECONDS)

    async def tell_node(
        self, labels: Mapping[str, str | None], annotations: Mapping[str, str | None]
    ) -> bool:
        """Merge labels and annotations into the node (None removes); False when that failed."""
        patch = {"metadata": {"labels": dict(labels), "annotations": dict(annotations)}}
        try:
            await self._client.patch(Node, self._node, patch, patch_type=PatchType.MERGE)
        except _AWAY as error:
            _log.warning("cannot write to node %s: %s", self._node, error)
            return False
        return True

    async def event(self, node_uid: str, kind: str, reason: str, message: str) -> None:
        """Record a Kubernetes Event about the node; ``kind`` is "Normal" or "Warning"."""
        # The kubelet, too, uses the node's name as uid; kubectl describe looks for it.
        node = ObjectReference(
            kind="Node", name=self._node, uid=node_uid or self._node, apiVersion="v1"
        )
        await self._record(node, "default", kind, reason, message)

    async def pod_event(self, pod: str, uid: str, reason: str, message: str) -> None:
        """Record a warning about a pod, "namespace/name"."""
        namespace, _, name = pod.partition("/")
        about = ObjectReference(
            kind="Pod", name=name, namespace=namespace, uid=uid, apiVersion="v1"
        )
        await self._record(about, namespace, "Warning", reason, message)

    async def _record(
        self, about: ObjectReference, namespace: str, kind: str, reason: str, message: str
    ) -> None:
        now = datetime.now(UTC)
        event = Event(
            metadata=ObjectMeta(generateName=f"{about.name}.", namespace=namespace),
            involvedObject=about,
            type=kind,
            reason=reason,
            message=message[:1024],
            source=EventSource(component="divvy-agent", host=self._node),
            firstTimestamp=now,
            lastTimestamp=now,
            count=1,
        )
        try:
            await self._client.create(event)
        except _AWAY as error:
            _log.warning("cannot record the event %s: %s", reason, error)

    async def evict(self, pod: str) -> str | None:
        """Ask for the eviction of "namespace/name"; the refusal's text, None when accepted."""
        namespace, _, name = pod.partition("/")
        eviction = PodEviction(metadata=ObjectMeta(name=name, namespace=namespace))
        try:
            await self._client.create(eviction, name, namespace=namespace)
        except _AWAY as error:
            return str(error)
        return None

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()


def _view(node: Node, meta: ObjectMeta) -> NodeView:
    info = node.status.nodeInfo if node.status else None
    runtime = info.containerRuntimeVersion if info else ""
    return NodeView(meta.uid or "", meta.labels or {}, meta.annotations or {}, runtime)
