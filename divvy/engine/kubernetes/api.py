"""A client of the Kubernetes API: objects by group, version, kind, namespace and name."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from divvy.engine.errors import Conflict, EngineError, StepFailed
from divvy.engine.values import SIGNATURE_KEY, without_marks
from divvy.kube.client import Answer, Client
from divvy.kube.errors import (
    NOT_FOUND,
    TOO_MANY_REQUESTS,
    UNAVAILABLE,
    ApiError,
    KubeconfigError,
    Unreachable,
)
from divvy.kube.kind import Kind
from divvy.kube.kubeconfig import cluster_config
from divvy.kube.media_types import APPLY, JSON_PATCH

# How long a server that has answered before may be away, or busy: a restart takes some seconds.
_RESTART_SECONDS = 20.0
_RETRY_SECONDS = 0.5
_CREATED = 201
# Lines of a log may have any length.
_MAX_LOG = 4_000


class ApiProblem(StepFailed):
    """The API refused a request; ``status`` is the HTTP status, 0 if it was not reached."""

    def __init__(self, text: str, status: int) -> None:
        # Only a refusal says for certain that nothing was done.
        super().__init__(text, unsure=not 400 <= status < 500)
        self.status = status


class _NoSuchKind(ApiProblem):
    """The cluster does not have a kind in a version of its group."""


class Api:
    """A thread-safe client of one cluster."""

    def __init__(self, kubeconfig: str | None, context: str | None) -> None:
        try:
            self._client = Client(cluster_config(kubeconfig, context))
        except KubeconfigError as error:
            raise EngineError(str(error)) from None
        self.default_namespace = self._client.namespace
        self.server = self._client.server
        self._uid: str | None = None
        self._user: str | None = None
        self._kinds: dict[tuple[str, str], Kind] = {}
        self._lock = threading.Lock()
        self._patience = 0.0  # until it has answered once, it is more likely the wrong address

    def cluster_uid(self) -> str:
        """Return the cluster's identity, "" if this user may not read it.

        It is the uid of the namespace kube-system, which lives as long as its cluster.
        """
        if self._uid is None:
            try:
                kube_system = self._request("GET", "/api/v1/namespaces/kube-system")
                self._uid = str(kube_system["metadata"]["uid"])
            except ApiProblem as problem:
                if problem.status not in (403, 404):
                    raise
                self._uid = ""
        return self._uid

    def user(self) -> str:
        """Return the name by which the server knows the user, "" if it does not say."""
        if self._user is None:
            try:
                review = self._review("authentication.k8s.io/v1", "SelfSubjectReview", {})
                self._user = str(review["userInfo"].get("username", ""))
            except ApiProblem as problem:
                if problem.status not in (403, 404):
                    raise
                self._user = ""
        return self._user

    def may(self, verb: str, kind: Kind, namespace: str, name: str = "") -> bool:
        """Tell whether the user has a right to an object, or to all of that kind and namespace."""
        attributes = {
            "verb": verb,
            "group": kind.api_version.rpartition("/")[0],
            "resource": kind.plural,
            "namespace": namespace,
            "name": name,
        }
        spec = {"resourceAttributes": attributes}
        status = self._review("authorization.k8s.io/v1", "SelfSubjectAccessReview", spec)
        return bool(status["allowed"])

    def _review(self, api_version: str, kind: str, spec: Mapping[str, Any]) -> dict[str, Any]:
        body = {"apiVersion": api_version, "kind": kind, "spec": spec}
        answer = self._request("POST", f"/apis/{api_version}/{kind.lower()}s", body)
        status: dict[str, Any] = answer["status"]
        return status

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def kind(self, api_version: str, kind: str) -> Kind:
        """Look a kind up; raises ApiProblem (404) if the cluster does not have it."""
        with self._lock:
            if (api_version, kind) not in self._kinds:
                for resource in self._kinds_of(api_version):
                    if "/" not in resource["name"]:
                        known = Kind(
                            api_version, resource["kind"], resource["name"], resource["namespaced"]
                        )
                        self._kinds[api_version, resource["kind"]] = known
            if (api_version, kind) not in self._kinds:
                raise _NoSuchKind(f"the cluster has no {kind} in {api_version}", NOT_FOUND)
            return self._kinds[api_version, kind]

    def served_kind(self, api_version: str, kind: str) -> Kind | None:
        """Look a kind up in this version of its group, else in the others, which share objects.

        Returns None if the cluster does not have it in any.
        """
        with contextlib.suppress(_NoSuchKind):
            return self.kind(api_version, kind)
        for version in self._versions(api_version.rpartition("/")[0]):
            with contextlib.suppress(_NoSuchKind):
                return self.kind(version, kind)
        return None

    def _versions(self, group: str) -> Sequence[str]:
        """Return the versions that a group is served in, preferred ones first."""
        if not group:
            return ()  # the core group has v1 alone
        try:
            versions = self._request("GET", f"/apis/{group}").get("versions") or ()
        except ApiProblem as problem:
            if problem.status != NOT_FOUND:
                raise
            return ()
        return [str(version["groupVersion"]) for version in versions]

    def _kinds_of(self, api_version: str) -> Sequence[Mapping[str, Any]]:
        group = f"/apis/{api_version}" if "/" in api_version else "/api/v1"
        try:
            kinds: list[Mapping[str, Any]] = self._request("GET", group).get("resources", [])
        except ApiProblem as problem:
            if problem.status != 404:
                raise
            return ()
        return kinds

    def get(self, kind: Kind, namespace: str, name: str) -> dict[str, Any] | None:
        """Read an object, None if it does not exist."""
        try:
            return self._request("GET", kind.path(namespace, name))
        except ApiProblem as problem:
            if problem.status == 404:
                return None
            raise

    def list(self, kind: Kind, namespace: str, **query: str) -> list[dict[str, Any]]:
        """List objects; ``query`` is ``labelSelector`` or ``fieldSelector``."""
        return list(self._request("GET", kind.path(namespace), query=query).get("items") or ())

    def apply(
        self, kind: Kind, namespace: str, obj: Mapping[str, Any], manager: str, **flags: bool
    ) -> dict[str, Any]:
        """Server-side apply; flags are ``force`` and ``dry_run``. Raises Conflict."""
        query = {"fieldManager": manager, "force": str(flags.get("force", False)).lower()}
        if flags.get("dry_run"):
            query["dryRun"] = "All"
        path = kind.path(namespace, obj["metadata"]["name"])
        return self._request("PATCH", path, obj, kind=APPLY, query=query)

    def create(
        self, kind: Kind, namespace: str, obj: Mapping[str, Any], manager: str
    ) -> dict[str, Any] | None:
        """Create an object by server-side apply; None if it existed already.

        A request that had to be sent again may meet what its first sending has made.
        """
        path = kind.path(namespace, obj["metadata"]["name"])
        query = {"fieldManager": manager, "force": "false"}
        answer, again = self._persistently("PATCH", path, obj, kind=APPLY, query=query)
        created = _body(answer)
        return created if again or answer.code == _CREATED else None

    def set_managers(
        self, kind: Kind, namespace: str, live: Mapping[str, Any], managed: Sequence[Any]
    ) -> None:
        """Replace the managed fields of an object, unless it has changed since it was read."""
        metadata = live["metadata"]
        patch = [
            {
                "op": "replace",
                "path": "/metadata/resourceVersion",
                "value": metadata["resourceVersion"],
            },
            {"op": "replace", "path": "/metadata/managedFields", "value": managed},
        ]
        self._request("PATCH", kind.path(namespace, metadata["name"]), patch, kind=JSON_PATCH)

    def delete(self, kind: Kind, namespace: str, name: str, propagation: str, uid: str) -> None:
        """Begin the deletion of the object with this uid; one that is gone is no error."""
        body = {"propagationPolicy": propagation, "preconditions": {"uid": uid}}
        try:
            self._request("DELETE", kind.path(namespace, name), body)
        except ApiProblem as problem:
            if problem.status == 404:
                return
            if problem.status != 409:
                raise
            # Another object of that name, or one whose deletion has begun already.
            live = self.get(kind, namespace, name)
            same = live is not None and live["metadata"]["uid"] == uid
            if live is not None and same and not live["metadata"].get("deletionTimestamp"):
                raise

    def log_tail(self, namespace: str, pod: str, container: str, *, previous: bool) -> str:
        """Return the last lines of a container's log, "" if it has none."""
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}/log"
        query = {"container": container, "tailLines": "5", "previous": str(previous).lower()}
        try:
            # A kubelet may take its time over a container that is being restarted.
            answer = self._client.send("GET", path, query=query, seconds=5)
        except Unreachable:
            return ""
        text = answer.text.strip() if answer.is_success else ""
        # It goes to the terminal and into the state. Half a word may be half a secret.
        return text if len(text) <= _MAX_LOG else f"… {' '.join(text[-_MAX_LOG:].split(' ')[1:])}"

    def _persistently(
        self, method: str, path: str, body: object, **options: Any
    ) -> tuple[Answer, bool]:
        """Send a request; while the server restarts or is busy, again, and tell whether it was.

        Every request here may be sent twice: reads, reviews, applies, and deletions that name
        the object's uid.
        """
        began = time.monotonic()
        again = False
        while True:
            delay = _RETRY_SECONDS
            try:
                answer = self._client.send(method, path, body, **options)
            except Unreachable as error:
                if time.monotonic() >= began + self._patience:
                    raise ApiProblem(f"the API server does not answer: {error}", 0) from None
            except KubeconfigError as error:  # a credential plugin is asked with the first request
                raise EngineError(str(error)) from None
            else:
                if answer.code != UNAVAILABLE or answer.retry_after:
                    self._patience = _RESTART_SECONDS
                delay = max(delay, answer.retry_after or 0)
                if not _is_busy(answer) or time.monotonic() + delay > began + self._patience:
                    return answer, again
            again = True
            time.sleep(delay)

    def _request(
        self, method: str, path: str, body: object = None, **options: Any
    ) -> dict[str, Any]:
        answer, _ = self._persistently(method, path, body, **options)
        return _body(answer)


def _is_busy(answer: Answer) -> bool:
    """Tell whether an API server wants the request later: it is starting, or throttles."""
    return answer.code in (TOO_MANY_REQUESTS, UNAVAILABLE) or answer.retry_after is not None


def _body(answer: Answer) -> dict[str, Any]:
    try:
        obj = answer.object()
        # Anybody may have given an object an annotation that reads like a mark of a secret.
        return without_marks(obj) if SIGNATURE_KEY in answer.text else obj
    except ApiError as error:
        raise _problem(error) from None
    except Unreachable as error:
        raise ApiProblem(f"the API server does not answer as one: {error}", 0) from None


def _problem(error: ApiError) -> StepFailed:
    owners = dict(_conflicts(error.body))
    if error.code == 409 and owners:
        return Conflict(conflict_text(owners), owners)
    return ApiProblem(str(error), error.code)


def conflict_text(owners: Mapping[str, str]) -> str:
    """Describe which managers own which fields, and what can be done about it."""
    fields = ", ".join(f"{field} ({manager})" for field, manager in sorted(owners.items()))
    return (
        f"other field managers own fields of this object: {fields}. Stop them from writing it; "
        "then delete the object and run again: it will be recreated. A program can also leave "
        "the fields out, or take them over with the annotation pulumi.com/patchForce"
    )


def _conflicts(body: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield field and manager of each conflict; the manager is quoted in the message."""
    for cause in (body.get("details") or {}).get("causes") or ():
        if cause.get("reason") == "FieldManagerConflict":
            manager = str(cause.get("message")).split('"')
            yield str(cause.get("field")), manager[1] if len(manager) > 1 else "unknown"
