"""Pods in an object of any kind: found by what they are, counted by what stands beside them.

What makes pods is written by others, and new kinds come every month. So a pod is a mapping with
`containers`, at any depth of an object; the numbers that are on the way to it multiply it; and
what holds a request for GPUs and is no such pod, or a number that is not understood, makes the
object unknown.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from divvy.model.problems import Keys, path_of, value_text
from divvy.plan.fit.manifest_schema import DECIDING, POD_META

# More than clusters have; what goes beyond it is a typing error.
MAX_PODS = 1_000_000
_COUNTS = frozenset({"replicas", "count", "numOfHosts", "parallelism", "completions"})


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Numbers that may stand above pods and do not count them.
_OTHER_NUMBERS = _names(
    "activeDeadlineSeconds backoffLimit backoffLimitPerIndex deletionGracePeriodSeconds "
    "entrypointNumCpus failedJobsHistoryLimit generation idleTimeoutSeconds maxFailedIndexes "
    "maxRestarts maxRetry minAvailable minCount minReadySeconds minSuccess nprocPerNode "
    "observedGeneration priority progressDeadlineSeconds revisionHistoryLimit slotsPerWorker "
    "startingDeadlineSeconds successfulJobsHistoryLimit ttlSecondsAfterFinished"
)
# Of a group, or of one kind of it: where no number stands, there is one pod.
_ONE_WITHOUT = _names(
    "ray.io kubeflow.org jobset.x-k8s.io leaderworkerset.x-k8s.io "
    "batch.volcano.sh argoproj.io/Rollout kueue.x-k8s.io/Workload"
)
# They make no pods, whatever names of resources they hold.
_WITHOUT_PODS = _names(
    "admissionregistration.k8s.io apiextensions.k8s.io apiregistration.k8s.io autoscaling "
    "certificates.k8s.io coordination.k8s.io discovery.k8s.io events.k8s.io "
    "flowcontrol.apiserver.k8s.io karpenter.sh monitoring.coreos.com networking.k8s.io "
    "node.k8s.io policy rbac.authorization.k8s.io resource.k8s.io scheduling.k8s.io "
    "storage.k8s.io kueue.x-k8s.io/ClusterQueue kueue.x-k8s.io/Cohort "
    "kueue.x-k8s.io/ResourceFlavor scheduling.run.ai/Queue scheduling.volcano.sh/Queue /ConfigMap "
    "/LimitRange /Namespace /Node /ResourceQuota /Secret /Service"
)
# They create each object that they hold, once.
_HOLDERS = _names("template.openshift.io/Template workload.codeflare.dev/AppWrapper")
_CLAIMING = _names(
    "deviceClassName resourceClaimName resourceClaimTemplateName resourceClaims resourceClassName"
)
# What names the object, or the kind of model, by which the pods and their requests are written.
_REFERRING = _names(
    "clusterWorkflowTemplateRef modelFormat pipelineRef runtimeRef taskRef templateRef "
    "workflowTemplateRef"
)
# Of these one name, of a preset, a machine or a profile of the operator's, says which GPUs they
# take.
_BY_NAME = _names("kaito.sh inference.llmaz.io/Playground kubeai.org/Model")
# Words for people, and what a framework does with the GPUs that its pods have.
_NO_REQUESTS = _names(
    "entrypointNumGpus labels managedFields matchLabels nodeSelector rayStartParams"
)
_GPU = re.compile("gpu", re.IGNORECASE)
_GPU_TEXT = re.compile(r"\bnvidia\.com/(gpu|mig)|\b(gpu|mig)\.nvidia\.com\b")
# Operators take requests from annotations of their own objects, too.
_ASKS = re.compile(r"^(?!divvy\.gpu/).*(gpu|device-?class)", re.IGNORECASE)
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_NUMBER = re.compile(r"-?\d+")


@dataclass(frozen=True)
class FoundPod:
    """A pod in an object: where it is, what it is, how many there are at a time.

    ``problems`` are what Kubernetes would refuse, by its place; ``unread`` what is not understood.
    """

    keys: Keys
    meta: Mapping[str, Any]
    spec: Mapping[str, Any]
    copies: int
    is_counted: bool
    problems: tuple[tuple[Keys, str], ...]
    unread: tuple[str, ...]


def group_of(obj: Mapping[str, Any]) -> str:
    """Return the API group of an object, "" for the core's."""
    group, slash, _ = str(obj.get("apiVersion") or "").rpartition("/")
    return group if slash else ""


def makes_no_pods(obj: Mapping[str, Any]) -> bool:
    """Return whether an object is of a kind that makes none."""
    return _is_of(obj, _WITHOUT_PODS)


def holds_objects(obj: Mapping[str, Any]) -> bool:
    """Return whether an object creates each object in it once."""
    return _is_of(obj, _HOLDERS)


def objects_in(obj: Mapping[str, Any]) -> Iterator[tuple[Keys, Mapping[str, Any]]]:
    """Yield the objects in another one, with the keys that lead there."""
    for keys, value in _search(obj, (), _is_object):
        if keys:
            yield keys, value


def pods_in(obj: Mapping[str, Any]) -> Iterator[FoundPod]:
    """Yield the pods that an object makes, but those of objects in it."""
    for keys, spec in _search(obj, (), lambda value: _is_object(value) or _is_pod(value)):
        if _is_pod(spec):
            yield pod_at(obj, keys)


def pod_at(obj: Mapping[str, Any], keys: Keys) -> FoundPod:
    """Return the pod whose specification is there."""
    above: list[Any] = list(accumulate(keys, _item, initial=obj))
    spec = above.pop()
    holder = above[-1] if above and keys[-1] == "spec" else {}
    meta = holder.get("metadata")
    copies, is_counted, problems, unread = _copies(above, keys)
    if meta is not None and not isinstance(meta, Mapping):
        problems.append(((*keys[:-1], "metadata"), f"is {value_text(meta)}; a mapping is expected"))
    unread += [
        f"{path_of((*keys[:depth], key))} has no effect there"
        for depth, value in enumerate(above)
        if isinstance(value, Mapping)
        for key in value
        if key in DECIDING
    ]
    return FoundPod(
        keys,
        meta if isinstance(meta, Mapping) else {},
        spec,
        copies,
        is_counted or _is_of(obj, _ONE_WITHOUT),
        tuple(problems),
        tuple(unread),
    )


def requests_outside(obj: Mapping[str, Any], pods: tuple[FoundPod, ...]) -> Iterator[str]:
    """Yield where an object asks for GPUs, or counts pods, beside the pods that were found.

    Where it refers to what asks, too.
    """
    known = {pod.keys for pod in pods} | {keys for keys, _ in objects_in(obj)}
    if _is_of(obj, _BY_NAME):
        yield "which GPUs it takes"
    for key, value in obj.items():
        if key not in ("metadata", "status"):
            yield from _requests((str(key),), key, value, known, bool(pods))
    meta = obj.get("metadata")
    fields = meta if isinstance(meta, Mapping) else {}
    yield from (path_of(("metadata", key)) for key in fields if key not in POD_META)
    annotations = fields.get("annotations")
    if not isinstance(annotations, Mapping) or any(pod.keys == ("spec",) for pod in pods):
        return
    for name, value in annotations.items():
        asks = _ASKS.search(str(name)) or _GPU_TEXT.search(str(value))
        if asks and name != _LAST_APPLIED:
            yield path_of(("metadata", "annotations", name))


def asks_for_gpus(pod: FoundPod) -> bool:
    """Return whether a pod has anything that may be a request for GPUs."""
    holders = (pod.meta.get("annotations"), pod.spec.get("nodeSelector"))
    named = [str(key) for holder in holders if isinstance(holder, Mapping) for key in holder]
    return any(map(_GPU.search, named)) or any(
        asked
        for key, value in pod.spec.items()
        for asked in _requests((key,), key, value, set(), False)
    )


def _item(value: Any, key: str | int) -> Any:
    return value[key]


def _is_of(obj: Mapping[str, Any], kinds: frozenset[str]) -> bool:
    group = group_of(obj)
    return bool(group and group in kinds) or f"{group}/{obj.get('kind')}" in kinds


def _is_object(value: object) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(value.get(key), str) for key in ("apiVersion", "kind")
    )


def _is_pod(value: object) -> bool:
    containers = value.get("containers") if isinstance(value, Mapping) else None
    return (
        isinstance(containers, list)
        and bool(containers)
        and all(isinstance(container, Mapping) for container in containers)
    )


def _search(
    value: Any, keys: Keys, matches: Callable[[object], bool]
) -> Iterator[tuple[Keys, Any]]:
    """Yield the topmost values that match, but an object itself; its status is not looked at."""
    if keys and matches(value):
        yield keys, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if keys or key not in ("metadata", "status"):
                yield from _search(item, (*keys, key), matches)
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _search(item, (*keys, number), matches)


def _copies(above: list[Any], keys: Keys) -> tuple[int, bool, list[tuple[Keys, str]], list[str]]:
    """Return how many pods the numbers above one make, whether there are such, what is wrong."""
    copies, counted = 1, False
    problems: list[tuple[Keys, str]] = []
    unread: list[str] = []
    for depth, value in enumerate(above):
        numbers: dict[str, int] = {}
        for key, item in value.items() if isinstance(value, Mapping) else ():
            place = (*keys[:depth], key)
            if key in _COUNTS and item is not None:
                if isinstance(item, bool) or not isinstance(item, int) or item < 0:
                    reason = f"is {value_text(item)}; a number such as 3 is expected"
                    problems.append((place, reason))
                elif item > MAX_PODS:
                    problems.append((place, f"is {item}; {MAX_PODS:,} at most are looked at"))
                else:
                    numbers[key] = item
            elif key == "size" and keys[depth] in ("leaderTemplate", "workerTemplate"):
                # A LeaderWorkerSet counts the leader, which has a template of its own or not.
                if isinstance(item, bool) or not isinstance(item, int) or item < 1:
                    problems.append((place, f"is {value_text(item)}; 1 or more is expected"))
                elif keys[depth] == "workerTemplate":
                    numbers[key] = item - bool(value.get("leaderTemplate"))
            elif key not in _NO_REQUESTS and _is_unknown_number(key, item, value):
                unread.append(f"what {path_of(place)} counts is not known")
        if "completions" in numbers:
            most = numbers.pop("completions")
            numbers["parallelism"] = min(most, numbers.get("parallelism", 1))
        for number in numbers.values():
            copies, counted = copies * number, True
    if copies > MAX_PODS:
        problems.append((keys, f"are {copies:,} pods; {MAX_PODS:,} at most are looked at"))
        copies = 1
    return copies, counted, problems, unread


def _is_unknown_number(key: object, item: object, beside: Mapping[str, Any]) -> bool:
    if key in ("minReplicas", "maxReplicas") and beside.get("replicas") is not None:
        return False
    is_number = isinstance(item, int) or (isinstance(item, str) and _NUMBER.fullmatch(item))
    return bool(is_number) and not isinstance(item, bool) and key not in _OTHER_NUMBERS


def _requests(
    keys: Keys, parent: object, value: Any, known: set[Keys], counts: bool
) -> Iterator[str]:
    if keys in known:
        return
    if isinstance(value, str):
        if _GPU_TEXT.search(value):
            yield path_of(keys)
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _requests((*keys, number), parent, item, known, counts)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            name, place = str(key), (*keys, key)
            if name in _NO_REQUESTS:
                continue
            is_request = name in _CLAIMING or name in _REFERRING
            if parent in ("limits", "requests"):
                # Flyte's are a list of names and values.
                is_request |= "/" in name or (isinstance(item, str) and bool(_GPU.search(item)))
            if name == "containers" or _GPU.search(name):
                is_request |= not _is_above(place, known) and not _is_template_meta(place, known)
            is_count = counts and (name in _COUNTS or name == "size")
            if is_request or (is_count and not _is_above(keys, known)):
                yield path_of(place)
            else:
                yield from _requests(place, name, item, known, counts)


def _is_above(place: Keys, known: set[Keys]) -> bool:
    return any(pod[: len(place)] == place for pod in known)


def _is_template_meta(place: Keys, known: set[Keys]) -> bool:
    """Return whether a place is in the metadata beside a pod, which is read with it."""
    return any(
        (*pod[:-1], "metadata") == place[: len(pod)] for pod in known if pod and pod[-1] == "spec"
    )
