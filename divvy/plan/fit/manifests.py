"""Reads the pods of manifests: what is wrong with them at once, each with its place."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import islice
from typing import Any

from divvy.model import Cluster, InvalidValue, Problem
from divvy.model.problems import Keys, printable, problem, value_text
from divvy.model.quantities import parse_quantity
from divvy.plan.fit.pods import Around, AskingPod, asking_pod, claims_by_name
from divvy.plan.fit.shape import CLAIM_SPEC, META, POD_META, POD_SPEC, shape_problems
from divvy.plan.pod_requests import quantities

# Where each kind keeps its pod.
_PODS: Mapping[str, tuple[str, ...]] = {
    "Pod": (),
    "PodTemplate": ("template",),
    "Deployment": ("spec", "template"),
    "ReplicaSet": ("spec", "template"),
    "ReplicationController": ("spec", "template"),
    "StatefulSet": ("spec", "template"),
    "DaemonSet": ("spec", "template"),
    "Job": ("spec", "template"),
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
}
_ROOT = "the document"
_CLOSE = 0.8
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./-]*", re.ASCII)
# More than clusters have; what goes beyond it is repeated by YAML aliases, or is a typing error.
_MAX_OBJECTS, _MAX_LISTS, _MAX_PODS = 100_000, 10, 1_000_000


@dataclass(frozen=True)
class Document:
    """One document of a file: ``source`` says which, for errors."""

    source: str
    value: Any


@dataclass(frozen=True)
class Manifests:
    """The pods of some manifests in their order, and kinds that were not looked at."""

    pods: tuple[AskingPod, ...]
    notes: tuple[str, ...]


def read_manifests(
    documents: Sequence[Document], cluster: Cluster, around: Around | None = None
) -> Manifests:
    """Read pods, and what makes pods; ``around`` is what is known beside the documents.

    Raises InvalidValue with every problem, its path beginning with the document's source.
    """
    problem = (obj for document in documents for obj in _objects(document))
    objects = list(islice(problem, _MAX_OBJECTS + 1))
    if len(objects) > _MAX_OBJECTS:
        reason = f"are more than {_MAX_OBJECTS:,} objects: are YAML aliases repeated?"
        raise InvalidValue([Problem(objects[-1].source.partition(",")[0], reason)])
    problems = [problem for obj in objects for problem in _problems(obj)]
    if problems:
        raise InvalidValue(problems)
    known = _around(objects, around)
    pods, other = [], []
    for obj in objects:
        kind = obj.value["kind"]
        if kind in _PODS:
            pods.append(_pod(obj.value, cluster, known))
        elif isinstance(_at(obj.value, ("spec", "template", "spec"))[0], Mapping):
            other.append(f"not looked at: {obj.source}, a {printable(kind)}, which makes pods")
    if not pods:
        kinds = ", ".join(_PODS)
        where = ", ".join(dict.fromkeys(obj.source.partition(":")[0] for obj in documents))
        reason = f"has no pods; fit reads {kinds}, and a List of them"
        raise InvalidValue([Problem(where or "the file", reason)])
    return Manifests(tuple(pods), tuple(other))


def _objects(document: Document, lists: int = 0) -> Iterator[Document]:
    """Yield the objects of a document: a List holds several; an empty document none.

    ``lists`` are those that it is in. Raises InvalidValue.
    """
    value = document.value
    if value is None:
        return
    if isinstance(value, Mapping) and str(value.get("kind", "")).endswith("List"):
        items = value.get("items")
        if isinstance(items, list):
            if lists == _MAX_LISTS:
                reason = f"is a List in {_MAX_LISTS} others: does it hold itself?"
                raise InvalidValue([Problem(document.source, reason)])
            for number, item in enumerate(items):
                inner = Document(f"{document.source}, items[{number}]", item)
                yield from _objects(inner, lists + 1)
            return
    yield document


def _problems(document: Document) -> Iterator[Problem]:
    value = document.value
    problems: list[Problem] = []
    if not isinstance(value, Mapping):
        problems.append(
            problem((), f"is {value_text(value)}; a Kubernetes object is expected", root=_ROOT)
        )
    elif not isinstance(value.get("kind"), str):
        reason = f"is {value_text(value.get('kind'))}; a kind such as Pod or Deployment is expected"
        problems.append(problem(("kind",), reason))
    elif value["kind"] in _PODS:
        problems += _object_problems(value)
    else:
        close = get_close_matches(value["kind"], _PODS, n=1, cutoff=_CLOSE)
        if close:
            reason = f"is {value_text(value['kind'])}"
            problems.append(problem(("kind",), reason, f"did you mean {close[0]}?"))
        problems += shape_problems(("metadata",), value.get("metadata"), META)
        problems += _claim_problems(value)
    for object_problem in problems:
        yield Problem(
            f"{document.source}: {object_problem.path}",
            object_problem.reason,
            object_problem.remedy,
            object_problem.keys,
        )


def _object_problems(value: Mapping[str, Any]) -> Iterator[Problem]:
    keys = _PODS[value["kind"]]
    for key in ("replicas", "parallelism", "completions"):
        place = (*keys[:-1], key)
        number = _at(value, place)[0] if keys else None
        if number is not None and not _is_number(number):
            yield problem(place, f"is {value_text(number)}; a number such as 3 is expected")
        elif number is not None and number > _MAX_PODS:
            yield problem(place, f"is {number}; {_MAX_PODS:,} at most are looked at")
    yield from shape_problems(("metadata",), value.get("metadata"), POD_META)
    yield from shape_problems((*keys, "metadata"), _at(value, (*keys, "metadata"))[0], POD_META)
    spec, at = _at(value, (*keys, "spec"))
    if not isinstance(spec, Mapping):
        yield problem(at, f"is {value_text(spec)}; a mapping with `containers` is expected")
        return
    problems = list(shape_problems(at, spec, POD_SPEC))
    if not spec.get("containers"):
        reason = f"is {value_text(spec.get('containers'))}; one container or more are expected"
        problems.append(problem((*at, "containers"), reason))
    yield from problems
    if problems:
        return
    for key in ("containers", "initContainers"):
        for number, container in enumerate(spec.get(key) or ()):
            yield from _resources_problems(
                (*at, key, number, "resources"), container.get("resources")
            )
    yield from _resources_problems((*at, "resources"), spec.get("resources"))
    yield from _quantities_problems((*at, "overhead"), spec.get("overhead"))


def _claim_problems(value: Mapping[str, Any]) -> Iterator[Problem]:
    keys = {"ResourceClaim": ("spec",), "ResourceClaimTemplate": ("spec", "spec")}.get(
        value["kind"]
    )
    if keys is None:
        return
    spec = _at(value, keys)[0]
    if not isinstance(spec, Mapping):
        yield problem(keys, f"is {value_text(spec)}; a mapping with `devices` is expected")
        return
    problems = list(shape_problems(keys, spec, CLAIM_SPEC))
    yield from problems
    requests = () if problems else (spec.get("devices") or {}).get("requests") or ()
    for number, request in enumerate(requests):
        at: Keys = (*keys, "devices", "requests", number)
        if request.get("exactly"):
            yield from _device_problems((*at, "exactly"), request["exactly"])
        for place, other in enumerate(request.get("firstAvailable") or ()):
            yield from _device_problems((*at, "firstAvailable", place), other)


def _device_problems(keys: Keys, request: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield what is wrong with a request of a claim; its shape is right."""
    if not request.get("deviceClassName"):
        yield problem((*keys, "deviceClassName"), "is empty; a class such as divvy-gpu is expected")
    if (request.get("count") or 1) < 1:
        yield problem((*keys, "count"), f"is {request['count']}; 1 or more is expected")
    sizes = (request.get("capacity") or {}).get("requests")
    yield from _quantities_problems((*keys, "capacity", "requests"), sizes)
    for number, selector in enumerate(request.get("selectors") or ()):
        if "cel" in selector and not (selector["cel"] or {}).get("expression"):
            place = (*keys, "selectors", number, "cel", "expression")
            yield problem(place, "is empty; an expression is expected")


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _resources_problems(keys: Keys, resources: Mapping[str, Any] | None) -> Iterator[Problem]:
    sides = {side: (resources or {}).get(side) or {} for side in ("limits", "requests")}
    problems = [
        quantity_problem
        for side, named in sides.items()
        for quantity_problem in _quantities_problems((*keys, side), named)
    ]
    yield from problems
    if problems:
        return
    limits, requests = quantities(sides["limits"]), quantities(sides["requests"])
    for name, number in requests.items():
        if "/" in name and limits.get(name) != number:
            reason = "is not what the limit says; Kubernetes requires them to be equal"
            remedy = "leave it out of requests, and write the limit alone"
            yield problem((*keys, "requests", name), reason, remedy)


def _quantities_problems(keys: Keys, named: Mapping[Any, Any] | None) -> Iterator[Problem]:
    for name, quantity in (named or {}).items():
        place = (*keys, str(name))
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            yield problem(place, "is not a resource name; one such as nvidia.com/gpu is expected")
            continue
        try:
            number = parse_quantity(quantity)
        except ValueError as error:
            yield problem(place, str(error))
            continue
        if number < 0:
            yield problem(place, f"is {value_text(quantity)}; 0 or more is expected")
        elif "/" in name and number.denominator != 1:
            reason = (
                f"is {value_text(quantity)}; a whole number is expected: devices are not divided"
            )
            yield problem(place, reason)


def _at(value: object, keys: Keys) -> tuple[Any, Keys]:
    """Return what is below some keys, None with the first keys that lead nowhere."""
    for number, key in enumerate(keys):
        if not isinstance(value, Mapping):
            return None, keys[:number]
        value = value.get(key)
    return value, keys


def _around(objects: Sequence[Document], more: Around | None) -> Around:
    """Return what the documents say beside pods, over what is known already."""
    known = more or Around({}, {}, 0, {}, {})
    namespaces, priorities = dict(known.namespaces), dict(known.priorities)
    claims, templates = dict(known.claims), dict(known.templates)
    default = known.default_priority
    for obj in (document.value for document in objects):
        meta = obj.get("metadata") or {}
        name = str(meta.get("name"))
        key = (str(meta.get("namespace") or "default"), name)
        if obj["kind"] == "Namespace":
            namespaces[name] = meta.get("labels") or {}
        elif obj["kind"] == "PriorityClass" and isinstance(obj.get("value"), int):
            priorities[name] = obj["value"]
            default = obj["value"] if obj.get("globalDefault") is True else default
        elif obj["kind"] == "ResourceClaim":
            claims[key] = obj["spec"]
        elif obj["kind"] == "ResourceClaimTemplate":
            templates[key] = obj["spec"]["spec"]
    shared = known.shared | _shared(objects)
    return Around(namespaces, priorities, default, claims, templates, shared)


def _shared(objects: Sequence[Document]) -> frozenset[tuple[str, str]]:
    """Return the claims that several pods name, by namespace and name."""
    named: Counter[tuple[str, str]] = Counter()
    for obj in (document.value for document in objects if document.value["kind"] in _PODS):
        keys, meta = _PODS[obj["kind"]], obj.get("metadata") or {}
        copies = _copies(obj["kind"], _at(obj, keys[:-1])[0] if keys else {})
        for name in claims_by_name(_at(obj, keys)[0]["spec"]):
            claim = str(meta.get("namespace") or "default"), name
            named[claim] += 2 if obj["kind"] == "DaemonSet" else copies
    return frozenset(claim for claim, pods in named.items() if pods > 1)


def _pod(value: Mapping[str, Any], cluster: Cluster, around: Around) -> AskingPod:
    keys, kind = _PODS[value["kind"]], value["kind"]
    pod, own = _at(value, keys)[0], value.get("metadata") or {}
    # A template's pods are in the namespace of what makes them.
    meta = {**(pod.get("metadata") or {}), "namespace": own.get("namespace")}
    return asking_pod(
        {"metadata": meta, "spec": pod["spec"]},
        cluster,
        around,
        kind=kind,
        name=str(own.get("name") or own.get("generateName") or ""),
        copies=_copies(kind, _at(value, keys[:-1])[0] if keys else {}),
    )


def _copies(kind: str, spec: Mapping[str, Any]) -> int:
    """Return how many pods there are at a time."""
    if kind in ("Job", "CronJob"):
        parallel, completions = spec.get("parallelism"), spec.get("completions")
        most = 1 if parallel is None else int(parallel)
        return most if completions is None else min(most, int(completions))
    number = spec.get("replicas")
    return 1 if number is None else int(number)
