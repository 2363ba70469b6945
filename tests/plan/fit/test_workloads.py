"""Pods in objects of any kind: found, counted, or named; never taken for nothing."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from typing import Any

import pytest

from divvy.model import Cluster, InvalidValue, parse_cluster
from divvy.plan import plan
from divvy.plan.fit import Fit, fit, nodes_of_plan, read_manifests
from divvy.plan.fit.manifest_kinds import Document
from divvy.stack.yaml_documents import yaml_documents
from tests.plan.fit.workload_shapes import CLAIMING, COUNTED, UNKNOWN
from tests.thoroughness import at_length


def _cluster(profile: dict[str, Any]) -> Cluster:
    hardware = {"model": "A100-SXM4-80GB", "gpus": 1, "count": 1}
    pool = {"select": {"pool": "a"}, "hardware": hardware, "profile": "p"}
    return parse_cluster({"profiles": {"p": profile}, "pools": {"a": pool}})


WHOLE, BY_CLAIMS = _cluster({}), _cluster({"claims": {"shares": {}}})
SHAPES = [
    *((WHOLE, text) for text, _ in (*COUNTED.values(), *UNKNOWN.values())),
    *((BY_CLAIMS, text) for text, _ in CLAIMING.values()),
]


def fitted(cluster: Cluster, documents: list[Any]) -> Fit:
    read = read_manifests([Document("pods", value) for value in documents], cluster)
    return fit(cluster, "test", nodes_of_plan(cluster, plan(cluster, "test")), read.pods)


@pytest.mark.parametrize("shape", COUNTED)
def test_counts_the_pods_of_any_kind(shape: str) -> None:
    text, expected = COUNTED[shape]
    result = fitted(WHOLE, yaml_documents("pods", text))
    assert [(pod.pod.kind, pod.wanted) for pod in result.pods] == expected
    assert not result
    assert not any(pod.unknown for pod in result.pods)


@pytest.mark.parametrize("shape", UNKNOWN)
def test_names_what_may_ask_for_gpus_and_cannot_be_counted(shape: str) -> None:
    text, words = UNKNOWN[shape]
    result = fitted(WHOLE, yaml_documents("pods", text))
    assert not result
    assert any(pod.unknown and words in pod.reason for pod in result.pods), result.pods


@pytest.mark.parametrize("shape", CLAIMING)
def test_reads_claims_of_every_served_version(shape: str) -> None:
    text, expected = CLAIMING[shape]
    result = fitted(BY_CLAIMS, yaml_documents("pods", text))
    assert not result
    assert any(pod.unknown for pod in result.pods) is (expected == "unknown")


CPU = "{containers: [{name: main, image: app}]}"


@pytest.mark.parametrize(
    ("text", "notes"),
    [
        (
            "apiVersion: serving.knative.dev/v1\nkind: Service\nmetadata: {name: s}\n"
            f"spec: {{template: {{spec: {CPU}}}}}",
            ("not looked at: pods, a Service, which makes pods",),
        ),
        (
            "apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: q}\n"
            "spec: {hard: {requests.nvidia.com/gpu: 4}}",
            (),
        ),
        (
            "apiVersion: kueue.x-k8s.io/v1beta1\nkind: ClusterQueue\nmetadata: {name: q}\n"
            "spec: {resourceGroups: [{coveredResources: [nvidia.com/gpu]}]}",
            (),
        ),
        ("apiVersion: kyverno.io/v1\nkind: Policy\nmetadata: {name: k}\nspec: {rules: []}", ()),
    ],
)
def test_lets_pass_what_asks_for_no_gpu(text: str, notes: tuple[str, ...]) -> None:
    pod = f"\n---\napiVersion: v1\nkind: Pod\nmetadata: {{name: a}}\nspec: {CPU}"
    documents = [Document("pods", value) for value in yaml_documents("pods", text + pod)]
    read = read_manifests(documents, WHOLE)
    assert read.notes == notes
    assert fitted(WHOLE, [document.value for document in documents])


def test_serves_the_annotations_of_sizes_where_there_are_claims() -> None:
    meta = "{name: a, annotations: {nvidia.com/use-gputype: A100, nvidia.com/numa-bind: 'true'}}"
    text = (
        f"apiVersion: v1\nkind: Pod\nmetadata: {meta}\nspec:\n"
        "  containers: [{name: a, resources: {limits: {nvidia.com/gpumem: 1000}}}]"
    )
    result = fitted(BY_CLAIMS, yaml_documents("pods", text))
    assert result
    assert result.pods[0].pod.notes == ("Divvy ignores the annotation nvidia.com/numa-bind",)
    refused = text.replace("use-gputype: A100", "use-gpuindexes: '0'")
    (pod,) = fitted(BY_CLAIMS, yaml_documents("pods", refused)).pods
    assert pod.reason.endswith("the annotation nvidia.com/use-gpuindexes is not supported")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "apiVersion: extensions/v1beta1\nkind: Deployment\nspec: {}",
            "",
        ),
        (
            "apiVersion: apps/v1beta2\nkind: Deployment\nspec: {template: {spec: " + CPU + "}}",
            "apiVersion: is 'apps/v1beta2'; apps/v1 is expected",
        ),
        (
            "apiVersion: v1\nkind: Pod\nspec: {containers: [{resources: {limits: {gpu: 1}}}]}",
            "is no resource of Kubernetes; devices have names such as nvidia.com/gpu",
        ),
        (
            "apiVersion: v1\nkind: Pod\nspec: {resources: {limits: {nvidia.com/gpu: 1}}, "
            "containers: [{name: a}]}",
            "is a device, and stands at the pod; a container is expected to have it",
        ),
        (
            "apiVersion: v1\nkind: Pod\n"
            "spec: {containers: [{name: a, resources: {claims: [{name: g}]}}]}",
            "is 'g', which is not in resourceClaims",
        ),
        (
            "apiVersion: v1\nkind: Pod\n"
            "spec: {containers: [{resources: {limits: {nvidia.com/gpu: '{{ .Values.gpus }}'}}}]}",
            "it is a template: render it first",
        ),
    ],
)
def test_refuses_what_kubernetes_refuses(text: str, problem: str) -> None:
    with pytest.raises(InvalidValue) as raised:
        fitted(WHOLE, yaml_documents("pods", text))
    assert problem in str(raised.value)


# What users choose names for: another one is another meaning, and no mistake in the form.
_OWN_NAMES = {"annotations", "labels", "nodeSelector", "matchLabels", "parameters"}
# Fields that containers and pods both have: one level up it is another request, and a right one.
_OF_BOTH = {"restartPolicy"}


def _entries(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], str]]:
    """Yield every entry of the mappings in a value: the mappings above it, and its key."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield (*above, value), key
            if key not in _OWN_NAMES:
                yield from _entries(item, (*above, value))
    elif isinstance(value, list):
        for item in value:
            yield from _entries(item, above)


def _mutate(documents: list[Any], chance: random.Random) -> str:
    """Change the name, the depth, the version or the type of one field; return what was done."""
    above, key = chance.choice(list(_entries(documents)))
    holder = above[-1]
    value = holder[key]
    way = chance.choice(("rename", "rename", "raise", "lower", "type", "version"))
    if way == "rename" or (way == "raise" and len(above) < 2):
        at = chance.randrange(len(key))
        other = chance.choice(
            (key + "s", key[:-1], key[0].swapcase() + key[1:], "x" + key, key[:at] + key[at + 1 :])
        )
        if not other or other in holder:
            return ""
        holder[other] = holder.pop(key)
        return f"{key} is {other}"
    if way == "raise":
        if key in _OF_BOTH:
            return ""
        above[-2].setdefault(key, holder.pop(key))
        return f"{key} is one level up"
    if way == "lower":
        siblings = [
            item
            for name, item in holder.items()
            if isinstance(item, dict) and name != key and name not in _OWN_NAMES
        ]
        if not siblings:
            return ""
        chance.choice(siblings).setdefault(key, holder.pop(key))
        return f"{key} is one level down"
    if way == "version":
        versioned = [doc for doc in documents if isinstance(doc, dict) and "apiVersion" in doc]
        obj = chance.choice(versioned)
        group, slash, version = obj["apiVersion"].rpartition("/")
        obj["apiVersion"] = chance.choice(
            (f"{group}{slash}v7", f"{group}{slash}v1alpha3", f"x{group or 'core'}/{version}")
        )
        return f"apiVersion is {obj['apiVersion']}"
    others: list[Any] = [[value], {"value": value}, str(value)]
    if not isinstance(value, dict | list):
        others += [True, 7, "x"]
    holder[key] = chance.choice([other for other in others if type(other) is not type(value)])
    return f"{key} is {holder[key]!r}"


@pytest.mark.parametrize("seed", range(at_length(5, 50)))
def test_answers_no_changed_form_with_yes(seed: int) -> None:
    """None of the shapes fits; a field that is not where it should be must not make one fit."""
    chance = random.Random(seed)
    read = [(cluster, yaml_documents("pods", text)) for cluster, text in SHAPES]
    for _ in range(100):
        cluster, documents = chance.choice(read)
        changed = copy.deepcopy(documents)
        what = _mutate(changed, chance)
        try:
            result = fitted(cluster, changed)
        except InvalidValue:
            continue
        assert not result, (what, changed)


DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: serve}
spec:
  REPLICAS
  template:
    spec: {containers: [{name: c, image: x, resources: {limits: {nvidia.com/gpu: 1}}}]}
---
"""
HPA = """\
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: h}
spec:
  minReplicas: 40
  maxReplicas: 50
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: serve}
"""
KEDA = """\
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata: {name: k}
spec: {minReplicaCount: 40, scaleTargetRef: {name: serve}}
"""


@pytest.mark.parametrize(
    ("replicas", "scaler", "unread"),
    [
        ("", HPA, "HorizontalPodAutoscaler h says how many pods there are, at most 50"),
        ("replicas: 2", HPA, "at most 50"),
        ("", KEDA, "ScaledObject k says how many pods there are, at most an unknown number"),
        ("replicas: 50", HPA, ""),
        ("", HPA.replace("name: serve", "name: other"), ""),
        ("", HPA.replace("name: h", "name: h, namespace: elsewhere"), ""),
        ("", HPA.replace("maxReplicas: 50", "maxReplicas: many"), "at most an unknown number"),
        ("", HPA.replace("scaleTargetRef: {", "x: {"), ""),
    ],
)
def test_what_an_autoscaler_scales_is_unknown(replicas: str, scaler: str, unread: str) -> None:
    text = DEPLOYMENT.replace("REPLICAS", replicas) + scaler
    result = fitted(WHOLE, list(yaml_documents("pods", text)))
    words = " ".join(pod.reason for pod in result.pods if pod.unknown)
    assert unread in words
    assert bool(words) == bool(unread)
