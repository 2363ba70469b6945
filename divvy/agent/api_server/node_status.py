"""Write the node's status annotation, labels and Events, when they changed and the API is there."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from time import monotonic

from divvy.agent.api_server.client import ApiServer
from divvy.agent.gpu.hardware import Snapshot
from divvy.agent.gpu.labels import OWNED, feature_labels
from divvy.agent.gpu.node import NodeView
from divvy.agent.gpu.status import NodeStatus
from divvy.agent.plugin.inventory import Resource
from divvy.kube.backoff import Backoff
from divvy.kube.errors import KubeError
from divvy.model.api_names import STATUS_ANNOTATION, State

_log = logging.getLogger(__name__)
_BEHIND_SECONDS = 300.0
_TIME = re.compile(r',"time":"[^"]*"}$')


@dataclass(frozen=True)
class _Message:
    """What should be on the node; ``node`` is how it was watched last."""

    node: NodeView
    labels: Mapping[str, str]
    annotation: str
    state: State
    reason: str


class _Outbox:
    """Keeps the newest message until ``send`` has sent it; older unsent ones are dropped."""

    def __init__(self, send: Callable[[_Message], Awaitable[None]], what: str) -> None:
        self._send = send
        self._what = what
        self._pending: _Message | None = None
        self._debouncer = asyncio.Event()

    def put(self, message: _Message) -> None:
        """Send this one next, in place of any other."""
        self._pending = message
        self._debouncer.set()

    async def run(self) -> None:
        """Send what is pending, forever."""
        backoff = Backoff()
        reported = ""
        while True:
            await self._debouncer.wait()
            self._debouncer.clear()
            message, self._pending = self._pending, None
            if message is None:
                continue
            try:
                await self._send(message)
            except KubeError as error:
                if str(error) != reported:
                    reported = str(error)
                    _log.warning("cannot %s: %s", self._what, error)
                if self._pending is None:
                    self._pending = message
                await asyncio.sleep(backoff.failed(error))
                self._debouncer.set()
            else:
                backoff.answered()
                reported = ""


class NodeStatusWriter:
    """Writes the newest status, and an Event where its state or reason is another.

    Each waits for the API server alone: Events that are refused hold up no status.
    """

    def __init__(self, api: ApiServer) -> None:
        self._api = api
        self._statuses = _Outbox(self._write, "write to the node")
        self._events = _Outbox(self._record, "record an Event of the node")
        # The node as the last write has left it: the watch tells later, or is broken.
        self._written = NodeView("", {}, {})
        self._written_at = 0.0
        self._last_event = ("Ready", "")

    def update(
        self,
        node: NodeView,
        status: NodeStatus,
        snapshot: Snapshot | None,
        resources: Sequence[Resource],
        strategy: str | None,
    ) -> None:
        """Note what should be on the node; nothing is written where it is there already."""
        if node.uid:
            labels = feature_labels(snapshot, resources, strategy)
            annotation = status.annotation()
            self._statuses.put(_Message(node, labels, annotation, status.state, status.reason))

    async def write(self) -> None:
        """Write statuses, forever."""
        await self._statuses.run()

    async def record(self) -> None:
        """Record Events, forever."""
        await self._events.run()

    async def _write(self, message: _Message) -> None:
        """Write what is not on the node yet."""
        node = self._written if self._is_behind(message.node) else message.node
        surplus = {name for name in node.labels if OWNED.match(name)} - message.labels.keys()
        labels: dict[str, str | None] = dict.fromkeys(sorted(surplus))
        for name, text in message.labels.items():
            if node.labels.get(name) != text:
                labels[name] = text
        annotations: dict[str, str | None] = {}
        if untimed(node.annotations.get(STATUS_ANNOTATION, "")) != message.annotation:
            annotations[STATUS_ANNOTATION] = timed(message.annotation, datetime.now(UTC))
        if not labels and not annotations and self._api.is_write_refused:
            # The refused change is no longer needed; only a write shows whether writes are
            # still refused.
            annotations[STATUS_ANNOTATION] = timed(message.annotation, datetime.now(UTC))
        if labels or annotations:
            self._written = await self._api.patch_node(labels, annotations)
            self._written_at = monotonic()
        self._events.put(message)

    def _is_behind(self, watched: NodeView) -> bool:
        """Return whether the watch has not told of the last write yet.

        Not for long: a cluster that was restored from a backup counts from an older version.
        """
        recent = monotonic() - self._written_at < _BEHIND_SECONDS
        return recent and watched.is_older(self._written)

    async def _record(self, message: _Message) -> None:
        event = (message.state, message.reason)
        if event == self._last_event:
            return
        kind = "Warning" if message.state.severity >= State.WAITING.severity else "Normal"
        text = message.reason or "every GPU is as the stack file says"
        await self._api.event(message.node.uid, kind, f"Gpu{message.state}", text)
        self._last_event = event


def timed(annotation: str, now: datetime) -> str:
    """Add to a status when it was written: a time alone is no reason to write."""
    return f'{annotation[:-1]},"time":"{now:%Y-%m-%dT%H:%M:%SZ}"}}'


def untimed(annotation: str) -> str:
    """Return a status as it was before ``timed``."""
    return _TIME.sub("}", annotation)
