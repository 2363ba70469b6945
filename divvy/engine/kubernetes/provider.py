"""Make, change, read and delete Kubernetes objects for the engine."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from divvy.engine.errors import StepFailed
from divvy.engine.kubernetes.api import Api, ApiProblem, Kind
from divvy.engine.kubernetes.compare import (
    changed_paths,
    drifted_paths,
    projected,
    replacing_paths,
)
from divvy.engine.kubernetes.ready import (
    hopeless,
    of_current_template,
    readiness,
    selector_text,
    unsettled,
    waits_for_pods,
)
from divvy.engine.kubernetes.takeover import handed_over
from divvy.engine.provider import Diff, Made
from divvy.engine.state.resource import ResourceState
from divvy.engine.urn import urn_name
from divvy.engine.values import UNKNOWN, has_unknown

AUTONAMED = "pulumi.com/autonamed"
_RECORDED = ("__fieldManager", "__inputs", "__initialApiVersion")
_LOOK_SECONDS = 0.25
# What only the API server knows; a preview hands these out as unknown.
_SERVER_METADATA = ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields")


class KubernetesProvider:
    """Provider for the objects of one cluster.

    ``configuration`` are the provider resource's inputs (kubeconfig, context,
    namespace, enableConfigMapMutable …); ``told`` hears what is being waited for.
    """

    def __init__(
        self, configuration: Mapping[str, Any], manager: str, told: Callable[[str, str], None]
    ) -> None:
        self._configuration = configuration
        self._manager = manager
        self._told = told
        self._api: Api | None = None
        self._connecting = threading.Lock()

    def warm(self) -> None:
        """Connect while the program is still being read."""
        self.api.greet()

    def close(self) -> None:
        """Close the connection to the cluster."""
        if self._api is not None:
            self._api.close()

    @property
    def api(self) -> Api:
        """Return the connection, made once, at first use."""
        with self._connecting:
            if self._api is None:
                kubeconfig = self._configuration.get("kubeconfig")
                self._api = Api(
                    os.path.expanduser(kubeconfig) if kubeconfig else None,  # noqa: PTH111 (or content)
                    self._configuration.get("context"),
                )
            return self._api

    def check(
        self, urn: str, old: Mapping[str, Any] | None, new: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Fill in the namespace of the provider and a name where the program gives none."""
        inputs = dict(new)
        metadata = dict(inputs.get("metadata") or {})
        default = self._configuration.get("namespace")
        if default and "namespace" not in metadata and inputs.get("kind") != "Namespace":
            metadata["namespace"] = default
        if not metadata.get("name") and not metadata.get("generateName"):
            known = (old or {}).get("metadata") or {}
            if (known.get("annotations") or {}).get(AUTONAMED):
                metadata["name"] = known["name"]
            else:
                metadata["name"] = f"{urn_name(urn).lower()}-{os.urandom(4).hex()}"
            metadata["annotations"] = {**(metadata.get("annotations") or {}), AUTONAMED: "true"}
        inputs["metadata"] = metadata
        return inputs

    def diff(self, resource: ResourceState, inputs: Mapping[str, Any]) -> Diff:
        """Compare by value; a fixed name makes a replacement delete first."""
        changed = tuple(changed_paths(resource.inputs, inputs))
        replace = replacing_paths(
            inputs,
            changed,
            config_map=_true(self._configuration.get("enableConfigMapMutable")),
            secret=_true(self._configuration.get("enableSecretMutable")),
        )
        moved = any(path in ("metadata.name", "metadata.namespace") for path in changed)
        return Diff(changed, replace, before=bool(replace) and not moved)

    def identity(self, inputs: Mapping[str, Any]) -> str:
        """Return "namespace/name" or "name" as the official provider does."""
        metadata = inputs.get("metadata") or {}
        namespace, name = metadata.get("namespace"), str(metadata.get("name", ""))
        return f"{namespace}/{name}" if namespace else name

    def create(self, urn: str, inputs: Mapping[str, Any], *, timeout: float, preview: bool) -> Made:
        """Apply a new object and wait until it is ready."""
        if has_unknown(inputs):
            return Made("", _previewed(inputs))
        try:
            kind, namespace = self._place(inputs)
            live = self.api.get(kind, namespace, inputs["metadata"]["name"])
            if live is not None and not _forced(inputs) and not _ours(live, self._manager):
                raise StepFailed(
                    f"{self.identity(inputs)} exists already, made by {_makers(live)}: delete it, "
                    'or take it over with the annotation pulumi.com/patchForce: "true"'
                )
            applied = self.api.apply(
                kind, namespace, inputs, self._manager, force=_forced(inputs), dry_run=preview
            )
        except ApiProblem as problem:
            if preview and problem.status == 404:
                return Made("", _previewed(inputs))  # its namespace or kind comes with this run
            raise
        if preview:
            return Made("", _previewed(applied))
        identity = self._identity_of(kind, applied)
        outputs = self._await(urn, kind, namespace, applied, inputs, self._manager, timeout)
        return Made(identity, outputs)

    def planned(self, inputs: Mapping[str, Any]) -> Made:
        """Foretell an object; a dry run would meet the one that it replaces."""
        return Made("", _previewed(inputs))

    def update(
        self, resource: ResourceState, inputs: Mapping[str, Any], *, timeout: float, preview: bool
    ) -> Made:
        """Apply new inputs to an object and wait until it is ready."""
        if has_unknown(inputs):
            return Made(resource.id, {**resource.outputs, **inputs})
        kind, namespace = self._place(inputs)
        # What an official run made keeps its manager, so that removed fields are ours to remove.
        manager = str(resource.outputs.get("__fieldManager") or self._manager)
        taking_over = manager != self._manager and self._take_over(resource, manager, preview)
        force = _forced(inputs) or (preview and taking_over)
        applied = self.api.apply(kind, namespace, inputs, manager, force=force, dry_run=preview)
        if preview:
            return Made(resource.id, applied)
        identity = self._identity_of(kind, applied)
        outputs = self._await(resource.urn, kind, namespace, applied, inputs, manager, timeout)
        return Made(identity, outputs)

    def delete(self, resource: ResourceState, *, timeout: float) -> None:
        """Delete an object and wait until it is gone."""
        outputs = resource.outputs or resource.inputs
        try:
            kind, namespace = self._place(outputs)
        except ApiProblem as problem:
            if problem.status == 404:
                return  # the kind itself is gone, and with it its objects
            raise
        metadata = outputs["metadata"]
        annotations = metadata.get("annotations") or {}
        policy = str(annotations.get("pulumi.com/deletionPropagationPolicy", "background"))
        uid = str(metadata.get("uid") or "")
        name = str(metadata["name"])
        if not resource.outputs:
            # A creation that was cut off: what lies there may be somebody else's.
            found = self.api.get(kind, namespace, name)
            if found is None or not _ours(found, self._manager):
                return
        if not self.api.delete(kind, namespace, name, policy.capitalize(), uid):
            return
        if _true(annotations.get("pulumi.com/skipAwait")):
            return
        deadline = time.monotonic() + _timeout(annotations, timeout)
        while time.monotonic() < deadline:
            live = self.api.get(kind, namespace, name)
            if live is None or (uid and live["metadata"]["uid"] != uid):
                return
            self._told(resource.urn, _deletion_state(live))
            time.sleep(_LOOK_SECONDS)
        raise StepFailed(f"{resource.id} is still being deleted after {timeout:.0f} s")

    def read(self, resource: ResourceState) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """Read the live object."""
        live = self._live(resource)
        if live is None:
            return None
        recorded = {name: resource.outputs[name] for name in _RECORDED if name in resource.outputs}
        return projected(resource.inputs, live), {**recorded, **live}

    def drifted(self, resource: ResourceState) -> tuple[str, ...] | None:
        """Compare the live object with the recorded one at the paths the program set."""
        live = self._live(resource)
        if live is None:
            return None
        return tuple(drifted_paths(resource.inputs, resource.outputs, live))

    def _take_over(self, resource: ResourceState, manager: str, preview: bool) -> bool:
        """Give the official creator's fields to ``manager``; say whether it had any."""
        live = self._live(resource)
        managed = None if live is None else handed_over(_managed(live), manager)
        if live is None or managed is None:
            return False
        if not preview:
            self.api.set_managers(*self._place(live), live, managed)
        return True

    def _live(self, resource: ResourceState) -> dict[str, Any] | None:
        source = resource.outputs if "metadata" in resource.outputs else resource.inputs
        try:
            kind, namespace = self._place(source)
        except ApiProblem as problem:
            if problem.status == 404:
                return None
            raise
        return self.api.get(kind, namespace, str(source["metadata"]["name"]))

    def _place(self, obj: Mapping[str, Any]) -> tuple[Kind, str]:
        kind = self.api.kind(str(obj["apiVersion"]), str(obj["kind"]))
        namespace = str(obj["metadata"].get("namespace") or self.api.default_namespace)
        return kind, namespace if kind.namespaced else ""

    def _identity_of(self, kind: Kind, obj: Mapping[str, Any]) -> str:
        metadata = obj["metadata"]
        name = str(metadata["name"])
        return f"{metadata['namespace']}/{name}" if kind.namespaced else name

    def _await(
        self,
        urn: str,
        kind: Kind,
        namespace: str,
        applied: dict[str, Any],
        inputs: Mapping[str, Any],
        manager: str,
        timeout: float,
    ) -> dict[str, Any]:
        """Wait until the object is ready; raises StepFailed early where it cannot become so."""
        recorded = {
            "__fieldManager": manager,
            "__initialApiVersion": inputs["apiVersion"],
            "__inputs": dict(inputs),
        }
        annotations = inputs["metadata"].get("annotations") or {}
        live = applied
        if _true(annotations.get("pulumi.com/skipAwait")):
            return {**recorded, **live}
        deadline = time.monotonic() + _timeout(annotations, timeout)
        while True:
            missing = readiness(live)
            pods = self._pods(live, namespace) if waits_for_pods(live) else []
            if missing is None:
                missing = unsettled(pods, datetime.now(UTC))
            if missing is None:
                return {**recorded, **live}
            self._told(urn, missing)
            reason = self._hopeless(pods, namespace)
            late = time.monotonic() >= deadline
            if reason or late:
                text = reason or f"{missing} after {_timeout(annotations, timeout):.0f} s"
                raise StepFailed(f"not ready: {text}", {**recorded, **live})
            time.sleep(_LOOK_SECONDS)
            found = self.api.get(kind, namespace, applied["metadata"]["name"])
            if found is None:
                raise StepFailed("the object was deleted while the engine waited for it")
            live = found

    def _pods(self, obj: Mapping[str, Any], namespace: str) -> list[Mapping[str, Any]]:
        found = self.api.list(self.api.kind("v1", "Pod"), namespace, selector_text(obj))
        return of_current_template(obj, found)

    def _hopeless(self, pods: list[Mapping[str, Any]], namespace: str) -> str | None:
        trouble = hopeless(pods)
        if trouble is None:
            return None
        place = (namespace, trouble.pod, trouble.container)
        log = self.api.log_tail(*place, previous=False)
        if not log and trouble.restarts:
            log = self.api.log_tail(*place, previous=True)
        said = f"; its last words:\n{log}" if log else ""
        return (
            f"container {trouble.container} of pod {trouble.pod} is in {trouble.reason}"
            f" ({trouble.message}){said}"
        )


def _true(value: Any) -> bool:
    return value is True or value == "true"


def _forced(inputs: Mapping[str, Any]) -> bool:
    annotations = inputs["metadata"].get("annotations") or {}
    return _true(annotations.get("pulumi.com/patchForce"))


def _timeout(annotations: Mapping[str, Any], default: float) -> float:
    return float(annotations.get("pulumi.com/timeoutSeconds", default))


def _ours(live: Mapping[str, Any], manager: str) -> bool:
    return any(found.get("manager") == manager for found in _managed(live))


def _makers(live: Mapping[str, Any]) -> str:
    return ", ".join(sorted({str(found.get("manager")) for found in _managed(live)})) or "unknown"


def _managed(live: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return list(live["metadata"].get("managedFields") or ())


def _previewed(obj: Mapping[str, Any]) -> dict[str, Any]:
    metadata = {**obj["metadata"], **dict.fromkeys(_SERVER_METADATA, UNKNOWN)}
    return {**obj, "metadata": metadata, "status": UNKNOWN}


def _deletion_state(live: Mapping[str, Any]) -> str:
    finalizers = live["metadata"].get("finalizers") or []
    return f"waiting for {', '.join(finalizers)}" if finalizers else "being deleted"
