"""The namespace of a release: made with the level that the agent needs, and deleted last.

Divvy deletes only a namespace that it has made and that nobody else uses; of somebody else's it
sets the Pod Security level alone, and only where nobody has set another.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from divvy.deploy.changes import Action, Change, ObjectName
from divvy.deploy.errors import DeployError
from divvy.kube.client import Client
from divvy.kube.errors import CONFLICT, ApiError
from divvy.kube.kind import CONFIG_MAP, NAMESPACE, POD, SECRET
from divvy.kube.media_types import APPLY
from divvy.model import ClusterDocument
from divvy.model.api_names import KEPT_REPORT, is_divvys
from divvy.render.objects.cluster import objects

_MANAGER = "divvy"
_GONE_SECONDS, _LOOK_SECONDS = 120.0, 0.25
_LEVEL = "pod-security.kubernetes.io/"


class ReleaseNamespace:
    """The namespace that a stack file names; ``report`` hears what is waited for."""

    def __init__(
        self, client: Client, document: ClusterDocument, report: Callable[[str], None]
    ) -> None:
        self._client = client
        self._document = document
        self._report = report
        self._name = document.cluster.namespace

    def remove(self) -> str:
        """Delete the namespace if Divvy has made it and nobody else uses it; return why it stays.

        Raises ApiError if this user may not.
        """
        self.await_gone()
        live = self.live()
        if live is None:
            return ""
        if not is_divvys(live):
            return f"namespace {self._name} stays: Divvy has not made it"
        for kind in (POD, CONFIG_MAP, SECRET):
            for page in self._client.pages(kind.path(self._name)):
                for name in page.skipped:
                    return f"namespace {self._name} stays: {kind.kind} {name} cannot be read"
                for obj in page.items:
                    if not _goes_with_namespace(obj):
                        name = obj["metadata"]["name"]
                        return f"namespace {self._name} stays: it has {kind.kind} {name}"
        uid = {"preconditions": {"uid": live["metadata"]["uid"]}}
        self._client.request("DELETE", NAMESPACE.path("", self._name), uid)
        self.await_gone()
        return ""

    def live(self) -> dict[str, Any] | None:
        """Return the namespace, None if there is none, or one that is being deleted."""
        live = self._client.find(NAMESPACE.path("", self._name))
        return None if live is None or live["metadata"].get("deletionTimestamp") else live

    def await_gone(self) -> None:
        """Wait until a namespace that is being deleted is gone; raises DeployError."""
        deadline = time.monotonic() + _GONE_SECONDS
        reported = False
        while (live := self._client.find(NAMESPACE.path("", self._name))) is not None:
            if not live["metadata"].get("deletionTimestamp"):
                return
            conditions = (live.get("status") or {}).get("conditions") or ()
            why = "; ".join(str(c.get("message")) for c in conditions if c.get("status") == "True")
            if time.monotonic() > deadline:
                raise DeployError(
                    f"namespace {self._name} is not gone after {_GONE_SECONDS:.0f} s"
                    f"{f': {why}' if why else ''}"
                )
            if not reported:
                self._report(f"waiting: namespace {self._name} is being deleted")
                reported = True
            time.sleep(_LOOK_SECONDS)

    def _desired(self, live: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return the namespace as it is applied: of somebody else's, only the level for pods."""
        own = next(obj for obj in objects(self._document, "") if obj["kind"] == NAMESPACE.kind)
        if live is None or is_divvys(live):
            return own
        labels = {k: v for k, v in own["metadata"]["labels"].items() if k.startswith(_LEVEL)}
        return {**own, "metadata": {"name": self._name, "labels": labels}}

    def change(self, live: Mapping[str, Any] | None) -> Change | None:
        """Return what a deployment changes of it; None for nothing."""
        desired = self._desired(live)
        if live is None:
            return Change(Action.CREATE, ObjectName.of(desired))
        labels = live["metadata"].get("labels") or {}
        if all(labels.get(key) == value for key, value in desired["metadata"]["labels"].items()):
            return None
        return Change(Action.UPDATE, ObjectName.of(desired))

    def ensure(self) -> None:
        """Make it, or give it the level; raises DeployError, ApiError."""
        self.await_gone()
        live = self.live()
        if live is None or self.change(live) is not None:
            self.apply(live, {})

    def apply(self, live: Mapping[str, Any] | None, query: Mapping[str, str]) -> None:
        """Apply it, or with ``dryRun`` in the query ask whether that would work."""
        force = str(live is None or is_divvys(live)).lower()
        path, desired = NAMESPACE.path("", self._name), self._desired(live)
        query = {**query, "fieldManager": _MANAGER, "force": force}
        try:
            self._client.request("PATCH", path, desired, kind=APPLY, query=query)
        except ApiError as error:
            if error.code != CONFLICT:
                raise
            raise DeployError(
                f"namespace {self._name} is somebody else's and has a Pod Security level that "
                f"admits no agent ({error}): choose another `namespace`, or set {_LEVEL}enforce "
                "to privileged there"
            ) from None


def _goes_with_namespace(obj: Mapping[str, Any]) -> bool:
    metadata = obj["metadata"]
    return (
        is_divvys(obj)
        or bool(metadata.get("deletionTimestamp"))
        or metadata["name"] in ("kube-root-ca.crt", KEPT_REPORT)
    )
