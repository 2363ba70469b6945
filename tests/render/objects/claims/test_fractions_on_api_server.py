"""KAI's and Run:ai's parts of GPUs become claims, for a real API server and for `divvy fit`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from divvy.model import parse_document
from divvy.model.api_names import PRIORITY
from divvy.plan.fit.sizes import read_sizes
from tests.render.objects.claims.api_server import CORES, GPU, MEMORY, ApiServer, Limits, init, pod
from tests.render.objects.claims.conftest import CLUSTER, serving

pytestmark = pytest.mark.lab
FRACTIONS = {**CLUSTER, "names": {"fraction": "gpu-fraction", "classes": "nvidia"}}
NUMBER, NAME = "gpu-fraction-num-devices", "gpu-fraction-container-name"


@pytest.fixture(scope="module")
def server() -> Iterator[ApiServer]:
    with serving(FRACTIONS) as api_server:
        yield api_server


def fitted(given: dict[str, Any]) -> tuple[str, list[tuple[int, int | None, int | None]]]:
    """Return why `divvy fit` would refuse a pod, and what it reads as its claims."""
    cluster = parse_document(FRACTIONS).cluster
    sizes = read_sizes(given["spec"], given["metadata"], cluster, {})
    return sizes.refused.removeprefix("it would be refused: "), [
        (request.count, request.memory_mib, request.percent) for request in sizes.requests
    ]


@pytest.mark.parametrize(
    ("annotations", "template"),
    [
        ({"gpu-fraction": "0.5"}, "divvy-1x50p"),
        ({"gpu-fraction": ".25"}, "divvy-1x25p"),
        ({"gpu-fraction": "0.05"}, "divvy-1x5p"),
        ({"gpu-fraction": "0.290"}, "divvy-1x29p"),
        ({"gpu-fraction": "0.333"}, "divvy-1x33p"),
        ({"gpu-fraction": "0.5", NUMBER: "2"}, "divvy-2x50p"),
        ({"gpu-memory": "2000"}, "divvy-1x2000m"),
        ({"gpu-memory": "2000", "gpu-sm-percentage": "30"}, "divvy-1x2000m-30c"),
    ],
)
def test_turns_annotations_into_a_template(
    server: ApiServer, annotations: dict[str, str], template: str
) -> None:
    given = pod({"cpu": "100m"}, annotations={**annotations, "mine": "stays"})
    answer = server.dry_run(given)
    assert answer.templates == {"divvy-c0": template}
    assert answer.claims_of() == [["divvy-c0"]]
    assert answer.resources()[0]["limits"] == {"cpu": "100m"}
    kept = answer.body["metadata"]["annotations"]
    assert kept.pop("divvy.gpu/fraction") == " ".join(
        f"{name}={value}" for name, value in annotations.items()
    )
    assert kept.pop("mine") == "stays"
    assert not kept
    refused, claims = fitted(given)
    assert (refused, len(claims)) == ("", 1)


@pytest.mark.parametrize(
    ("limits", "annotations", "reason"),
    [
        ({}, {"gpu-fraction": "1.5"}, "gpu-fraction is 1.5; 0.01 to 0.99 is expected"),
        ({}, {"gpu-fraction": "0.001"}, "gpu-fraction is 0.001; 0.01 to 0.99 is expected"),
        ({}, {"gpu-fraction": ""}, "gpu-fraction is ; 0.01 to 0.99 is expected"),
        ({}, {"gpu-memory": "2Gi"}, "gpu-memory is 2Gi; a whole number of MiB such as 2000 is"),
        ({}, {"gpu-memory": "0"}, "gpu-memory is 0; a whole number of MiB such as 2000 is"),
        ({}, {"gpu-fraction": "0.5", "gpu-memory": "2000"}, "both gpu-fraction and gpu-memory;"),
        ({}, {NUMBER: "2"}, "the pod has neither gpu-fraction nor gpu-memory, without which"),
        ({}, {"gpu-memory.limit": "2"}, "gpu-memory.limit is not supported; the memory of a share"),
        ({}, {"gpu-fraction": "0.5", NUMBER: "0"}, f"{NUMBER} is 0; 1 to 32 GPUs are expected"),
        ({}, {"gpu-fraction": "0.5", NUMBER: "33"}, f"{NUMBER} is 33; 1 to 32 GPUs are expected"),
        ({}, {"gpu-memory": "99999999"}, "gpu-memory is 99999999; a whole number of MiB such as"),
        ({}, {"gpu-fraction": "0.5\n"}, "gpu-fraction is 0.5 ; 0.01 to 0.99 is expected"),
        ({}, {"gpu-fraction": "x" * 60_000}, f"gpu-fraction is {'x' * 40}; 0.01 to 0.99 is"),
        (
            {},
            {"gpu-fraction": "0.5", NAME: "x\n" * 4_000},
            f"{NAME} names {'x ' * 20}, and the pod has no such container",
        ),
        (
            {},
            {"gpu-fraction": "0.5", "gpu-memory.limit": "9000"},
            "gpu-memory.limit is not supported; the memory of a share is its limit;",
        ),
        (
            {},
            {"gpu-fraction": "0.5", "kai.scheduler/container.a.gpu-memory.portion.limit": "0.8"},
            ".portion.limit is not supported; leave it out; gpu-memory with",
        ),
        ({"nvidia.com/mig-1g.5gb": 1}, {"gpu-fraction": "0.5"}, "has nvidia.com/mig-1g.5gb tog"),
        ({"nvidia.com/gpu.shared": 1}, {"gpu-fraction": "0.5"}, "has nvidia.com/gpu.shared tog"),
        (
            {},
            {"gpu-memory": "2000", "gpu-memory.limit": "4000"},
            "gpu-memory.limit is not supported; the memory of a share is its limit;",
        ),
        (
            {},
            {"gpu-memory": "2000", "gpu-sm-cores": "20"},
            "gpu-sm-cores is not supported; write gpu-sm-percentage instead",
        ),
        (
            {},
            {"nvidia.com/container.a.gpu-memory.request": "2Gi"},
            f".request is not supported; leave it out; gpu-memory with {NAME} gives one",
        ),
        ({}, {"gpu-fraction": "0.5", NAME: "absent"}, f"{NAME} names absent, and the pod has no"),
        (
            {GPU: 1},
            {"gpu-fraction": "0.5"},
            f"container main-0 has {GPU} together with the annotation gpu-fraction;",
        ),
        ({MEMORY: 10}, {"gpu-memory": "10"}, f"container main-0 has {MEMORY} together with the"),
    ],
)
def test_refuses_what_is_no_part_of_a_gpu_and_fit_says_the_same(
    server: ApiServer, limits: Limits, annotations: dict[str, str], reason: str
) -> None:
    given = pod(limits, annotations=annotations)
    refusal = server.dry_run(given).refusal
    assert reason in refusal
    assert len(refusal) < 250
    assert fitted(given)[0] == refusal


def test_refuses_more_memory_than_a_gpu_has(server: ApiServer) -> None:
    refusal = server.dry_run(pod({}, annotations={"gpu-memory": "90000"})).refusal
    assert refusal.startswith("container main-0: gpu-memory is 90000 (MiB); 1 to 40960")


def test_refuses_gpus_in_requests_beside_an_annotation(server: ApiServer) -> None:
    """Without a limit: removed, they would be gone in silence, and Kubernetes' own refusal too."""
    given = pod({}, annotations={"gpu-fraction": "0.5"})
    given["spec"]["containers"][0]["resources"] = {"requests": {GPU: "1"}}
    assert "Limit must be set" in server.dry_run(given).body["message"]
    assert fitted(given)[0].startswith(f"container main-0 has {GPU} together with the annotation")


def test_refuses_a_pod_of_a_job_for_which_kueue_has_counted_nothing(server: ApiServer) -> None:
    given = pod({}, annotations={"gpu-fraction": "0.5"})
    given["metadata"]["labels"] = {"kueue.x-k8s.io/podset": "main"}
    refusal = server.dry_run(given).refusal
    assert refusal.startswith("Kueue has counted no GPU for this pod: in a Job it does not read")
    assert fitted(given)[0] == refusal


def test_names_the_same_of_several_annotations_each_time(server: ApiServer) -> None:
    annotations = {f"nvidia.com/container.{name}.mode": "x" for name in "fedcba"}
    given = pod({}, annotations={"gpu-fraction": "0.5", "gpu-sm-cores": "1", **annotations})
    refusals = {server.dry_run(given).refusal for _ in range(10)}
    assert refusals == {fitted(given)[0]}
    assert "gpu-sm-cores" in refusals.pop()


def test_removes_hamis_priority_beside_a_fraction(server: ApiServer) -> None:
    """No node has it: a pod that kept it would wait for good."""
    answer = server.dry_run(pod({PRIORITY: 1}, annotations={"gpu-fraction": "0.5"}))
    assert answer.templates == {"divvy-c0": "divvy-1x50p"}
    assert not answer.resources()[0].get("limits")


def test_warns_of_no_second_apply_where_limits_stay_as_they_were(server: ApiServer) -> None:
    """Kubectl apply then finds nothing that a pod may not change."""
    applied = {"kubectl.kubernetes.io/last-applied-configuration": "{}"}
    by_limit = server.dry_run(pod({MEMORY: 3000}, annotations=applied))
    assert any("cannot be applied again" in warning for warning in by_limit.warnings)
    named = server.dry_run(pod({}, annotations={**applied, "gpu-fraction": "0.5"}))
    assert not any("cannot be applied again" in warning for warning in named.warnings)


def test_fit_counts_a_live_pod_once_to_which_its_annotations_were_applied_again() -> None:
    given = pod({}, annotations={"gpu-fraction": "0.5", "divvy.gpu/fraction": "gpu-fraction=0.5"})
    given["spec"]["resourceClaims"] = [
        {"name": "divvy-c0", "resourceClaimTemplateName": "divvy-1x50p"}
    ]
    assert fitted(given) == ("", [])


def test_gives_the_part_to_the_container_that_the_annotation_names(server: ApiServer) -> None:
    second = pod({"cpu": 1}, {"cpu": 1}, annotations={"gpu-fraction": "0.5", NAME: "main-1"})
    assert server.dry_run(second).claims_of() == [[], ["divvy-c1"]]
    warm = {"gpu-fraction": "0.5", NAME: "init-0"}
    before = server.dry_run(pod({"cpu": 1}, annotations=warm, initContainers=[init({})]))
    assert before.claims_of() == [[]]
    assert before.claims_of("initContainers") == [["divvy-i1"]]
    assert fitted(second)[1] == [(1, None, 50)]


def test_keeps_reading_limits(server: ApiServer) -> None:
    answer = server.dry_run(pod({MEMORY: 3000, CORES: 30}))
    assert answer.templates == {"divvy-c0": "divvy-1x3000m-30c"}
    assert "annotations" not in answer.body["metadata"]
