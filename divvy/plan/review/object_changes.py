"""Compares the Kubernetes objects of two stack files: what is new, and what a reviewer must know.

The objects are plain values, as ``divvy.render.objects.cluster`` returns them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from divvy.model.kubernetes_support import SHARES_SINCE

Object = Mapping[str, Any]
_POLICIES = {
    "MutatingAdmissionPolicy": "change",
    "ValidatingAdmissionPolicy": "refuse",
}
_WORKLOADS = frozenset({"DaemonSet", "Deployment"})
_HOST_NAMESPACES = ("hostPID", "hostNetwork", "hostIPC")


@dataclass(frozen=True)
class ObjectChanges:
    """The objects that a change creates, deletes and updates, as ``Kind name``, sorted.

    ``restarted`` are those whose pods restart. ``effects`` are sentences on what the objects change
    beside the topology: pods that restart, new rights, admission policies, a newer Kubernetes.
    """

    created: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    updated: tuple[str, ...] = ()
    restarted: tuple[str, ...] = ()
    effects: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.created or self.deleted or self.updated)


NO_OBJECTS = ObjectChanges()


def object_changes(before: Iterable[Object], after: Iterable[Object]) -> ObjectChanges:
    """Compare all objects of two stack files."""
    older, newer = _by_name(before), _by_name(after)
    both = older.keys() & newer.keys()
    restarted = _restarted(older, newer)
    return ObjectChanges(
        created=tuple(sorted(newer.keys() - older.keys())),
        deleted=tuple(sorted(older.keys() - newer.keys())),
        updated=tuple(sorted(name for name in both if older[name] != newer[name])),
        restarted=restarted,
        effects=(
            *_moves(older, newer),
            *([f"pods of Divvy restart: {', '.join(restarted)}"] if restarted else ()),
            *_host_access(older, newer),
            *_rights(older, newer),
            *_admission(older, newer),
            *_floor(older, newer),
        ),
    )


def _by_name(objects: Iterable[Object]) -> dict[str, Object]:
    return {f"{value['kind']} {value['metadata']['name']}": value for value in objects}


def _pod(workload: Object) -> Mapping[str, Any]:
    return dict(workload["spec"]["template"]["spec"])


def _moves(older: Mapping[str, Object], newer: Mapping[str, Object]) -> Iterator[str]:
    moves = {
        (_namespace(older[name]), _namespace(newer[name])) for name in older.keys() & newer.keys()
    }
    for before, after in sorted(moves):
        if before != after:
            yield f"Divvy moves from namespace {before} to {after}: its objects are created there"


def _namespace(value: Object) -> str:
    return str(value["metadata"].get("namespace", ""))


def _restarted(older: Mapping[str, Object], newer: Mapping[str, Object]) -> tuple[str, ...]:
    names = (
        name
        for name in older.keys() & newer.keys()
        if newer[name]["kind"] in _WORKLOADS
        and (
            older[name]["spec"]["template"] != newer[name]["spec"]["template"]
            or _namespace(older[name]) != _namespace(newer[name])
        )
    )
    return tuple(sorted(names))


def _host_access(older: Mapping[str, Object], newer: Mapping[str, Object]) -> Iterator[str]:
    for name, value in sorted(newer.items()):
        if value["kind"] not in _WORKLOADS:
            continue
        gained = _access(value) - (_access(older[name]) if name in older else Counter())
        if gained:
            yield f"{name} sees more of its host: {', '.join(sorted(gained))}"


def _access(workload: Object) -> Counter[str]:
    """Return what of the host the pods of a workload reach."""
    pod = _pod(workload)
    access = Counter(name for name in _HOST_NAMESPACES if pod.get(name))
    for volume in pod.get("volumes", ()):
        if "hostPath" in volume:
            access[str(volume["hostPath"]["path"])] = 1
    for container in (*pod.get("initContainers", ()), *pod["containers"]):
        if container.get("securityContext", {}).get("privileged"):
            access["privileged"] = 1
    return access


def _rights(older: Mapping[str, Object], newer: Mapping[str, Object]) -> Iterator[str]:
    for name, value in sorted(newer.items()):
        if value["kind"] not in ("ClusterRole", "Role"):
            continue
        gained = _granted(value) - (_granted(older[name]) if name in older else frozenset())
        verbs: dict[str, list[str]] = {}
        for resource, verb in sorted(gained):
            verbs.setdefault(resource, []).append(verb)
        if verbs:
            words = "; ".join(f"{', '.join(names)} {what}" for what, names in verbs.items())
            yield f"{name} gains the rights: {words}"


def _granted(role: Object) -> frozenset[tuple[str, str]]:
    return frozenset(
        (resource, verb)
        for rule in role["rules"]
        for resource in rule.get("resources", ())
        for verb in rule["verbs"]
    )


def _admission(older: Mapping[str, Object], newer: Mapping[str, Object]) -> Iterator[str]:
    for kind, verb in _POLICIES.items():
        created = [
            str(value["metadata"]["name"])
            for name, value in newer.items()
            if value["kind"] == kind and name not in older
        ]
        for names, whose in (
            ([name for name in created if _sees_pods(newer[f"{kind} {name}"])], "pods"),
            ([name for name in created if not _sees_pods(newer[f"{kind} {name}"])], "objects"),
        ):
            if names:
                where = " of every namespace" if whose == "pods" else ""
                yield (
                    f"new admission policies that can {verb} {whose}{where}: "
                    f"{', '.join(sorted(names))}"
                )


def _sees_pods(policy: Object) -> bool:
    rules: Sequence[Mapping[str, Any]] = policy["spec"]["matchConstraints"]["resourceRules"]
    return any("pods" in rule["resources"] for rule in rules)


def _floor(older: Mapping[str, Object], newer: Mapping[str, Object]) -> Iterator[str]:
    if _has_claims(newer) and not _has_claims(older):
        least = ".".join(map(str, SHARES_SINCE))
        yield f"Kubernetes {least} or newer is needed, for claims"


def _has_claims(objects: Mapping[str, Object]) -> bool:
    return any(value["kind"] == "DeviceClass" for value in objects.values())
