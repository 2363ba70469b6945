"""Make, change, read and delete Kubernetes objects for the engine."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from divvy.engine.errors import StepFailed
from divvy.engine.kubernetes.annotations import (
    AUTONAMED,
    check_supported,
    is_autonamed,
    is_forced,
    is_true,
)
from divvy.engine.kubernetes.api import Api, ApiProblem, Kind
from divvy.engine.kubernetes.compare import (
    drifted_paths,
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
from divvy.engine.kubernetes.takeover import CREATOR, handed_over
from divvy.engine.kubernetes.waiting import Waiting, deletion_state
from divvy.engine.property_path import restored
from divvy.engine.provider import Diff, ProviderResult
from divvy.engine.state.resource import ResourceState
from divvy.engine.urn import urn_name
from divvy.engine.values import UNKNOWN, has_unknown

_OWN_METADATA = ("name", "namespace", "labels", "annotations", "finalizers", "ownerReferences")
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_MAX_MANAGER = 128


@contextmanager
def _naming_replacement() -> Iterator[None]:
    """Say with a refused change how the object can be replaced: only the program may want that."""
    try:
        yield
    except ApiProblem as problem:
        if problem.status != 422:
            raise
        raise ApiProblem(
            f"{problem}. If this field can never change, an object with another value is made by "
            "the options replace_on_changes=[its path] and delete_before_replace=True",
            problem.status,
        ) from None


class KubernetesProvider:
    """Provider for the objects of one cluster.

    ``configuration`` are the provider resource's inputs (kubeconfig, context,
    namespace, enableConfigMapMutable …); ``recorded`` is the cluster that it had
    before, as ``cluster`` told it; ``told`` hears what is being waited for.
    """

    def __init__(
        self,
        configuration: Mapping[str, Any],
        manager: str,
        told: Callable[[str, str], None],
        recorded: Mapping[str, str],
    ) -> None:
        self._configuration = configuration
        self._manager = manager
        self._connection = Connection(configuration, recorded)
        self._waiting = Waiting(self._connection, told)
        self._definitions_made = False

    def warm(self) -> None:
        """Connect while the program is still being read."""
        self.cluster()

    def cancel(self) -> None:
        """End every waiting."""
        self._waiting.cancel()

    def close(self) -> None:
        """Close the connection to the cluster."""
        self._connection.close()

    def cluster(self) -> Mapping[str, str]:
        """Return the cluster's uid ("" where this user may not see it) and its server's URL."""
        return self._connection.cluster()

    def check(
        self, urn: str, old: Mapping[str, Any] | None, new: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Fill in the namespace, and a name where the program gives none."""
        inputs = normalised(new)
        metadata = inputs.get("metadata") or {}
        if metadata == UNKNOWN:
            return inputs
        metadata = dict(metadata)
        check_supported(urn, inputs, metadata)
        if "namespace" not in metadata and self._connection.namespaced(inputs):
            metadata["namespace"] = self._connection.default_namespace
        if not metadata.get("name"):
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
        manager = f"{self._manager[: _MAX_MANAGER - 9]}-{os.urandom(4).hex()}"
        return identity_of(inputs), {"__fieldManager": manager}

    def create(
        self, urn: str, inputs: Mapping[str, Any], begun: Mapping[str, Any], *, timeout: float
    ) -> ProviderResult:
        """Apply a new object and wait until it is ready."""
        manager = str(begun["__fieldManager"])
        if self._definitions_made:
            kind, namespace = self._waiting.until_served(inputs)
        else:
            kind, namespace = self._connection.location(inputs)
        live = self._api.get(kind, namespace, inputs["metadata"]["name"])
        if live is not None:
            raise exists_already(live)
        applied = self._api.create(kind, namespace, inputs, manager)
        if applied is None:  # somebody has made it between the look and the request
            raise exists_already(
                self._api.get(kind, namespace, inputs["metadata"]["name"]) or inputs
            )
        result = self._ready(urn, kind, namespace, applied, inputs, manager, timeout)
        if inputs.get("kind") == "CustomResourceDefinition":
            self._definitions_made = True
        return result

    def preview_create(
        self, urn: str, inputs: Mapping[str, Any], *, replacing: bool
    ) -> ProviderResult:
        """Try a creation; a dry run would meet the object that is to make room."""
        if replacing or has_unknown(inputs):
            return ProviderResult("", previewed(inputs))
        try:
            kind, namespace = self._connection.location(inputs)
            live = self._api.get(kind, namespace, inputs["metadata"]["name"])
            if live is not None:
                raise exists_already(live)
            applied = self._api.apply(kind, namespace, inputs, self._manager, dry_run=True)
        except ApiProblem as problem:
            if problem.status == 404:  # its namespace or kind comes with this run
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
        # What an official run made keeps its manager, so that removed fields are ours to remove.
        manager = str(resource.outputs.get("__fieldManager") or self._manager)
        if manager.startswith(CREATOR):
            self._take_over(resource, manager)
        with _naming_replacement():
            applied = self._api.apply(
                kind,
                namespace,
                self._left_alone(resource, inputs, ignored),
                manager,
                force=is_forced(inputs),
            )
        return self._ready(resource.urn, kind, namespace, applied, inputs, manager, timeout)

    def preview_update(
        self, resource: ResourceState, inputs: Mapping[str, Any], *, ignored: tuple[str, ...]
    ) -> ProviderResult:
        """Try an update."""
        if has_unknown(inputs):
            return ProviderResult(resource.id, {**resource.outputs, **inputs})
        manager = str(resource.outputs.get("__fieldManager") or self._manager)
        force = is_forced(inputs) or (
            manager.startswith(CREATOR) and self._handed_over(resource, manager) is not None
        )
        try:
            kind, namespace = self._connection.location(inputs)
            with _naming_replacement():
                applied = self._api.apply(
                    kind,
                    namespace,
                    self._left_alone(resource, inputs, ignored),
                    manager,
                    force=force,
                    dry_run=True,
                )
        except ApiProblem as problem:
            if problem.status == 404:  # its kind in this version comes with this run
                return ProviderResult(resource.id, previewed(inputs))
            raise
        return ProviderResult(resource.id, applied)

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
        annotations = obj["metadata"].get("annotations") or {}
        policy = str(annotations.get("pulumi.com/deletionPropagationPolicy", "background"))
        name = str(obj["metadata"]["name"])
        self._api.delete(*location, name, policy.capitalize(), uid)
        self._waiting.until_gone(resource.urn, *location, obj, timeout)

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

    def lookup(self, resource: ResourceState) -> dict[str, Any] | None:
        """Read an object by its id, "namespace/name" or "name"."""
        namespace, _, name = resource.id.rpartition("/")
        group, kind = resource.type.removeprefix("kubernetes:").split(":")
        known = self._api.kind(group.removeprefix("core/"), kind)
        place = (namespace or self._connection.default_namespace) if known.namespaced else ""
        return self._api.get(known, place, name)

    def find(self, begun: ResourceState) -> ResourceState | None:
        """Look for what a cut-off creation has made, by the field manager written down before."""
        location = self._connection.known_location(begun.inputs)
        if location is None:
            return None
        live = self._api.get(*location, str(begun.inputs["metadata"]["name"]))
        if live is None:
            return None
        manager = begun.outputs.get("__fieldManager")
        if manager is None:  # of the official engine, which writes down the name alone
            if not is_autonamed(begun.inputs):
                raise StepFailed(
                    f"{identity_of(begun.inputs)} exists, and whether the interrupted run made "
                    "it cannot be determined: delete it, or remove the pending operation with "
                    "`divvy refresh --clear-pending-creates`"
                )
            manager = f"{CREATOR}-{os.urandom(4).hex()}"
        elif manager not in managers(live):
            return None  # somebody else's
        return replace(
            begun,
            id=identity_of(live),
            outputs={**written_down(manager, begun.inputs), **live},
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
                f"{resource.id} is being deleted from outside, {deletion_state(live)}: run again "
                "when it is gone, and it is made again"
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
        live, reason = self._waiting.until_ready(urn, kind, namespace, applied, timeout)
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

    def _handed_over(self, resource: ResourceState, manager: str) -> tuple[Any, Any] | None:
        live = self._live(resource)
        managed = None if live is None else handed_over(managed_fields(live), manager)
        return None if managed is None else (live, managed)

    def _take_over(self, resource: ResourceState, manager: str) -> None:
        """Give the official creator's fields to ``manager``."""
        fields = self._handed_over(resource, manager)
        if fields is not None:
            live, managed = fields
            self._api.set_managers(*self._connection.location(live), live, managed)

    def _live(self, resource: ResourceState) -> dict[str, Any] | None:
        """Return the live object, None where it is gone, or another one has its name."""
        source = resource.outputs if "metadata" in resource.outputs else resource.inputs
        location = self._connection.known_location(source)
        if location is None:
            return None
        live = self._api.get(*location, str(source["metadata"]["name"]))
        known = self.object_key(resource)
        return None if live is not None and known not in ("", uid_of(live)) else live
