"""Waits for objects: until they are ready, or gone, or until it is clear that they never will."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from divvy.engine.errors import EngineError, StepFailed
from divvy.engine.kubernetes.annotations import is_true, timeout_of
from divvy.engine.kubernetes.api import ApiProblem, Kind
from divvy.engine.kubernetes.connection import Connection
from divvy.engine.kubernetes.ready import (
    binds_late,
    failure,
    not_stable,
    of_current_template,
    readiness,
    selector_text,
    terminal_failure,
    waits_for_pods,
)

_LOOK_SECONDS = 0.25
# A new kind is served a moment after its definition is Established.
_DEFINITION_SECONDS = 15.0


class Waiting:
    """Waits in one cluster; ``told`` hears of what, by URN."""

    def __init__(self, connection: Connection, told: Callable[[str, str], None]) -> None:
        self._connection = connection
        self._told = told
        self._cancelled = threading.Event()

    def cancel(self) -> None:
        """End every waiting, the present ones and those to come."""
        self._cancelled.set()

    def until_ready(
        self, urn: str, kind: Kind, namespace: str, obj: dict[str, Any], timeout: float
    ) -> tuple[dict[str, Any], str | None]:
        """Return the live object once it is ready, or as it is then and why it is not."""
        annotations = obj["metadata"].get("annotations") or {}
        if is_true(annotations.get("pulumi.com/skipAwait")):
            return obj, None
        live = obj
        try:
            allowed = timeout_of(annotations, timeout)
            deadline = time.monotonic() + allowed
            while True:
                missing = self._missing(live, namespace)
                if missing is None:
                    return live, None
                self._told(urn, missing)
                if time.monotonic() >= deadline:
                    return live, f"not ready: {missing} after {allowed:.0f} s"
                if self._cancelled.wait(_LOOK_SECONDS):
                    return live, f"interrupted; {missing}"
                present = self._connection.api.get(kind, namespace, obj["metadata"]["name"])
                if present is None:
                    return live, "the object was deleted while the engine waited for it"
                live = present
        except EngineError as problem:
            return live, str(problem)

    def until_gone(
        self, urn: str, kind: Kind, namespace: str, obj: Mapping[str, Any], timeout: float
    ) -> None:
        """Return when the object, told by its uid, is gone; raises StepFailed."""
        metadata = obj["metadata"]
        annotations = metadata.get("annotations") or {}
        if is_true(annotations.get("pulumi.com/skipAwait")):
            return
        allowed = timeout_of(annotations, timeout)
        deadline = time.monotonic() + allowed
        name = str(metadata["name"])
        while True:
            live = self._connection.api.get(kind, namespace, name)
            if live is None or live["metadata"]["uid"] != metadata["uid"]:
                return
            state = deletion_state(live)
            self._told(urn, state)
            if time.monotonic() >= deadline:
                raise StepFailed(f"{name} is not gone after {allowed:.0f} s: {state}")
            if self._cancelled.wait(_LOOK_SECONDS):
                raise StepFailed(f"interrupted; {name} is not gone: {state}")

    def until_served(self, obj: Mapping[str, Any]) -> tuple[Kind, str]:
        """Return kind and namespace of an object whose kind was defined a moment ago."""
        deadline = time.monotonic() + _DEFINITION_SECONDS
        while True:
            try:
                kind, namespace = self._connection.location(obj)
                self._connection.api.list(kind, namespace, "none=none")
            except ApiProblem as problem:
                if problem.status != 404 or time.monotonic() > deadline:
                    raise
                self._cancelled.wait(_LOOK_SECONDS)
            else:
                return kind, namespace

    def _missing(self, live: Mapping[str, Any], namespace: str) -> str | None:
        """Say what an object is still waiting for; raises StepFailed where it waits in vain."""
        hopeless = failure(live)
        if hopeless:
            raise StepFailed(f"not ready: {hopeless}")
        missing = readiness(live)
        if missing is not None and live["kind"] == "PersistentVolumeClaim":
            api = self._connection.api
            name = (live.get("spec") or {}).get("storageClassName")
            classes = api.kind("storage.k8s.io/v1", "StorageClass")
            storage_class = api.get(classes, "", str(name)) if name else None
            if storage_class is not None and binds_late(storage_class):
                return None
        pods = self._pods(live, namespace) if waits_for_pods(live) else []
        if missing is None:
            missing = not_stable(pods, datetime.now(UTC))
        if missing is not None:
            reason = self._terminal_failure(pods, namespace)
            if reason:
                raise StepFailed(f"not ready: {reason}")
        return missing

    def _pods(self, obj: Mapping[str, Any], namespace: str) -> list[Mapping[str, Any]]:
        api = self._connection.api
        pods = api.list(api.kind("v1", "Pod"), namespace, selector_text(obj))
        return of_current_template(obj, pods)

    def _terminal_failure(self, pods: list[Mapping[str, Any]], namespace: str) -> str | None:
        terminal = terminal_failure(pods)
        if terminal is None:
            return None
        place = (namespace, terminal.pod, terminal.container)
        log = self._connection.api.log_tail(*place, previous=False)
        if not log and terminal.restarts:
            log = self._connection.api.log_tail(*place, previous=True)
        said = f"; its last words:\n{log}" if log else ""
        return (
            f"container {terminal.container} of pod {terminal.pod} is in {terminal.reason}"
            f" ({terminal.message}){said}"
        )


def deletion_state(live: Mapping[str, Any]) -> str:
    """Say what the deletion of an object waits for."""
    finalizers = live["metadata"].get("finalizers") or []
    return f"waiting for {', '.join(finalizers)}" if finalizers else "being deleted"
