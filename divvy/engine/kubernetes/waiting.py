"""Waits until objects are ready, or gone, or will clearly never be."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

from divvy.engine.errors import EngineError, StepFailed
from divvy.engine.kubernetes.api import ApiProblem
from divvy.engine.kubernetes.connection import Connection
from divvy.engine.kubernetes.ready import (
    REVISION_LABELS,
    is_observed,
    not_stable,
    pending_reason,
    readiness,
    ready_since,
    revision_of,
    selector_text,
    terminal_failure,
    waits_for_pods,
)
from divvy.engine.kubernetes.record import uid_of
from divvy.kube.kind import Kind

_LOOK_SECONDS = 0.25
_NAMESPACE_SECONDS = 15.0
_T = TypeVar("_T")


class Waiting:
    """Waits in one cluster; ``report`` hears by URN what is missing."""

    def __init__(self, connection: Connection, report: Callable[[str, str], None]) -> None:
        self._connection = connection
        self._report = report
        self._cancelled = threading.Event()

    def cancel(self) -> None:
        """Stop all waits, present and future."""
        self._cancelled.set()

    def until_ready(
        self, urn: str, kind: Kind, namespace: str, obj: dict[str, Any], patience: float | None
    ) -> tuple[dict[str, Any], str | None]:
        """Return the live object once it is ready, else as it is now and why it is not.

        ``patience``: so many seconds, None for not at all.
        """
        if patience is None:
            return obj, None
        live = obj
        deadline = time.monotonic() + patience
        try:
            while True:
                began = time.monotonic()
                missing = self._missing(live, namespace)
                if missing is None:
                    return live, None
                # The pods of thousands of nodes take the API server a while.
                pause = max(_LOOK_SECONDS, time.monotonic() - began)
                self._report(urn, missing)
                if time.monotonic() >= deadline:
                    warning = self._last_warning(live, namespace)
                    return live, f"not ready: {missing} after {patience:.0f} s{warning}"
                if self._cancelled.wait(pause):
                    return live, f"interrupted; {missing}"
                present = self._connection.api.get(kind, namespace, obj["metadata"]["name"])
                if present is None or uid_of(present) != uid_of(obj):
                    return live, "the object was deleted while the engine waited for it"
                live = present
        except EngineError as problem:
            return live, str(problem)

    def until_gone(
        self, urn: str, kind: Kind, namespace: str, obj: Mapping[str, Any], patience: float | None
    ) -> None:
        """Return when the object with this uid is gone; raises StepFailed."""
        if patience is None:
            return
        metadata = obj["metadata"]
        deadline = time.monotonic() + patience
        name = str(metadata["name"])
        while True:
            live = self._connection.api.get(kind, namespace, name)
            if live is None or live["metadata"]["uid"] != metadata["uid"]:
                return
            state = deletion_state(live)
            self._report(urn, state)
            if time.monotonic() >= deadline:
                raise StepFailed(f"{name} is not gone after {patience:.0f} s: {state}")
            if self._cancelled.wait(_LOOK_SECONDS):
                raise StepFailed(f"interrupted; {name} is not gone: {state}")

    def until_namespace(self, urn: str, attempt: Callable[[], _T]) -> _T:
        """Return the result of a creation, tried again while its namespace does not exist.

        The program may create it in the same run without a dependency.
        """
        deadline = time.monotonic() + _NAMESPACE_SECONDS
        while True:
            try:
                return attempt()
            except ApiProblem as problem:
                if problem.status != 404 or time.monotonic() > deadline:
                    raise
                self._report(urn, f"waiting: {problem}")
                if self._cancelled.wait(_LOOK_SECONDS):
                    raise

    def _missing(self, live: Mapping[str, Any], namespace: str) -> str | None:
        """Return what an object is still waiting for; raises StepFailed if it never gets ready."""
        missing = readiness(live)
        if not waits_for_pods(live) or not is_observed(live):
            return missing
        pods = self._pods(live, namespace)
        if missing is None:
            missing = not_stable(pods, datetime.now(UTC))
        if missing is None:
            return None
        reason = self._terminal_failure(pods, namespace)
        if reason:
            raise StepFailed(f"not ready: {reason}")
        pending = pending_reason(pods)
        return f"{missing} ({pending})" if pending else missing

    def _pods(self, obj: Mapping[str, Any], namespace: str) -> list[Mapping[str, Any]]:
        """Return the pods of the workload's present template, not those that it replaces."""
        api = self._connection.api
        selector = selector_text(obj)
        kind = "ReplicaSet" if obj["kind"] == "Deployment" else "ControllerRevision"
        revisions = api.list(api.kind("apps/v1", kind), namespace, labelSelector=selector)
        revision = revision_of(obj, revisions)
        if revision is None:
            return []
        own = selector_text(obj, **{REVISION_LABELS[obj["kind"]]: revision})
        return list(api.list(api.kind("v1", "Pod"), namespace, labelSelector=own))

    def _last_warning(self, live: Mapping[str, Any], namespace: str) -> str:
        """Return the last warning event of a workload or its pods, as " (…)"; "" for none."""
        if not waits_for_pods(live):
            return ""
        api = self._connection.api
        # The user may not be allowed to read events: what is missing is known without them.
        with contextlib.suppress(EngineError):
            waiting = [pod for pod in self._pods(live, namespace) if ready_since(pod) is None]
            for obj in (live, *waiting):
                query = f"involvedObject.uid={obj['metadata']['uid']},type=Warning"
                events = api.list(api.kind("v1", "Event"), namespace, fieldSelector=query)
                if events:
                    last = max(events, key=lambda event: str(event.get("lastTimestamp") or ""))
                    return f" ({last.get('reason')}: {last.get('message')})"
        return ""

    def _terminal_failure(self, pods: list[Mapping[str, Any]], namespace: str) -> str | None:
        terminal = terminal_failure(pods)
        if terminal is None:
            return None
        place = (namespace, terminal.pod, terminal.container)
        log = self._connection.api.log_tail(*place, previous=False)
        if not log and terminal.restarts:
            log = self._connection.api.log_tail(*place, previous=True)
        lines = f"; last log lines:\n{log}" if log else ""
        return (
            f"container {terminal.container} of pod {terminal.pod} is in {terminal.reason}"
            f" ({terminal.message}){lines}"
        )


def deletion_state(live: Mapping[str, Any]) -> str:
    """Describe what the deletion of an object waits for."""
    finalizers = live["metadata"].get("finalizers") or []
    return f"waiting for {', '.join(finalizers)}" if finalizers else "being deleted"
