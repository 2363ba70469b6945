"""Write the node's status annotation, labels and Events, when they changed and the API is there."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from divvy.agent.api_server.backoff import Backoff
from divvy.agent.api_server.client import AWAY, ApiServer
from divvy.agent.decide.hardware import Snapshot
from divvy.agent.decide.inventory import Resource
from divvy.agent.decide.labels import OWNED, feature_labels
from divvy.agent.decide.node import NodeView
from divvy.agent.decide.status import NodeStatus
from divvy.model.contract import STATUS_ANNOTATION, State

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Message:
    uid: str
    labels: Mapping[str, str | None]
    annotations: Mapping[str, str | None]
    state: State
    reason: str


class NodeStatusWriter:
    """Keeps the newest message until it is written; older unwritten ones are dropped."""

    def __init__(self, api: ApiServer) -> None:
        self._api = api
        self._pending: _Message | None = None
        self._wake = asyncio.Event()
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
        if not node.uid:
            return
        wanted: dict[str, str | None] = dict(feature_labels(snapshot, resources, strategy))
        for name in node.labels:
            if OWNED.match(name) and name not in wanted:
                wanted[name] = None
        labels = {name: text for name, text in wanted.items() if node.labels.get(name) != text}
        annotation = status.annotation()
        same = node.annotations.get(STATUS_ANNOTATION) == annotation
        annotations: dict[str, str | None] = {} if same else {STATUS_ANNOTATION: annotation}
        self._pending = _Message(node.uid, labels, annotations, status.state, status.reason)
        self._wake.set()

    async def run(self) -> None:
        """Write what is pending, for ever."""
        backoff = Backoff()
        while True:
            await self._wake.wait()
            self._wake.clear()
            message, self._pending = self._pending, None
            if message is None:
                continue
            if message.labels or message.annotations:
                try:
                    await self._api.patch_node(message.labels, message.annotations)
                except AWAY as error:
                    _log.warning("cannot write to the node: %s", error)
                    if self._pending is None:
                        self._pending = message
                    await asyncio.sleep(backoff.failed(error))
                    self._wake.set()
                    continue
                backoff.answered()
            await self._event(message)

    async def _event(self, message: _Message) -> None:
        event = (message.state, message.reason)
        if event == self._last_event:
            return
        self._last_event = event
        kind = "Warning" if message.state.severity >= State.WAITING.severity else "Normal"
        text = message.reason or "every GPU is as the stack file says"
        await self._api.event(message.uid, kind, f"Gpu{message.state}", text)
