"""Where a run's pods live: a namespace per level of Pod Security, removed whatever happens."""

from __future__ import annotations

import contextlib
import secrets
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from lightkube import ApiError, Client
from lightkube.generic_resource import create_global_resource, create_namespaced_resource
from lightkube.types import PatchType

from conformance.pod_spec import OWN, Level
from conformance.pods import Workplace

Namespace = create_global_resource("", "v1", "Namespace", "namespaces")
Node = create_global_resource("", "v1", "Node", "nodes")
ServiceAccount = create_namespaced_resource("", "v1", "ServiceAccount", "serviceaccounts")
PriorityClass = create_global_resource(
    "scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses"
)
PROFILE_LABEL = "divvy.gpu/profile"
# Beside the label of a node whose profile a run changes: whoever finds it takes both away.
CHANGED = "divvy.gpu/conformance-profile"
_LONGEST_RUN = timedelta(hours=2)
_PATIENCE = 30


class Workplaces:
    """The namespaces of one run, each made when it is first needed."""

    def __init__(self, client: Client, image: str) -> None:
        self._client = client
        self._image = image
        self._places: dict[Level, Workplace] = {}
        self.name = f"divvy-conformance-{secrets.token_hex(3)}"

    def at(self, level: Level) -> Workplace:
        """Return the namespace whose pods run at this level."""
        if level not in self._places:
            if not self._places:
                self._client.create(PriorityClass(**_priority_class(self.name)))
            name = f"{self.name}-{level}"
            labels = {"pod-security.kubernetes.io/enforce": level, **OWN}
            metadata: Any = {"name": name, "labels": labels}
            self._client.create(Namespace(apiVersion="v1", kind="Namespace", metadata=metadata))
            place = Workplace(self._client, self._image, name, level, self.name)
            self._places[level] = place
            # Pods are refused until the controllers have made the namespace's account.
            place.until(lambda: _has_account(self._client, name), _PATIENCE)
        return self._places[level]

    def remove(self) -> None:
        """Remove everything of this run."""
        for place in self._places.values():
            self._client.delete(Namespace, place.name)
        if self._places:
            self._client.delete(PriorityClass, self.name)


def _priority_class(name: str) -> dict[str, Any]:
    """Return the lowest of priorities: no pod is moved for these, they are moved for any."""
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name, "labels": OWN},
        "value": -1000,
        "preemptionPolicy": "Never",
        "description": "Pods of divvy verify.",
    }


@contextlib.contextmanager
def workplaces(client: Client, image: str) -> Iterator[Workplaces]:
    """Give the namespaces of one run and remove them, whatever happens."""
    places = Workplaces(client, image)
    try:
        yield places
    finally:
        places.remove()


@contextlib.contextmanager
def profile_on(client: Client, node: str, profile: str) -> Iterator[None]:
    """Let a node follow another profile for a while, by its label; take it off whatever happens.

    A run that is killed leaves the label with the annotation beside it, and the next run of any
    kind takes both off (``clear_leftovers``).
    """
    _mark(client, node, profile, profile)
    try:
        yield
    finally:
        _mark(client, node, None, None)


def clear_leftovers(client: Client) -> None:
    """Remove what a run that was killed has left: changed profiles, and old namespaces."""
    for node in client.list(Node):
        name = node["metadata"]["name"]
        marked = (node["metadata"].get("annotations") or {}).get(CHANGED)
        if marked is None:
            continue
        label = (node["metadata"].get("labels") or {}).get(PROFILE_LABEL)
        # A label that somebody has changed since is theirs.
        _mark(client, name, None if label == marked else label, None)
        print(f"  {name}: a run that was killed had left it on profile {marked}; taken back",
              file=sys.stderr)  # fmt: skip
    for kind in (Namespace, PriorityClass):
        for found in client.list(kind, labels=OWN):
            if _is_old(found["metadata"]):
                with contextlib.suppress(ApiError):
                    client.delete(kind, found["metadata"]["name"])


def _is_old(metadata: Mapping[str, Any]) -> bool:
    made = datetime.fromisoformat(str(metadata["creationTimestamp"]))
    return datetime.now(UTC) - made > _LONGEST_RUN


def _mark(client: Client, node: str, label: str | None, annotation: str | None) -> None:
    metadata = {"labels": {PROFILE_LABEL: label}, "annotations": {CHANGED: annotation}}
    client.patch(Node, node, {"metadata": metadata}, patch_type=PatchType.MERGE)


def _has_account(client: Client, namespace: str) -> bool:
    try:
        client.get(ServiceAccount, "default", namespace=namespace)
    except ApiError:
        return False
    return True
