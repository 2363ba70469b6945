"""Creates, updates, reads and deletes Kubernetes objects for the engine."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from divvy.engine.errors import Conflict, StepFailed
from divvy.engine.kubernetes.annotations import (
    AUTONAMED,
    is_autonamed,
    is_forced,
    is_true,
    patience_of,
    timeout_of,
)
from divvy.engine.kubernetes.api import Api, ApiProblem, conflict_text
from divvy.engine.kubernetes.compare import (
    drifted_paths,
    longer_lists,
    normalised,
    object_changes,
    projected,
    replacing_paths,
)
from divvy.engine.kubernetes.connection import Connection
from divvy.engine.kubernetes.record import (
    exists_already,
    identity_of,
    managed_fields,
    managers,
    previewed,
    recorded_keys,
    uid_of,
    with_recorded_namespace,
    written_down,
)
from divvy.engine.kubernetes.takeover import CREATOR, by_kubectl, from_creator, from_kubectl
from divvy.engine.kubernetes.waiting import Waiting, deletion_state
from divvy.engine.property_path import restored
from divvy.engine.provider import Diff, ProviderResult
from divvy.engine.state.resource import ResourceState
from divvy.engine.urn import urn_name
from divvy.engine.values import UNKNOWN, has_unknown
from divvy.kube.errors import CONFLICT, INVALID
from divvy.kube.kind import Kind

_OWN_METADATA = ("name", "namespace", "labels", "annotations", "finalizers", "ownerReferences")
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_MAX_MANAGER = 128
# To write an object that a controller writes, too.
_TRIES = 5
_NEVER_CHANGES = re.compile(
    "immutable|may not be changed|updates to .* are forbidden", re.IGNORECASE
)
# Also what an earlier release or the official engine has created.
_OWNS_PODS = ("DaemonSet", "Deployment", "Job", "ReplicaSet", "StatefulSet")


class KubernetesProvider:
    """Provider for the objects of one cluster.

    ``configuration`` are the provider resource's inputs (kubeconfig, context,
    namespace, enableConfigMapMutable …); ``recorded`` is the cluster that it had
    before, as ``cluster`` returned it; ``report`` hears by URN what is awaited or taken over.
    """

    def __init__(
        self,
        configuration: Mapping[str, Any],
        manager: str,
        report: Callable[[str, str], None],
        recorded: Mapping[str, str],
    ) -> None:
        self._configuration = configuration
        self._manager = manager[: _MAX_MANAGER - 9]
        self._connection = Connection(configuration, recorded)
        self._report = report
        self._waiting = Waiting(self._connection, report)

    def warm(self) -> None:
        """Connect while the program is still being read."""
        self.cluster()
        self.identity()

    def cancel(self) -> None:
        """Stop all waits."""
        self._waiting.cancel()

    def close(self) -> None:
        """Close the connection to the cluster."""
        self._connection.close()

    def cluster(self) -> Mapping[str, str]:
        """Return the cluster's uid ("" if this user may not see it) and its server's URL."""
        return self._connection.cluster()

    def identity(self) -> str:
        """Return whose credentials act, and where: "USER on SERVER"."""
        return self._connection.identity()

    def refuse_without_access(self, resources: Iterable[ResourceState]) -> None:
        """Raise StepFailed if this user may not change or delete these objects."""
        allowed: dict[tuple[str, Kind, str, str], bool] = {}
        for resource in resources:
            source = _described(resource)
            location = self._connection.known_location(source)
            if location is None:
                continue
            name = str(source["metadata"]["name"])
            for verb in ("get", "patch", "delete"):
                for right in ((verb, *location, ""), (verb, *location, name)):
                    if right not in allowed:
                        allowed[right] = self._api.may(*right)
                    if allowed[right]:
                        break
                else:
                    raise StepFailed(
                        f"{self.identity()} may not {verb} {location[0].plural} ({resource.id}), "
                        "which the stack has: nothing was changed; run with the kubeconfig of a "
                        "user who may"
                    )

    def check(
        self, urn: str, old: Mapping[str, Any] | None, new: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Fill in the namespace, and a name where the program gives none."""
        inputs = normalised(new)
        metadata = inputs.get("metadata") or {}
        if metadata == UNKNOWN:
            return inputs
        metadata = dict(metadata)
        annotations = metadata.get("annotations") or {}
        if annotations != UNKNOWN:
            timeout_of(annotations, 0.0)
        if "namespace" not in metadata and self._connection.namespaced(inputs):
            metadata["namespace"] = self._connection.default_namespace
        if not metadata.get("name"):
            known = (old or {}).get("metadata") or {}
            if (known.get("annotations") or {}).get(AUTONAMED):
                metadata["name"] = known["name"]
            else:
                metadata["name"] = f"{urn_name(urn).lower()}-{os.urandom(4).hex()}"
            if annotations != UNKNOWN:
                metadata["annotations"] = {**annotations, AUTONAMED: "true"}
        name = str(metadata["name"])
        if name in (".", "..") or {*name} & {*"/%"}:
            raise StepFailed(f"{name!r} is no object's name: `/` and `%` cannot be part of one")
        inputs["metadata"] = metadata
        return inputs

    def diff(self, resource: ResourceState, inputs: Mapping[str, Any]) -> Diff:
        """Compare by value; a fixed name makes a replacement delete first."""
        before = with_recorded_namespace(normalised(resource.inputs), resource.outputs, inputs)
        changed = object_changes(before, inputs)
        replace = replacing_paths(
            before,
            inputs,
            changed,
            config_map=is_true(self._configuration.get("enableConfigMapMutable")),
            secret=is_true(self._configuration.get("enableSecretMutable")),
        )
        moved = any(path in ("metadata.name", "metadata.namespace") for path in changed)
        return Diff(
            changed, replace, before=bool(replace) and not moved and not is_autonamed(inputs)
        )

    def begin(self, inputs: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        """Return "namespace/name" and a field manager that no other object has.

        It is written down before the creation, so that what a cut-off run has made is known
        among all objects of this name that may ever be there.
        """
        manager = f"{self._manager}-{os.urandom(4).hex()}"
        return identity_of(inputs), {"__fieldManager": manager}

    def create(
        self,
        urn: str,
        inputs: Mapping[str, Any],
        initial_outputs: Mapping[str, Any],
        *,
        timeout: float,
    ) -> ProviderResult:
        """Apply a new object and wait until it is ready."""
        manager = str(initial_outputs["__fieldManager"])
        kind, namespace = self._connection.location(inputs)
        name = str(inputs["metadata"]["name"])
        live = self._api.get(kind, namespace, name)
        if live is not None:
            raise exists_already(live)
        applied = self._waiting.until_namespace(
            urn, lambda: self._api.create(kind, namespace, inputs, manager)
        )
        if applied is None:  # created by someone else between the look and the request
            bare = {key: inputs[key] for key in ("apiVersion", "kind")} | {
                "metadata": {"name": name}
            }
            # Gives back what the request has added to it.
            raise exists_already(self._api.apply(kind, namespace, bare, manager))
        return self._ready(urn, kind, namespace, applied, inputs, manager, timeout)

    def preview_create(
        self, urn: str, inputs: Mapping[str, Any], *, replacing: bool
    ) -> ProviderResult:
        """Try a creation; a dry run would meet the object that is to make room."""
        if replacing or has_unknown(inputs):
            return ProviderResult("", previewed(inputs))
        kind, namespace = self._connection.location(inputs)
        live = self._api.get(kind, namespace, inputs["metadata"]["name"])
        if live is not None:
            raise exists_already(live)
        try:
            applied = self._api.apply(kind, namespace, inputs, self._manager, dry_run=True)
        except ApiProblem as problem:
            if problem.status == 404:  # its namespace comes with this run
                return ProviderResult("", previewed(inputs))
            raise
        return ProviderResult("", previewed(applied))

    def update(
        self,
        resource: ResourceState,
        inputs: Mapping[str, Any],
        *,
        timeout: float,
        ignored: tuple[str, ...],
    ) -> ProviderResult:
        """Apply new inputs to an object and wait until it is ready."""
        kind, namespace = self._connection.location(inputs)
        manager = self._manager_of(resource)
        applied = self._applied(resource, inputs, ignored, dry_run=False)
        return self._ready(resource.urn, kind, namespace, applied, inputs, manager, timeout)

    def preview_update(
        self, resource: ResourceState, inputs: Mapping[str, Any], *, ignored: tuple[str, ...]
    ) -> ProviderResult:
        """Try an update."""
        if has_unknown(inputs):
            return ProviderResult(resource.id, {**resource.outputs, **inputs})
        return ProviderResult(resource.id, self._applied(resource, inputs, ignored, dry_run=True))

    def delete(self, resource: ResourceState, *, timeout: float) -> None:
        """Delete an object and wait until it is gone."""
        uid = self.object_key(resource)
        if not uid:
            raise StepFailed(
                f"{resource.id} was recorded without its uid, so it cannot be distinguished "
                "from someone else's object: refresh the stack first"
            )
        obj = resource.outputs
        location = self._connection.known_location(obj)
        if location is None:
            return  # the kind itself is gone, and with it its objects
        patience = patience_of(resource.inputs, timeout)
        annotations = (resource.inputs.get("metadata") or {}).get("annotations") or {}
        # In the foreground a workload is gone when its pods are: they may still need, while they
        # end, what it depends on.
        usual = "foreground" if obj["kind"] in _OWNS_PODS else "background"
        policy = str(annotations.get("pulumi.com/deletionPropagationPolicy", usual))
        name = str(obj["metadata"]["name"])
        self._api.delete(*location, name, policy.capitalize(), uid)
        self._waiting.until_gone(resource.urn, *location, obj, patience)

    def read(self, resource: ResourceState) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """Read the live object."""
        live = self._live(resource)
        if live is None:
            return None
        inputs = normalised(resource.inputs)
        return projected(inputs, resource.outputs, live), {
            **recorded_keys(resource.outputs),
            **live,
        }

    def find(self, pending: ResourceState) -> ResourceState | None:
        """Look for what a cut-off creation has made, by the field manager written down before."""
        location = self._connection.known_location(pending.inputs)
        if location is None:
            return None
        live = self._api.get(*location, str(pending.inputs["metadata"]["name"]))
        if live is None:
            return None
        manager = pending.outputs.get("__fieldManager")
        if manager is None:  # of the official engine, which writes down the name alone
            if not is_autonamed(pending.inputs):
                raise StepFailed(
                    f"{identity_of(pending.inputs)} exists, and whether the interrupted run made "
                    "it cannot be determined: delete it, or remove the pending operation with "
                    "`divvy refresh --clear-pending-creates`"
                )
            manager = f"{CREATOR}-{os.urandom(4).hex()}"
        elif manager not in managers(live):
            return None  # someone else's
        return replace(
            pending,
            id=identity_of(live),
            outputs={**written_down(manager, pending.inputs), **live},
            init_errors=("its creation was interrupted",),
        )

    def drifted(
        self, resource: ResourceState, inputs: Mapping[str, Any], ignored: tuple[str, ...]
    ) -> tuple[str, ...] | None:
        """Compare the live object with the recorded one at the paths the program set."""
        live = self._live(resource)
        if live is None:
            return None
        if live["metadata"].get("deletionTimestamp"):
            raise StepFailed(
                f"{resource.id} is being deleted ({deletion_state(live)}); run "
                "again once it is gone and it will be recreated"
            )
        # What is ignored is as recorded, whatever it is.
        compared = restored(live, ignored, resource.outputs)
        return tuple(drifted_paths(normalised(resource.inputs), resource.outputs, compared))

    def object_name(self, inputs: Mapping[str, Any]) -> str:
        """Return group, kind, namespace and name, "" while they are unknown."""
        if has_unknown(inputs.get("metadata")):
            return ""
        group = str(inputs.get("apiVersion")).rpartition("/")[0]
        return f"{inputs.get('kind')}{'.' if group else ''}{group} {identity_of(inputs)}"

    def object_key(self, resource: ResourceState) -> str:
        """Return the object's uid."""
        return uid_of(resource.outputs)

    def secret_paths(self, inputs: Mapping[str, Any]) -> tuple[str, ...]:
        """Return what of a Secret is secret: its data, and kubectl's copy of it."""
        if inputs.get("kind") != "Secret":
            return ()
        return ("data", "stringData", f'metadata.annotations["{_LAST_APPLIED}"]')

    @property
    def _api(self) -> Api:
        return self._connection.api

    def _ready(
        self,
        urn: str,
        kind: Kind,
        namespace: str,
        applied: dict[str, Any],
        inputs: Mapping[str, Any],
        manager: str,
        timeout: float,
    ) -> ProviderResult:
        """Wait until the object is ready; whatever goes wrong, the object is there.

        Raises StepFailed with what there is.
        """
        patience = patience_of(inputs, timeout)
        live, reason = self._waiting.until_ready(urn, kind, namespace, applied, patience)
        outputs = {**written_down(manager, inputs), **live}
        if reason is not None:
            raise StepFailed(reason, outputs)
        return ProviderResult(identity_of(applied), outputs)

    def _left_alone(
        self, resource: ResourceState, inputs: Mapping[str, Any], ignored: tuple[str, ...]
    ) -> Mapping[str, Any]:
        """Return inputs with the live values of what is ignored: to apply them changes nothing."""
        live = self._live(resource) if ignored else None
        if live is None:
            return inputs
        applied: dict[str, Any] = restored(dict(inputs), ignored, live)
        metadata = applied.get("metadata") or {}
        own = {key: metadata[key] for key in _OWN_METADATA if key in metadata}
        applied.pop("status", None)
        return {**applied, "metadata": {**own, "name": inputs["metadata"]["name"]}}

    def _manager_of(self, resource: ResourceState) -> str:
        # What an official run made keeps its manager, so that removed fields are ours to remove.
        return str(resource.outputs.get("__fieldManager") or self._manager)

    def _applied(
        self,
        resource: ResourceState,
        inputs: Mapping[str, Any],
        ignored: tuple[str, ...],
        *,
        dry_run: bool,
    ) -> dict[str, Any]:
        """Apply inputs, taking over fields of the official engine's creator and of kubectl."""
        manager = self._manager_of(resource)
        kind, namespace = self._connection.location(inputs)
        force = is_forced(inputs)
        if manager.startswith(CREATOR):
            # A dry run cannot hand the fields over before it applies.
            force |= self._take_over(resource, manager, from_creator, dry_run=dry_run) and dry_run
        wanted = self._left_alone(resource, inputs, ignored)

        def apply(*, force: bool) -> dict[str, Any]:
            return self._api.apply(kind, namespace, wanted, manager, force=force, dry_run=dry_run)

        try:
            applied = apply(force=force)
            edited = ", ".join(longer_lists(wanted, applied))
            if not edited or from_kubectl(managed_fields(applied), manager) is None:
                return applied
        except Conflict as conflict:
            if not by_kubectl(conflict.owners):
                others = {
                    field: owner
                    for field, owner in conflict.owners.items()
                    if not by_kubectl({field: owner})
                }
                raise Conflict(conflict_text(others), others) from None
            edited = ", ".join(sorted(conflict.owners))
        except ApiProblem as problem:
            # An entry that kubectl has added to a list may be in the way of the program's own.
            live = self._live(resource)
            if (
                problem.status != INVALID
                or live is None
                or from_kubectl(managed_fields(live), manager) is None
            ):
                raise _naming_replacement(problem) from None
            edited = "its fields"
        self._report(resource.urn, f"takes {edited} over from kubectl")
        self._take_over(resource, manager, from_kubectl, dry_run=dry_run)
        try:
            return apply(force=True)
        except ApiProblem as problem:
            if dry_run and problem.status == INVALID:
                return previewed(inputs)  # only the takeover itself would remove the entry
            raise _naming_replacement(problem) from None

    def _take_over(
        self,
        resource: ResourceState,
        manager: str,
        handed_over: Callable[[Sequence[Mapping[str, Any]], str], list[dict[str, Any]] | None],
        *,
        dry_run: bool,
    ) -> bool:
        """Give other managers' fields to ``manager``; tell whether there are any."""
        for attempt in range(1, _TRIES + 1):
            live = self._live(resource)
            managed = None if live is None else handed_over(managed_fields(live), manager)
            if live is None or managed is None:
                return False
            if dry_run:
                break
            try:
                self._api.set_managers(*self._connection.location(live), live, managed)
                break
            except ApiProblem as problem:  # a controller has written its status since the look
                if problem.status != CONFLICT or attempt == _TRIES:
                    raise
        return True

    def _live(self, resource: ResourceState) -> dict[str, Any] | None:
        """Return the live object, None if it is gone, or another one has its name."""
        source = _described(resource)
        location = self._connection.known_location(source)
        if location is None:
            return None
        live = self._api.get(*location, str(source["metadata"]["name"]))
        known = self.object_key(resource)
        return None if live is not None and known not in ("", uid_of(live)) else live


def _described(resource: ResourceState) -> Mapping[str, Any]:
    """Return the recorded object; its inputs where its creation was not seen to end."""
    return resource.outputs if "metadata" in resource.outputs else resource.inputs


def _naming_replacement(problem: ApiProblem) -> ApiProblem:
    """Add to the refusal of a field that never changes how the object can be replaced."""
    if problem.status != INVALID or not _NEVER_CHANGES.search(str(problem)):
        return problem
    return ApiProblem(
        f"{problem}. This field never changes: delete the object and run again, and it will be "
        "recreated",
        problem.status,
    )
