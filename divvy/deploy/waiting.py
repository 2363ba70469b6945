"""Waits until workloads are ready, or will clearly never be, and says what is missing."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from divvy.deploy.changes import ObjectName
from divvy.deploy.ready import (
    REVISION_LABELS,
    is_observed,
    not_stable,
    pending_reason,
    readiness,
    ready_since,
    revision_of,
    selector_text,
    terminal_failure,
)
from divvy.kube.client import Client
from divvy.kube.errors import KubeError
from divvy.kube.kind import EVENT, POD, kind_named

WORKLOADS = tuple(REVISION_LABELS)
_LOOK_SECONDS = 0.25
# Images of gigabytes are pulled in this time on slow networks.
PATIENCE = 600.0
# Lines of a log may have any length.
_MAX_LOG = 4_000


class NotReady(Exception):
    """A workload is not ready; the text says what is missing, and why where that is known."""


class Waiting:
    """Waits in one cluster; ``report`` hears what is missing whenever that changes."""

    def __init__(self, client: Client, report: Callable[[str], None]) -> None:
        self._client = client
        self._report = report

    def until_ready(self, name: ObjectName, patience: float = PATIENCE) -> None:
        """Return once a workload is ready; raises NotReady."""
        deadline = time.monotonic() + patience
        reported = ""
        while True:
            began = time.monotonic()
            live = self._client.find(name.path)
            if live is None:
                raise NotReady(f"{name} was deleted while its pods were waited for")
            missing = self._missing(name, live)
            if missing is None:
                return
            if missing != reported:
                reported = missing
                self._report(f"{name}: {missing}")
            if time.monotonic() >= deadline:
                warning = self._last_warning(name, live)
                raise NotReady(f"{name} is not ready: {missing} after {patience:.0f} s{warning}")
            # The pods of thousands of nodes take the API server a while.
            time.sleep(max(_LOOK_SECONDS, time.monotonic() - began))

    def _missing(self, name: ObjectName, live: Mapping[str, Any]) -> str | None:
        """Return what a workload is still waiting for; raises NotReady if it waits in vain."""
        missing = readiness(live)
        if not is_observed(live):
            return missing
        pods = self._pods(name, live)
        if missing is None:
            missing = not_stable(pods, datetime.now(UTC))
        if missing is None:
            return None
        if reason := self._terminal_failure(name, pods):
            raise NotReady(f"{name} is not ready: {reason}")
        pending = pending_reason(pods)
        return f"{missing} ({pending})" if pending else missing

    def _pods(self, name: ObjectName, live: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """Return the pods of the workload's present template, not those that it replaces."""
        kind = "ReplicaSet" if name.kind == "Deployment" else "ControllerRevision"
        path = kind_named("apps/v1", kind).path(name.namespace)
        revision = revision_of(live, self._list(path, selector_text(live)))
        if revision is None:
            return []
        own = selector_text(live, **{REVISION_LABELS[name.kind]: revision})
        return list(self._list(POD.path(name.namespace), own))

    def _list(self, path: str, labels: str) -> Sequence[Mapping[str, Any]]:
        query = {"labelSelector": labels}
        return [item for page in self._client.pages(path, query) for item in page.items]

    def _last_warning(self, name: ObjectName, live: Mapping[str, Any]) -> str:
        """Return the last warning event of a workload or its pods, as " (…)"; "" for none."""
        # The user may not be allowed to read events: what is missing is known without them.
        with contextlib.suppress(KubeError):
            waiting = [pod for pod in self._pods(name, live) if ready_since(pod) is None]
            for obj in (live, *waiting):
                query = {
                    "fieldSelector": f"involvedObject.uid={obj['metadata']['uid']},type=Warning"
                }
                pages = self._client.pages(EVENT.path(name.namespace), query)
                if events := [event for page in pages for event in page.items]:
                    last = max(events, key=lambda event: str(event.get("lastTimestamp") or ""))
                    return f" ({last.get('reason')}: {last.get('message')})"
        return ""

    def _terminal_failure(self, name: ObjectName, pods: list[Mapping[str, Any]]) -> str | None:
        terminal = terminal_failure(pods)
        if terminal is None:
            return None
        place = (name.namespace, terminal.pod, terminal.container)
        log = self._log_tail(*place, previous=False)
        if not log and terminal.restarts:
            log = self._log_tail(*place, previous=True)
        lines = f"; last log lines:\n{log}" if log else ""
        return (
            f"container {terminal.container} of pod {terminal.pod} is in {terminal.reason}"
            f" ({terminal.message}){lines}"
        )

    def _log_tail(self, namespace: str, pod: str, container: str, *, previous: bool) -> str:
        """Return the last lines of a container's log, "" if it has none or cannot be read."""
        query = {"container": container, "tailLines": "5", "previous": str(previous).lower()}
        try:
            # A kubelet may take its time over a container that is being restarted.
            text = self._client.text(f"{POD.path(namespace, pod)}/log", 5, query).strip()
        except KubeError:
            return ""
        return text if len(text) <= _MAX_LOG else f"… {text[-_MAX_LOG:]}"
