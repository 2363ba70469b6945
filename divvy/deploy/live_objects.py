"""The objects of a release in the cluster: what an apply would change, and what is left over."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

from divvy.deploy.changes import (
    Action,
    Change,
    ObjectName,
    Release,
    as_released,
    is_pulumis,
    owner,
    update_of,
)
from divvy.kube.client import Client
from divvy.kube.errors import CONFLICT, FORBIDDEN, NOT_FOUND, ApiError, Unreachable
from divvy.kube.media_types import APPLY, JSON_PATCH
from divvy.model.api_names import is_divvys
from divvy.model.nvidia_claims import CLASSES

# Helm 4's field manager for server-side apply.
_MANAGER = "helm"
_AT_ONCE = 8


@dataclass(frozen=True)
class Preview:
    """What a deployment would do.

    ``problems`` keep it from being done, ``unknown`` is what cannot be foreseen, ``others`` have
    deployed a Divvy here that can be taken over.
    """

    changes: tuple[Change, ...] = ()
    unchanged: int = 0
    others: frozenset[str] = frozenset()
    problems: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()

    def __add__(self, other: Preview) -> Preview:
        return Preview(
            (*self.changes, *other.changes),
            self.unchanged + other.unchanged,
            self.others | other.others,
            tuple(dict.fromkeys((*self.problems, *other.problems))),
            tuple(dict.fromkeys((*self.unknown, *other.unknown))),
        )


def preview_objects(
    client: Client,
    release: Release,
    desired: Sequence[Mapping[str, Any]],
    gone: Iterable[ObjectName],
    *,
    take_over: bool,
    namespace_exists: bool,
) -> Preview:
    """Compare objects with the cluster by a dry run of server-side apply, as Helm's user."""

    def preview(obj: Mapping[str, Any]) -> Preview:
        is_tried = namespace_exists or not obj["metadata"].get("namespace")
        return _preview(client, release, obj, take_over=take_over, is_tried=is_tried)

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        previews = [*pool.map(preview, desired)]
        previews += pool.map(partial(_preview_of_gone, client, release), gone)
    return sum(previews, Preview())


def _preview(
    client: Client, release: Release, obj: Mapping[str, Any], *, take_over: bool, is_tried: bool
) -> Preview:
    name, wanted = ObjectName.of(obj), as_released(obj, release)
    creation = Preview((Change(Action.CREATE, name),))
    try:
        live = _find_served(client, name)
        if live is not None and not release.owns(live):
            is_given = take_over and _is_nvidias(name, live)
            problem = "" if is_given else _why_not_taken_over(name, live, release)
            if problem:
                return Preview(problems=(problem,))
            if not take_over:
                return Preview(others=frozenset((whose(live),)))
        if not is_tried:  # its namespace is not there yet
            return creation
        try:
            applied, managers = _applied(client, name.path, wanted)
        except ApiError as error:
            # A binding cannot be tried while its role is not there yet.
            if live is None and error.code == NOT_FOUND and error.body:
                return creation
            raise
    except ApiError as error:
        return refused(name, error)
    except Unreachable as error:
        if not error.waited:
            raise
        problem = f"the cluster does not say in time what it makes of {name}: is a webhook slow?"
        return Preview(problems=(problem,))
    if live is None:
        return creation
    change = update_of(live, applied, managers)
    return Preview((change,)) if change else Preview(unchanged=1)


def _find_served(client: Client, name: ObjectName) -> dict[str, Any] | None:
    """Return an object, None if it does not exist; raises ApiError if its kind does not."""
    try:
        live: dict[str, Any] = client.get(name.path)
    except ApiError as error:
        # Of a kind that is not served, the server says 404 without a Status.
        if error.code == NOT_FOUND and error.body:
            return None
        raise
    return live


def served_kinds(client: Client, api_versions: Iterable[str]) -> set[tuple[str, str]]:
    """Return the kinds that the cluster serves in API versions, as (API version, kind).

    A version is not served only where the server's list of all versions is without it.
    """
    groups = client.get("/apis")["groups"]
    listed = {version["groupVersion"] for group in groups for version in group["versions"]}
    served = set()
    for version in {"v1"} | listed & set(api_versions):
        resources = client.get(f"/apis/{version}" if "/" in version else "/api/v1")["resources"]
        served |= {(version, resource["kind"]) for resource in resources}
    return served


def _is_nvidias(name: ObjectName, live: Mapping[str, Any]) -> bool:
    """Return whether an object is a class of NVIDIA's driver that no Divvy has taken over."""
    return name.kind == "DeviceClass" and name.name in CLASSES and not is_divvys(live)


def _why_not_taken_over(name: ObjectName, live: Mapping[str, Any], release: Release) -> str:
    """Return why an object is never taken over, "" if it may be."""
    if _is_nvidias(name, live):
        return (
            f"{name} exists (made by {whose(live)}), and `names.classes` makes it Divvy's: take it "
            "over with --take-over, and it has the devices of both drivers; no claim changes"
        )
    if not is_divvys(live):
        return (
            f"{name} exists and is not Divvy's (made by {whose(live)}): nothing is taken over; "
            "rename it, or choose another `namespace`"
        )
    other = owner(live)
    if other is None or other.namespace == release.namespace:
        return ""
    # Helm would still uninstall it there.
    return (
        f"{name} belongs to {whose(live)}: nothing is taken over; set `namespace` to that one to "
        "go on with it, or destroy it there first"
    )


def _preview_of_gone(client: Client, release: Release, name: ObjectName) -> Preview:
    try:
        is_left = any_owned(client, release, [name])
    except ApiError as error:
        return Preview(unknown=(f"whether {name} is left behind is not known: {error}",))
    return Preview((Change(Action.DELETE, name),)) if is_left else Preview()


def _applied(
    client: Client, path: str, obj: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return what an apply would make of an object, and whose fields it would overwrite."""
    query = {"fieldManager": _MANAGER, "dryRun": "All"}
    try:
        return client.request("PATCH", path, obj, kind=APPLY, query=query), {}
    except ApiError as error:
        managers = dict(_conflicts(error.body))
        if error.code != CONFLICT or not managers:
            raise
    query["force"] = "true"
    return client.request("PATCH", path, obj, kind=APPLY, query=query), managers


def _conflicts(body: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield field and manager of each conflict; the manager is quoted in the message."""
    for cause in (body.get("details") or {}).get("causes") or ():
        if cause.get("reason") == "FieldManagerConflict":
            manager = str(cause.get("message")).split('"')
            yield str(cause.get("field")), manager[1] if len(manager) > 1 else "unknown"


def refused(name: ObjectName, error: ApiError) -> Preview:
    """Return the preview of an object that the API server refuses, also in a dry run."""
    if error.code == NOT_FOUND and not error.body:
        problem = f"the cluster has no {name.kind} ({name.api_version}), which {name} is"
    elif error.code == FORBIDDEN:
        problem = f"this user may not deploy {name}: {error}"
    elif "dry run" in str(error) or "dryRun" in str(error):
        return Preview(unknown=(f"what changes in {name} is not known: {error}",))
    else:
        problem = f"the cluster refuses {name}: {error}"
    return Preview(problems=(problem,))


def whose(live: Mapping[str, Any]) -> str:
    """Return who has made an object of the API, in words."""
    release = owner(live)
    if release is not None:
        return f"Helm's release {release.name} in namespace {release.namespace or '(none)'}"
    if is_pulumis(live):
        return "Pulumi"
    makers = (str(entry.get("manager")) for entry in live["metadata"].get("managedFields") or ())
    return next(makers, "unknown")


def delete_owned(client: Client, release: Release, names: Iterable[ObjectName]) -> list[ObjectName]:
    """Delete objects that still belong to a release; return which were there."""
    deleted = []
    for name in names:
        live = _owned(client, release, name)
        if live is None:
            continue
        body = {
            "propagationPolicy": "Background",
            "preconditions": {"uid": live["metadata"]["uid"]},
        }
        try:
            client.request("DELETE", name.path, body)
        except ApiError as error:
            if error.code not in (NOT_FOUND, CONFLICT):
                raise
        deleted.append(name)
    return deleted


def any_owned(client: Client, release: Release, names: Iterable[ObjectName]) -> bool:
    """Return whether one of these objects exists and belongs to a release."""
    return any(_owned(client, release, name) for name in names)


def _owned(client: Client, release: Release, name: ObjectName) -> dict[str, Any] | None:
    live = client.find(name.path)
    return live if live is not None and release.owns(live) else None


def create_missing(client: Client, release: Release, obj: Mapping[str, Any]) -> None:
    """Create an object that the cluster lacks as Helm would, so that the release adopts it."""
    path = ObjectName.of(obj).path
    if client.find(path) is None:
        query = {"fieldManager": _MANAGER, "force": "true"}
        client.request("PATCH", path, as_released(obj, release), kind=APPLY, query=query)


def forget_manager(client: Client, objects: Iterable[Mapping[str, Any]], prefix: str) -> None:
    """Leave the fields of an earlier manager to the others.

    A field with two managers stays when the one that still applies it leaves it out.
    """
    for obj in objects:
        name = ObjectName.of(obj)
        live = client.find(name.path)
        managed = ((live or {}).get("metadata") or {}).get("managedFields") or []
        kept = [entry for entry in managed if not str(entry.get("manager")).startswith(prefix)]
        if live is None or kept == managed:
            continue
        version = live["metadata"]["resourceVersion"]
        patch = [
            {"op": "test", "path": "/metadata/resourceVersion", "value": version},
            {"op": "replace", "path": "/metadata/managedFields", "value": kept},
        ]
        client.request("PATCH", name.path, patch, kind=JSON_PATCH)
