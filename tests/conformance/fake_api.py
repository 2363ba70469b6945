"""An API server and a kubelet for one namespace, as far as the suite's pods need them."""

from __future__ import annotations

import queue
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from divvy.kube.errors import ApiError
from divvy.kube.kind import Kind

Behaviour = Callable[[dict[str, Any]], dict[str, Any]]


def refusal(code: int, message: str) -> ApiError:
    """Return an error as the API server's answer becomes one."""
    return ApiError(code, message)


def succeeded(_: dict[str, Any]) -> dict[str, Any]:
    """Let a pod run to its end at once."""
    ended = {"state": {"terminated": {"exitCode": 0}}}
    return {"phase": "Succeeded", "containerStatuses": [ended]}


def running(_: dict[str, Any]) -> dict[str, Any]:
    """Let a pod run on."""
    return {"phase": "Running", "containerStatuses": [{"state": {"running": {}}}]}


class FakeApi:
    """Keeps pods; ``behave`` gives the status of each, ``say`` its log."""

    def __init__(self, behave: Behaviour = succeeded, say: Callable[[Any], str] = str) -> None:
        self.behave = behave
        self.say = say
        self.pods: dict[str, Any] = {}
        self.nodes: dict[str, Any] = {}
        self.created: list[Any] = []
        self.refuse: Callable[[Any], ApiError | None] = lambda _: None
        self.requests: Counter[str] = Counter()
        self._events: queue.Queue[tuple[str, Any]] = queue.Queue()

    def create(self, kind: Kind, obj: Any) -> Any:
        body = {"apiVersion": kind.api_version, "kind": kind.kind, **obj}
        problem = self.refuse(body)
        if problem is not None:
            raise problem
        self.created.append(body)
        body["status"] = self.behave(body)
        self.pods[body["metadata"]["name"]] = body
        self._events.put(("MODIFIED", body))
        return body

    def find_at(self, *_: Any, **__: Any) -> tuple[list[Any], str]:
        return list(self.pods.values()), "1"

    def find(self, *_: Any, **__: Any) -> list[Any]:
        return []

    def get(self, _kind: Any, name: str, _namespace: str = "") -> Any:
        object_of_api = self.pods.get(name) or self.nodes.get(name)
        if object_of_api is None:
            raise refusal(404, "not found")
        return object_of_api

    def watch(self, *_: Any) -> Iterator[tuple[str, Any]]:
        while True:
            yield self._events.get()

    def delete(self, _kind: Any, name: str, **_options: Any) -> None:
        body = self.pods.pop(name, None)
        if body is not None:
            self._events.put(("DELETED", body))

    def log(self, name: str, *_: Any, **__: Any) -> str:
        body = self.pods.get(name)
        return "" if body is None else self.say(body)

    def vanish(self, name: str, reason: str) -> None:
        """Delete a pod as somebody else would."""
        body = self.pods[name]
        body["status"] = {"conditions": [{"type": "DisruptionTarget", "reason": reason}]}
        self.delete(None, name)
