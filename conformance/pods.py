"""Run small pods on one node and read what came of them."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from lightkube import ApiError, Client
from lightkube.generic_resource import create_namespaced_resource

from conformance.pod_spec import OWN, Level, Wish, pod_spec

Pod = create_namespaced_resource("", "v1", "Pod", "pods")
Event = create_namespaced_resource("", "v1", "Event", "events")

_DONE = ("Succeeded", "Failed")
_FORBIDDEN = 403


@dataclass(frozen=True)
class Outcome:
    """How a pod ended: its phase, exit code (None: it never ran), log, and why it failed."""

    phase: str
    code: int | None
    log: str
    reason: str

    def __str__(self) -> str:
        return (
            f"phase {self.phase}, exit code {self.code}{f', {self.reason}' if self.reason else ''}"
        )


class Workplace:
    """A namespace of one run, where pods of one level of Pod Security run."""

    def __init__(
        self, client: Client, image: str, name: str, level: Level, priority_class: str
    ) -> None:
        self._client = client
        self._image = image
        self._level = level
        self._priority_class = priority_class
        self.name = name

    def start(
        self, node: str, command: Sequence[str] | None, resource: str | None = None, **more: Any
    ) -> str:
        """Create a pod that runs a command on a node and return its name.

        ``more`` are further fields of a Wish; without a command the image's own program runs.
        """
        name = f"c-{secrets.token_hex(4)}"
        wish = Wish(node, **{"image": self._image, "command": command, "resource": resource} | more)
        metadata: Any = {"name": name, "namespace": self.name, "labels": OWN}
        spec = pod_spec(wish, self._level, self._priority_class)
        try:
            self._client.create(Pod(apiVersion="v1", kind="Pod", metadata=metadata, spec=spec))
        except ApiError as problem:
            said = str(problem.status.message)
            # A policy of the cluster's own: says nothing about its GPUs.
            if problem.status.code == _FORBIDDEN or "denied" in said:
                pytest.skip(f"the cluster admits no {self._level} pod of ours: {said}")
            raise
        return name

    def run(
        self,
        node: str,
        command: Sequence[str] | None,
        resource: str | None = None,
        seconds: float = 60,
        **more: Any,
    ) -> Outcome:
        """Run a command in a pod of its own to its end."""
        name = self.start(node, command, resource, **more)
        try:
            return self.wait(name, seconds)
        finally:
            self.remove(name)

    def wait(self, name: str, seconds: float = 60) -> Outcome:
        """Wait for a pod's end; after ``seconds`` return how far it got."""
        self.until(lambda: self.phase(name) in _DONE, seconds)
        pod = self._get(name)
        status = pod.get("status") or {}
        containers = status.get("containerStatuses") or [{}]
        state = containers[0].get("state") or {}
        ended = state.get("terminated") or {}
        waiting = state.get("waiting") or {}
        said = [found.get(key) for found in (status, waiting) for key in ("reason", "message")]
        reason = ": ".join(str(part) for part in said if part)
        phase = status.get("phase", "Pending")
        return Outcome(phase, ended.get("exitCode"), self.log(name), reason)

    def until(self, met: Callable[[], bool], seconds: float) -> bool:
        """Wait for something; tell whether it came true."""
        deadline = time.monotonic() + seconds
        while not met():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.2)
        return True

    def phase(self, name: str) -> str:
        """Return the phase of a pod."""
        return str((self._get(name).get("status") or {}).get("phase", "Pending"))

    def log(self, name: str) -> str:
        """Return what a pod has printed, "" where there is nothing yet."""
        with contextlib.suppress(ApiError):
            return "".join(self._client.log(name, namespace=self.name, newlines=True))
        return ""

    def events(self, name: str) -> list[str]:
        """Return "Reason: message" of every event about a pod."""
        fields: Any = {"involvedObject.name": name}
        found = self._client.list(Event, namespace=self.name, fields=fields)
        return [f"{event.get('reason')}: {event.get('message')}" for event in found]

    def remove(self, *names: str) -> None:
        """Delete pods and wait until their devices are free."""
        for name in names:
            with contextlib.suppress(ApiError):
                self._client.delete(Pod, name, namespace=self.name)
        for name in names:
            self.until(lambda: self._gone(name), 30)  # noqa: B023

    def refuse(self, node: str, resources: dict[str, Any]) -> str | None:
        """Return how the API server refuses a pod with these resources, None if it does not."""
        try:
            name = self.start(node, ["true"], None, resources=resources)
        except ApiError as error:
            return str(error.status.message)
        self.remove(name)
        return None

    def _gone(self, name: str) -> bool:
        try:
            self._get(name)
        except ApiError as error:
            return error.status.code == 404
        return False

    def container(self, name: str) -> tuple[str, int]:
        """Return the id of a pod's container ("" before it is told) and how often it restarted."""
        found = ((self._get(name).get("status") or {}).get("containerStatuses") or [{}])[0]
        return str(found.get("containerID") or ""), int(found.get("restartCount") or 0)

    def _get(self, name: str) -> Any:
        return self._client.get(Pod, name, namespace=self.name)
