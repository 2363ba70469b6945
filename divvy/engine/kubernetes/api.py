"""The Kubernetes API as the provider uses it: objects by group, version, kind, namespace, name."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx2
from lightkube.config.client_adapter import Client, ConnectionParams
from lightkube.config.kubeconfig import KubeConfig
from lightkube.core.exceptions import ConfigError

from divvy.engine.errors import Conflict, EngineError, StepFailed

_APPLY = "application/apply-patch+yaml"
# How long a server that has answered before may be away: a restart takes some seconds.
_RESTART_SECONDS = 20.0
_RETRY_SECONDS = 0.5
# lightkube decodes with msgspec, which crashes when two threads decode a type for the first time.
_decoding = threading.Lock()


class ApiProblem(StepFailed):
    """The API refused a request; ``status`` is the HTTP status, 0 where it was not reached."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True)
class Kind:
    """Where the objects of one kind lie."""

    api_version: str
    kind: str
    plural: str
    namespaced: bool

    def path(self, namespace: str, name: str = "") -> str:
        """Return the URL path of an object, or of its collection."""
        group = f"/apis/{self.api_version}" if "/" in self.api_version else "/api/v1"
        inner = f"/namespaces/{namespace}" if self.namespaced else ""
        return f"{group}{inner}/{self.plural}" + (f"/{name}" if name else "")


class Api:
    """A thread-safe client of one cluster."""

    def __init__(self, kubeconfig: str | None, context: str | None) -> None:
        try:
            with _decoding:
                config = _configs(kubeconfig).get(context_name=context)
        except ConfigError as error:
            raise EngineError(f"kubeconfig: {error}") from None
        if config is None:
            raise EngineError(f"kubeconfig: no context {context or 'is current'}")
        self.default_namespace = config.namespace or "default"
        self._http = Client(config, ConnectionParams(timeout=httpx2.Timeout(30)))
        self._kinds: dict[tuple[str, str], Kind] = {}
        self._lock = threading.Lock()
        self._patience = 0.0  # until it has answered once, it is more likely the wrong address

    def greet(self) -> None:
        """Open a connection, whatever it answers."""
        with contextlib.suppress(httpx2.HTTPError, RuntimeError):  # the latter: closed meanwhile
            self._http.get("/version")

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def kind(self, api_version: str, kind: str) -> Kind:
        """Look a kind up; raises ApiProblem (404) where the cluster does not know it."""
        with self._lock:
            if (api_version, kind) not in self._kinds:
                group = f"/apis/{api_version}" if "/" in api_version else "/api/v1"
                for found in self._request("GET", group).get("resources", ()):
                    if "/" not in found["name"]:
                        known = Kind(api_version, found["kind"], found["name"], found["namespaced"])
                        self._kinds[api_version, found["kind"]] = known
            if (api_version, kind) not in self._kinds:
                raise ApiProblem(f"the cluster has no {kind} in {api_version}", 404)
            return self._kinds[api_version, kind]

    def get(self, kind: Kind, namespace: str, name: str) -> dict[str, Any] | None:
        """Read an object, None where there is none."""
        try:
            return self._request("GET", kind.path(namespace, name))
        except ApiProblem as problem:
            if problem.status == 404:
                return None
            raise

    def list(self, kind: Kind, namespace: str, selector: str) -> list[dict[str, Any]]:
        """List objects by label selector."""
        answer = self._request("GET", kind.path(namespace), params={"labelSelector": selector})
        return list(answer["items"])

    def apply(
        self, kind: Kind, namespace: str, obj: Mapping[str, Any], manager: str, **flags: bool
    ) -> dict[str, Any]:
        """Server-side apply; flags are ``force`` and ``dry_run``. Raises Conflict."""
        params = {"fieldManager": manager, "force": str(flags.get("force", False)).lower()}
        if flags.get("dry_run"):
            params["dryRun"] = "All"
        return self._request(
            "PATCH",
            kind.path(namespace, obj["metadata"]["name"]),
            params=params,
            content=json.dumps(obj),
            headers={"Content-Type": _APPLY},
        )

    def set_managers(
        self, kind: Kind, namespace: str, live: Mapping[str, Any], managed: Sequence[Any]
    ) -> None:
        """Replace who manages which fields of an object that nobody changed since it was read."""
        metadata = live["metadata"]
        patch = [
            {
                "op": "replace",
                "path": "/metadata/resourceVersion",
                "value": metadata["resourceVersion"],
            },
            {"op": "replace", "path": "/metadata/managedFields", "value": managed},
        ]
        self._request(
            "PATCH",
            kind.path(namespace, metadata["name"]),
            content=json.dumps(patch),
            headers={"Content-Type": "application/json-patch+json"},
        )

    def delete(self, kind: Kind, namespace: str, name: str, propagation: str, uid: str) -> bool:
        """Begin a deletion; False where the object (with this uid) is gone."""
        body: dict[str, Any] = {"propagationPolicy": propagation}
        if uid:
            body["preconditions"] = {"uid": uid}
        try:
            self._request(
                "DELETE",
                kind.path(namespace, name),
                content=json.dumps(body),
                headers={"Content-Type": "application/json"},
            )
        except ApiProblem as problem:
            if problem.status in (404, 409):
                return False
            raise
        return True

    def log_tail(self, namespace: str, pod: str, container: str, *, previous: bool) -> str:
        """Return the last lines of a container's log, "" where there are none."""
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}/log"
        params = {"container": container, "tailLines": "5", "previous": str(previous).lower()}
        try:
            # A kubelet may take its time over a container that is being restarted.
            answer = self._http.request("GET", path, params=params, timeout=5)
        except httpx2.HTTPError:
            return ""
        return answer.text.strip() if answer.is_success else ""

    def _persistently(self, method: str, path: str, options: Mapping[str, Any]) -> httpx2.Response:
        """Send a request; while the server restarts, send it again.

        Every request here may be sent twice: reads, applies, and deletions that name
        the object's uid.
        """
        deadline = time.monotonic() + self._patience
        while True:
            try:
                answer = self._http.request(method, path, **options)
            except httpx2.HTTPError as error:
                if time.monotonic() >= deadline:
                    text = f"the API server does not answer: {error}"
                    raise ApiProblem(text, 0) from None
            else:
                self._patience = _RESTART_SECONDS
                if not _starting(answer) or time.monotonic() >= deadline:
                    return answer
            time.sleep(_RETRY_SECONDS)

    def _request(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        answer = self._persistently(method, path, options)
        if answer.is_success:
            found: dict[str, Any] = answer.json()
            return found
        raise _problem(answer)


def _configs(kubeconfig: str | None) -> KubeConfig:
    """Read a kubeconfig given by content or by path, else the one that kubectl would use."""
    if kubeconfig and kubeconfig.lstrip().startswith(("apiVersion", "{", "clusters")):
        import yaml  # noqa: PLC0415 (only for a kubeconfig given by content)

        return KubeConfig.from_dict(yaml.safe_load(kubeconfig))
    return KubeConfig.from_file(kubeconfig) if kubeconfig else KubeConfig.from_env()


def _starting(answer: httpx2.Response) -> bool:
    """Tell whether an API server answers that is not ready to serve yet."""
    return answer.status_code in (429, 503)


def _problem(answer: httpx2.Response) -> StepFailed:
    try:
        body = answer.json()
    except ValueError:
        body = {}
    text = body.get("message") or answer.text.strip() or f"HTTP {answer.status_code}"
    causes = list(_conflicts(body))
    if answer.status_code == 409 and causes:
        owners = "; ".join(causes)
        return Conflict(
            f"another field manager owns fields of this object: {owners}. Remove them from the "
            'program, or take them over with the annotation pulumi.com/patchForce: "true"'
        )
    return ApiProblem(text, answer.status_code)


def _conflicts(body: Mapping[str, Any]) -> Iterator[str]:
    for cause in (body.get("details") or {}).get("causes") or ():
        if cause.get("reason") == "FieldManagerConflict":
            yield f"{cause.get('field')} ({cause.get('message')})"
