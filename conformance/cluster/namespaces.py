"""The namespaces of a run's pods: one per level of Pod Security, removed whatever happens."""

from __future__ import annotations

import contextlib
import re
import secrets
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest

from conformance.cluster.api import Api
from conformance.cluster.image_pull import ImagePulls
from conformance.cluster.pod_spec import OWN, Level
from conformance.cluster.pods import PodNamespace, is_of_rules
from conformance.cluster.run_lease import RunLease, living
from conformance.skips import not_made
from divvy.kube.errors import ApiError, KubeError
from divvy.kube.kind import NAMESPACE, NODE, PRIORITY_CLASS, SECRET, SERVICE_ACCOUNT
from divvy.model.api_names import CONFORMANCE_CORDON, CONFORMANCE_PROFILE, PROFILE_LABEL

_PATIENCE = 30
OWN_NAMESPACE = re.compile(r"divvy-conformance-[0-9a-f]{6}-(restricted|baseline|privileged)")


class PodNamespaces:
    """The namespaces of one run, each made when it is first needed.

    ``pull_secrets`` are Secrets of the namespace ``home``; each namespace gets a copy.
    """

    def __init__(self, api: Api, image: str, home: str, pull_secrets: Sequence[str] = ()) -> None:
        self._api = api
        self._image = image
        self._home = home
        self._pull_secrets = pull_secrets
        self._pulls = ImagePulls()
        self._created: list[str] = []
        self._namespaces: dict[Level, PodNamespace] = {}
        self._has_priority = False
        self._lease: RunLease | None = None
        self.name = f"divvy-conformance-{secrets.token_hex(3)}"

    def at(self, level: Level, labels: Mapping[str, str] | None = None) -> PodNamespace:
        """Return the namespace whose pods run at this level; ``labels`` are added to its own."""
        if level not in self._namespaces:
            name = f"{self.name}-{level}"
            try:
                self._create(name, level)
                # All are read before one is copied: a check that comes here again copies them once.
                for secret in [_secret(self._api, own, self._home) for own in self._pull_secrets]:
                    self._api.create(SECRET, _copied(secret, name))
            except ApiError as problem:
                if is_of_rules(problem):
                    not_made(f"the cluster does not admit our {level} namespace: {problem}")
                raise
            place = PodNamespace(
                self._api, self._image, name, level, self.name, self._pull_secrets, self._pulls
            )
            self._namespaces[level] = place
            # Pods are refused until the controllers have made the namespace's account.
            place.until(lambda: _has_account(self._api, name), _PATIENCE)
        if labels:
            self.label(self._namespaces[level], labels)
        return self._namespaces[level]

    def _create(self, name: str, level: Level) -> None:
        own = {"pod-security.kubernetes.io/enforce": level, **OWN}
        metadata: Any = {"name": name, "labels": own}
        if name not in self._created:
            # A run may be stopped before it hears that it is there.
            self._created.append(name)
            try:
                self._api.create(NAMESPACE, {"metadata": metadata})
            except KubeError:
                self._created.remove(name)
                raise
        # Never without a namespace: if this run is killed, the next one finds the priority class
        # by the name of a namespace that is left.
        if not self._has_priority:
            self._api.create(PRIORITY_CLASS, _priority_class(self.name))
            self._has_priority = True
        if self._lease is None:
            self._lease = RunLease(self._api, name)

    def label(self, place: PodNamespace, labels: Mapping[str, str | None]) -> None:
        """Set labels of one of the namespaces; None removes one."""
        patch = {"metadata": {"labels": dict(labels)}}
        self._api.patch(NAMESPACE, place.name, patch)

    def remove(self) -> None:
        """Remove everything of this run."""
        if self._lease is not None:
            self._lease.end()
        for place in self._namespaces.values():
            place.end()
        if self._created:
            self._api.delete(PRIORITY_CLASS, self.name)
        for name in self._created:
            self._api.delete(NAMESPACE, name)


def _secret(api: Api, name: str, home: str) -> Mapping[str, Any]:
    try:
        return api.get(SECRET, name, home)
    except ApiError as problem:
        not_made(f"the image pull secret {home}/{name} cannot be read: {problem}")


def _copied(secret: Mapping[str, Any], namespace: str) -> dict[str, Any]:
    metadata: Any = {"name": secret["metadata"]["name"], "namespace": namespace, "labels": OWN}
    return {"metadata": metadata, "type": secret.get("type"), "data": secret.get("data")}


def _priority_class(name: str) -> dict[str, Any]:
    """Return the lowest of priorities: no pod is moved for these, they are moved for any."""
    return {
        "metadata": {"name": name, "labels": OWN},
        "value": -1000,
        "preemptionPolicy": "Never",
        "description": "Pods of divvy verify.",
    }


@contextlib.contextmanager
def pod_namespaces(
    api: Api, image: str, home: str, pull_secrets: Sequence[str] = ()
) -> Iterator[PodNamespaces]:
    """Give the namespaces of one run and remove them, whatever happens."""
    namespaces = PodNamespaces(api, image, home, pull_secrets)
    try:
        yield namespaces
    finally:
        _surely(namespaces.remove)


@contextlib.contextmanager
def profile_on(api: Api, node: str, profile: str, run: str) -> Iterator[None]:
    """Let a node follow another profile for a while, by its label; take it off whatever happens.

    The node is cordoned meanwhile: a user's pod on a device of that profile would block the way
    back. A run that is killed leaves annotations beside the label, and the next run of any kind
    takes all of it off (``clear_leftovers``).
    """
    cordon = not api.get(NODE, node)["spec"].get("unschedulable")
    try:
        # A run may be stopped before it hears that the node is marked.
        _mark(api, node, profile, f"{profile} {run}", cordon=True if cordon else None)
        yield
    finally:
        _surely(lambda: _mark(api, node, None, None, cordon=False if cordon else None))


def _surely(undo: Callable[[], None]) -> None:
    """Undo something; a run that is stopped just then undoes it all the same, and stops."""
    try:
        undo()
    except KeyboardInterrupt:
        undo()
        raise


def clear_leftovers(api: Api) -> None:
    """Remove what a run that was killed has left: changed profiles, cordons, namespaces.

    What a living run has changed is left alone; a node that it has on another profile cannot be
    checked meanwhile: raises UsageError.
    """
    marked = {}
    for node in api.find(NODE):
        annotations = node["metadata"].get("annotations") or {}
        if CONFORMANCE_PROFILE in annotations:
            marked[node["metadata"]["name"]] = node
    # Those that are being removed belong to no run; those of another name never did.
    names = [
        leftover["metadata"]["name"]
        for leftover in api.find(NAMESPACE, labels=OWN)
        if OWN_NAMESPACE.fullmatch(leftover["metadata"]["name"])
        and not leftover["metadata"].get("deletionTimestamp")
    ]
    alive = living(api, names, lambda line: print(f"  {line}", file=sys.stderr))
    runs = {name.rpartition("-")[0] for name in alive}
    for name, node in marked.items():
        annotations = node["metadata"]["annotations"]
        profile, _, run = annotations[CONFORMANCE_PROFILE].partition(" ")
        if run in runs:
            raise pytest.UsageError(
                f"another run of divvy verify has {name} on profile {profile} ({run}): wait for it"
            )
        label = (node["metadata"].get("labels") or {}).get(PROFILE_LABEL)
        uncordon = False if CONFORMANCE_CORDON in annotations else None
        # A label that somebody has changed since is theirs.
        _mark(api, name, None if label == profile else label, None, cordon=uncordon)
        print(f"  {name}: a killed run left it on profile {profile}; reverted",
              file=sys.stderr)  # fmt: skip
    for leftover in api.find(PRIORITY_CLASS, labels=OWN):
        run = leftover["metadata"]["name"]
        if run in {name.rpartition("-")[0] for name in names} - runs:
            api.delete(PRIORITY_CLASS, run)
    for name in names:
        if name.rpartition("-")[0] not in runs:
            api.delete(NAMESPACE, name)
            print(f"  {name}: a killed run left it; removed", file=sys.stderr)


def _mark(
    api: Api, node: str, label: str | None, annotation: str | None, *, cordon: bool | None
) -> None:
    annotations: dict[str, str | None] = {CONFORMANCE_PROFILE: annotation}
    patch: dict[str, Any] = {
        "metadata": {"labels": {PROFILE_LABEL: label}, "annotations": annotations}
    }
    if cordon is not None:
        annotations[CONFORMANCE_CORDON] = "yes" if cordon else None
        patch["spec"] = {"unschedulable": True if cordon else None}
    api.patch(NODE, node, patch, undoes=annotation is None)


def _has_account(api: Api, namespace: str) -> bool:
    try:
        api.get(SERVICE_ACCOUNT, "default", namespace)
    except ApiError:
        return False
    return True
