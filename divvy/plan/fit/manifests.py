"""Reads the pods of manifests, and says of each object what it does not understand."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from divvy.model import Cluster, InvalidValue, Problem
from divvy.model.api_names import is_divvys
from divvy.model.fractions import KUEUE_JOB, KUEUE_QUEUE
from divvy.model.problems import Keys, path_of, printable, value_text
from divvy.plan.fit.manifest_kinds import (
    CLAIM_GROUP,
    CLAIMS,
    FLAT_VERSION,
    MAKERS,
    Document,
    claim_version,
    is_claim,
    is_class,
    is_maker,
    is_to_render,
    value_at,
)
from divvy.plan.fit.manifest_problems import claim_problems, object_problems, pod_problems
from divvy.plan.fit.manifest_schema import (
    CLAIM_SPECS,
    DECIDING,
    OBJECT,
    POD_META,
    POD_SPEC,
    unknown_fields,
)
from divvy.plan.fit.pods import Around, PodToFit, asking_pod, claims_by_name, unknown_pod
from divvy.plan.fit.readable import UNREADABLE, full_name, key_of
from divvy.plan.fit.readable import problem as unreadable
from divvy.plan.fit.workloads import (
    FoundPod,
    asks_for_gpus,
    holds_objects,
    makes_no_pods,
    objects_in,
    pod_at,
    pods_in,
    requests_outside,
)

# Of what scales an object: its kind, namespace and name, and the most pods, as Kubernetes and KEDA
# call them; KEDA's scales a Deployment where it names no kind.
_Target = tuple[str, str, str]
_MOST_PODS = ("maxReplicas", "maxReplicaCount")
_DEFAULT_KIND = "Deployment"
# Kinds that Kueue starts as a whole; of others it admits the pods.
_JOBS = ("Job", "JobSet", "RayCluster")
# So many places are named.
_MOST_WORDS = 5
# More than clusters have; what goes beyond it is repeated by YAML aliases.
_MAX_OBJECTS, _MAX_LISTS, _MAX_VALUES = 100_000, 10, 5_000_000


@dataclass(frozen=True)
class Manifests:
    """The pods of some manifests in their order, and kinds that were not looked at."""

    pods: tuple[PodToFit, ...]
    notes: tuple[str, ...]


def read_manifests(
    documents: Sequence[Document], cluster: Cluster, around: Around | None = None
) -> Manifests:
    """Read pods, and what makes pods; ``around`` is what is known beside the documents.

    What may ask for GPUs and is not understood is a pod that is ``unread``, so that its result is
    unknown. Raises InvalidValue with every problem, its path beginning with the document's source.
    """
    listed = (obj for document in documents for obj in _objects(document))
    objects = list(islice(listed, _MAX_OBJECTS + 1))
    if len(objects) > _MAX_OBJECTS or sum(map(_size, objects)) > _MAX_VALUES:
        reason = f"are more than {_MAX_OBJECTS:,} objects: are YAML aliases repeated?"
        raise InvalidValue([Problem(objects[-1].source.partition(",")[0], reason)])
    problems = [problem for obj in objects for problem in object_problems(obj)]
    if problems:
        raise InvalidValue(problems)
    pods_by_object = [(obj, tuple(_pods(obj))) for obj in objects]
    known = _around(pods_by_object, around)
    scaled = _scaled(objects)
    pods, notes = [], []
    for obj, of_object in pods_by_object:
        unread = list(_unread_of(obj, of_object))
        if any(map(asks_for_gpus, of_object)):
            copies = sum(pod.copies for pod in of_object)
            unread += [
                f"{who} says how many pods there are, at most {most or 'an unknown number'}"
                for who, most in scaled.get(_target(obj.value, obj.value.get("metadata")), ())
                if most is None or most > copies
            ]
        ignored = [pod for pod in of_object if _is_beside_the_point(pod)]
        if ignored and not unread:
            notes.append(f"not looked at: {obj.source}, a {_kind(obj)}, which makes pods")
        counted = [pod for pod in of_object if pod not in ignored]
        pods += [_asking(obj, pod, cluster, known) for pod in counted]
        if unread:
            pods.append(_unknown(obj, unread))
    if not pods and not notes:
        where = ", ".join(dict.fromkeys(obj.source.partition(":")[0] for obj in documents))
        reason = "has no pods: no object in it has containers, or asks for GPUs"
        raise InvalidValue([Problem(where or "the file", reason)])
    return Manifests(tuple(pods), tuple(notes))


def pod_of_cluster(raw: Mapping[str, Any], cluster: Cluster, around: Around) -> PodToFit:
    """Read a pod of the API; its result is unknown where it is not understood."""
    try:
        asking = asking_pod(raw, cluster, around)
    except UNREADABLE as error:
        namespace, name = key_of(raw)
        return unknown_pod("Pod", namespace, name, [f"it cannot be read: {unreadable(error)}"])
    places = [*unknown_fields(("spec",), raw["spec"], POD_SPEC)]
    places += unknown_fields(("metadata",), raw["metadata"], POD_META)
    words = [f"not understood: {path_of(place)}" for place in places[:_MOST_WORDS]]
    return replace(asking, unread=(*map(printable, words), *asking.unread))


def unread_of_claims(
    kind: str, claims: Iterable[Mapping[str, Any]]
) -> Iterator[tuple[tuple[str, str, str], tuple[str, ...]]]:
    """Yield what of a cluster's claims, or templates of claims, is not understood."""
    for claim in claims:
        obj = {**claim, "kind": kind}
        words = tuple(map(str, claim_problems(obj))) or _claim_words(obj)
        if words:
            yield (kind, *key_of(claim)), tuple(map(printable, words))


def _size(obj: Document) -> int:
    """Return how many values an object has, one more than allowed if there are too many."""
    number, left = 0, [obj.value]
    while left and number <= _MAX_VALUES:
        value, number = left.pop(), number + 1
        if isinstance(value, Mapping):
            left += value.values()
        elif isinstance(value, list):
            left += value
    return number


def _objects(document: Document, lists: int = 0) -> Iterator[Document]:
    """Yield the objects of a document: a List holds several; an empty document none.

    ``lists`` are those that it is in. Raises InvalidValue.
    """
    value = document.value
    if value is None:
        return
    inner: Iterable[tuple[Keys, Any]] = ()
    if isinstance(value, Mapping) and str(value.get("kind", "")).endswith("List"):
        items = value.get("items")
        if not isinstance(items, list):
            path = f"{document.source}: items"
            raise InvalidValue([Problem(path, f"is {value_text(items)}; a list is expected")])
        inner = ((("items", number), item) for number, item in enumerate(items))
    elif isinstance(value, Mapping) and holds_objects(value):
        inner = list(objects_in(value))
    else:
        yield document
        return
    if lists == _MAX_LISTS:
        reason = f"is a List in {_MAX_LISTS} others: does it hold itself?"
        raise InvalidValue([Problem(document.source, reason)])
    for keys, item in inner:
        yield from _objects(Document(f"{document.source}, {path_of(keys)}", item), lists + 1)


def _kind(obj: Document) -> str:
    return printable(obj.value["kind"])


def _around(
    pods_by_object: Sequence[tuple[Document, tuple[FoundPod, ...]]], more: Around | None
) -> Around:
    """Return what the documents say beside pods, over what is known already."""
    known = more or Around({}, {}, 0, {}, {})
    namespaces, priorities = dict(known.namespaces), dict(known.priorities)
    claims, templates = dict(known.claims), dict(known.templates)
    unread, classes = dict(known.unread), dict(known.classes)
    default = known.default_priority
    for obj in (document.value for document, _ in pods_by_object):
        meta = obj.get("metadata") or {}
        name = str(meta.get("name"))
        key = (str(meta.get("namespace") or "default"), name)
        if obj["kind"] == "Namespace":
            namespaces[name] = meta.get("labels") or {}
        elif obj["kind"] == "PriorityClass" and isinstance(obj.get("value"), int):
            priorities[name] = obj["value"]
            default = obj["value"] if obj.get("globalDefault") is True else default
        elif is_claim(obj):
            words = _claim_words(obj)
            if words:
                unread[(obj["kind"], *key)] = words
            by_key = claims if obj["kind"] == "ResourceClaim" else templates
            by_key[key] = _claim_spec(obj)
        elif is_class(obj) and not is_divvys({"metadata": meta}):
            classes[name] = frozenset(_texts(obj))
    shared = known.shared | _shared(pods_by_object)
    return Around(namespaces, priorities, default, claims, templates, shared, unread, classes)


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(item)


def _claim_words(obj: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what of a claim, or of a template, is not understood."""
    version, keys = claim_version(obj), CLAIMS[obj["kind"]]
    if version not in CLAIM_SPECS:
        known = ", ".join(CLAIM_SPECS)
        return (f"its API version {CLAIM_GROUP}/{version} is not read ({known} are)",)
    spec, at = value_at(obj, keys)
    # Of what is around the specification all is known, too.
    around = {"spec": CLAIM_SPECS[version]}
    if len(keys) > 1:
        around = {"spec": {"metadata": POD_META, **around}}
    shape = {**OBJECT, "metadata": POD_META, **around}
    words = [path_of(place) for place in unknown_fields((), obj, shape)]
    requests = (spec.get("devices") or {}).get("requests") or ()
    words += [] if requests else [f"{path_of(at)}, which asks for no devices"]
    for number, request in enumerate(requests):
        named = "deviceClassName" if version == FLAT_VERSION else "exactly"
        if not request.get(named) and not request.get("firstAvailable"):
            words.append(f"devices.requests[{number}], which asks for no devices")
    words += [path_of(keys) for keys in _unrendered(at, spec)]
    return tuple(words)


def _claim_spec(obj: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the specification of a claim as version v1 has it."""
    spec = value_at(obj, CLAIMS[obj["kind"]])[0]
    if claim_version(obj) not in CLAIM_SPECS:
        return {}
    if claim_version(obj) != FLAT_VERSION:
        return spec or {}
    devices = spec.get("devices") or {}
    requests = [
        request
        if request.get("firstAvailable")
        else {"name": request.get("name"), "exactly": request}
        for request in devices.get("requests") or ()
        if request.get("deviceClassName") or request.get("firstAvailable")
    ]
    return {"devices": {**devices, "requests": requests}}


def _shared(
    pods_by_object: Sequence[tuple[Document, tuple[FoundPod, ...]]],
) -> frozenset[tuple[str, str]]:
    """Return the claims that several pods name, by namespace and name."""
    named: Counter[tuple[str, str]] = Counter()
    for obj, pods in pods_by_object:
        meta = obj.value.get("metadata") or {}
        for pod in (pod for pod in pods if not _refusals(pod)):
            for name in claims_by_name(pod.spec):
                claim = str(meta.get("namespace") or "default"), name
                named[claim] += 2 if obj.value["kind"] == "DaemonSet" else pod.copies
    return frozenset(claim for claim, pods in named.items() if pods > 1)


def _pods(obj: Document) -> Iterator[FoundPod]:
    if is_maker(obj.value):
        yield replace(pod_at(obj.value, MAKERS[obj.value["kind"]][1]), is_counted=True)
    elif not _makes_no_pods(obj.value):
        yield from pods_in(obj.value)


def _makes_no_pods(value: Mapping[str, Any]) -> bool:
    return makes_no_pods(value) or is_claim(value)


def _unread_of(obj: Document, pods: tuple[FoundPod, ...]) -> Iterator[str]:
    """Yield what of an object may ask for GPUs, or for more pods, and is not understood."""
    if _makes_no_pods(obj.value):
        return
    outside = list(islice(requests_outside(obj.value, pods), _MOST_WORDS))
    if outside:
        yield f"not understood in this {_kind(obj)}: {', '.join(map(printable, outside))}"
    if is_maker(obj.value):
        return
    for keys, inner in objects_in(obj.value):
        if any(requests_outside(inner, ())):
            kind = printable(inner["kind"])
            yield f"how often it makes the {kind} at {path_of(keys)} is not known"


def _scaled(objects: Iterable[Document]) -> Mapping[_Target, list[tuple[str, int | None]]]:
    """Return which objects are scaled by others of these, and up to how many pods.

    A Deployment without replicas has one pod until its HorizontalPodAutoscaler sees it.
    """
    scaled: dict[_Target, list[tuple[str, int | None]]] = {}
    for obj in objects:
        spec = obj.value.get("spec")
        target = spec.get("scaleTargetRef") if isinstance(spec, Mapping) else None
        if isinstance(spec, Mapping) and isinstance(target, Mapping):
            limits = [spec[key] for key in _MOST_PODS if key in spec]
            most = limits[0] if limits and type(limits[0]) is int else None
            meta = obj.value.get("metadata") or {}
            place = _target(target, {**meta, "name": target.get("name")})
            scaled.setdefault(place, []).append((f"{_kind(obj)} {full_name(obj.value)}", most))
    return scaled


def _target(value: Mapping[str, Any], meta: Mapping[str, Any] | None) -> _Target:
    meta = meta or {}
    names = (value.get("kind") or _DEFAULT_KIND, meta.get("namespace"), meta.get("name"))
    kind, namespace, name = (str(name or "") for name in names)
    return kind, namespace, name


def _is_beside_the_point(pod: FoundPod) -> bool:
    """Return whether nobody knows how many pods there are, and they ask for no GPU."""
    return not (pod.is_counted or asks_for_gpus(pod) or _refusals(pod) or _places(pod))


def _places(pod: FoundPod) -> list[Keys]:
    """Return where a pod has fields that are not understood."""
    places = list(unknown_fields(pod.keys, pod.spec, POD_SPEC))
    return [*places, *unknown_fields((*pod.keys[:-1], "metadata"), pod.meta, POD_META)]


def _refusals(pod: FoundPod) -> list[str]:
    return [str(refusal) for refusal in pod_problems(pod)]


def _asking(obj: Document, pod: FoundPod, cluster: Cluster, around: Around) -> PodToFit:
    refusals = _refusals(pod)
    if refusals:
        return _unknown(obj, refusals)
    own = obj.value.get("metadata") or {}
    # A template's pods are in the namespace of what makes them.
    meta = {**pod.meta, "namespace": own.get("namespace")}
    if KUEUE_QUEUE in (own.get("labels") or {}) and _kind(obj).endswith(_JOBS):
        # As Kueue does, when it starts the Job.
        meta["labels"] = {**(meta.get("labels") or {}), KUEUE_JOB: "main"}
    asking = asking_pod(
        {"metadata": meta, "spec": pod.spec},
        cluster,
        around,
        kind=_kind(obj),
        name=_name(obj),
        copies=pod.copies,
    )
    words = [f"not understood: {path_of(place)}" for place in _places(pod)[:_MOST_WORDS]]
    deciding = {key: value for key, value in pod.spec.items() if key in DECIDING}
    if is_maker(obj.value):
        others = [key for key in obj.value if key not in OBJECT and key != pod.keys[0]]
        words += [f"not understood: {path_of((key,))}" for key in others[:_MOST_WORDS]]
    words += [f"to be rendered: {path_of(place)}" for place in _unrendered(pod.keys, deciding)]
    words += pod.unread
    if not pod.is_counted:
        words.append(f"how many pods a {_kind(obj)} makes is not known")
    return replace(asking, unread=(*map(printable, words), *asking.unread))


def _unknown(obj: Document, words: Sequence[str]) -> PodToFit:
    """Return what stands for the pods of an object that is not understood."""
    own = obj.value.get("metadata") or {}
    return unknown_pod(_kind(obj), str(own.get("namespace") or "default"), _name(obj), words)


def _name(obj: Document) -> str:
    own = obj.value.get("metadata") or {}
    return str(own.get("name") or own.get("generateName") or "")


def _unrendered(keys: Keys, value: object) -> Iterator[Keys]:
    """Yield the texts in what decides about a pod that a template has left open."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            if key in DECIDING or not _is_container(keys):
                yield from _unrendered((*keys, str(key)), item)
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _unrendered((*keys, number), item)
    elif is_to_render(value):
        yield keys


def _is_container(keys: Keys) -> bool:
    return len(keys) > 1 and keys[-2] in ("containers", "initContainers")
