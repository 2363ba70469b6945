"""What is read as pods, and what is said of manifests that are wrong."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import yaml

from divvy.model import InvalidValue, parse_cluster
from divvy.plan.fit import Manifests, read_manifests
from divvy.plan.fit.manifest_kinds import Document

CLUSTER = parse_cluster({"profiles": {"whole": {}}, "pools": {"all": {"profile": "whole"}}})
SPEC = "{containers: [{name: a, resources: {limits: {nvidia.com/gpu: 1}}}]}"


def read(text: str) -> Manifests:
    documents = [
        Document(f"pods.yaml: document {number}", value)
        for number, value in enumerate(yaml.safe_load_all(text), 1)
    ]
    return read_manifests(documents, CLUSTER)


def problems(text: str) -> list[str]:
    with pytest.raises(InvalidValue) as raised:
        read(text)
    return [str(problem) for problem in raised.value.problems]


CONTAINER = "spec.containers[0].resources"
CLAIM = "{kind: ResourceClaim, spec: {devices: {requests: [{name: a, exactly: {%s}}]}}}"
REQUEST = "spec.devices.requests[0].exactly"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("just words", "the document: is 'just words'; a Kubernetes object is expected"),
        ("{}", "kind: is empty; a kind such as Pod or Deployment is expected"),
        ("kind: Deploymnt", "kind: is 'Deploymnt'; did you mean Deployment?"),
        ("kind: Pod", "spec: is empty; a mapping with `containers` is expected"),
        (
            "{kind: Pod, spec: {containers: []}}",
            "spec.containers: is []; one container or more are expected",
        ),
        (
            "{kind: Job, spec: {parallelism: -1, template: {spec: " + SPEC + "}}}",
            "spec.parallelism: is -1; a number such as 3 is expected",
        ),
        (
            "{kind: Pod, spec: {containers: [{resources: {limits: {nvidia.com/gpu: 0.5}}}]}}",
            f"{CONTAINER}.limits.nvidia.com/gpu: is 0.5; a whole number is expected: devices are "
            "not divided",
        ),
        (
            "{kind: Pod, spec: {containers: [{resources: {limits: {nvidia.com/gpu: one}}}]}}",
            f"{CONTAINER}.limits.nvidia.com/gpu: is 'one'; a quantity such as 3000Mi is expected",
        ),
        (
            "{kind: Pod, spec: {containers: [{resources: {requests: {nvidia.com/gpu: 1}}}]}}",
            f"{CONTAINER}.requests.nvidia.com/gpu: is not what the limit says; Kubernetes requires "
            "them to be equal; leave it out of requests, and write the limit alone",
        ),
        (
            "{kind: Pod, spec: {nodeSelector: {big: true}, containers: [{}]}}",
            'spec.nodeSelector.big: is true; a string is expected; write "true"',
        ),
        (
            "{kind: Pod, spec: {containers: [{resources: {limits: {nvidia.com/gpu: -1}}}]}}",
            f"{CONTAINER}.limits.nvidia.com/gpu: is -1; 0 or more is expected",
        ),
        (
            '{kind: Pod, spec: {containers: [{resources: {limits: {"gpu\\e[2J": 1}}}]}}',
            f"{CONTAINER}.limits.'gpu\\x1b[2J': is not a resource name; one such as nvidia.com/gpu "
            "is expected",
        ),
        (
            "{kind: Pod, spec: {containers: [{resources: {limits: {1: 2}}}]}}",
            f"{CONTAINER}.limits.1: is not a resource name; one such as nvidia.com/gpu is expected",
        ),
        (
            "{kind: Pod, spec: {overhead: {cpu: lots}, containers: [{}]}}",
            "spec.overhead.cpu: is 'lots'; a quantity such as 3000Mi is expected",
        ),
        (
            "{kind: Deployment, spec: {replicas: 2000000000, template: {spec: " + SPEC + "}}}",
            "spec.replicas: is 2000000000; 1,000,000 at most are looked at",
        ),
        (
            CLAIM % "count: 1",
            f"{REQUEST}.deviceClassName: is empty; a class such as divvy-gpu is expected",
        ),
        (
            CLAIM % "deviceClassName: divvy-gpu, count: -3",
            f"{REQUEST}.count: is -3; 1 or more is expected",
        ),
        (
            CLAIM % "deviceClassName: divvy-gpu, selectors: [{cel: {}}]",
            f"{REQUEST}.selectors[0].cel.expression: is empty; an expression is expected",
        ),
        (
            CLAIM % "deviceClassName: divvy-share, capacity: {requests: {memory: lots}}",
            f"{REQUEST}.capacity.requests.memory: is 'lots'; a quantity such as 3000Mi is expected",
        ),
        (
            "{kind: Pod, spec: {tolerations: {}, containers: [{}]}}",
            "spec.tolerations: is {}; a list is expected",
        ),
    ],
)
def test_reports_a_problem_with_its_place(text: str, expected: str) -> None:
    assert problems(f"kind: Service\n---\n{text}") == [f"pods.yaml: document 2: {expected}"]


def test_reports_all_problems_at_once() -> None:
    wrong = "{kind: Pod, spec: {}}"
    assert len(problems(f"{wrong}\n---\n{wrong}")) == 2


def test_refuses_a_file_without_pods() -> None:
    (problem,) = problems("kind: Service")
    assert problem == "pods.yaml: has no pods: no object in it has containers, or asks for GPUs"


def test_refuses_a_list_that_contains_itself() -> None:
    (problem,) = problems("&l {kind: List, items: [*l]}")
    assert problem.endswith("is a List in 10 others: does it hold itself?")


def test_refuses_aliases_of_aliases_at_once() -> None:
    lines = ["kind: List", "a0: &a0 {kind: Service}"]
    lines += [
        f"a{n}: &a{n} {{kind: List, items: [{', '.join([f'*a{n - 1}'] * 10)}]}}"
        for n in range(1, 9)
    ]
    (problem,) = problems("\n".join([*lines, "items: [*a8]"]))
    expected = "are more than 100,000 objects: are YAML aliases repeated?"
    assert problem == f"pods.yaml: document 1: {expected}"


def test_reports_problems_for_values_of_any_shape() -> None:
    odd: list[Any] = [None, 3, "x", [], {}, [None], {"a": None}]
    for key in ("metadata", "spec"):
        for value in odd:
            body = {"kind": "Pod", "metadata": {"name": "a"}, "spec": yaml.safe_load(SPEC)}
            _reads({**body, key: value})
    for key in (
        *("containers", "initContainers", "nodeSelector", "affinity", "tolerations", "overhead"),
        *("resourceClaims", "schedulingGates", "priorityClassName", "volumes", "resources"),
        *("topologySpreadConstraints", "nodeName"),
    ):
        for value in odd:
            _reads({"kind": "Pod", "spec": {**yaml.safe_load(SPEC), key: value}})
            nested = {"spec": {**yaml.safe_load(SPEC), key: value}}
            _reads({"kind": "Deployment", "spec": {"replicas": value, "template": nested}})
    for value in odd:
        for key in ("exactly", "firstAvailable", "name"):
            requests = [{"name": "gpu", key: value}]
            claim = {"kind": "ResourceClaim", "metadata": {"name": "a"}}
            _reads({**claim, "spec": {"devices": {"requests": requests}}})
            _reads({**claim, "spec": {"devices": value}})
            _reads_for_pod({**claim, "spec": {"devices": value}})
            _reads({**claim, "spec": value})


def _reads(value: Any) -> None:
    with contextlib.suppress(InvalidValue):
        read_manifests([Document("pods.yaml: document 1", value)], CLUSTER)


def _reads_for_pod(claim: Any) -> None:
    """Read a claim with a pod that names it."""
    named = [{"name": "own", "resourceClaimName": "a"}]
    pod = {"kind": "Pod", "spec": {**yaml.safe_load(SPEC), "resourceClaims": named}}
    with contextlib.suppress(InvalidValue):
        read_manifests([Document("pods.yaml", claim), Document("pods.yaml", pod)], CLUSTER)
