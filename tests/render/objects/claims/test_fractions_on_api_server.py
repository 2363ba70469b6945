"""KAI's and Run:ai's parts of GPUs become claims, for a real API server and for `divvy fit`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from divvy.model import parse_document
from divvy.plan.fit.sizes import read_sizes
from tests.render.objects.claims.api_server import CORES, GPU, MEMORY, ApiServer, Limits, init, pod
from tests.render.objects.claims.conftest import CLUSTER, serving

pytestmark = pytest.mark.lab
FRACTIONS = {**CLUSTER, "names": {"fraction": "gpu-fraction"}}
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
        ({"gpu-fraction": "0.5", "gpu-fraction.limit": "0.5"}, "divvy-1x50p"),
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
        ({}, {"gpu-memory.limit": "2"}, "the pod has neither gpu-fraction nor gpu-memory,"),
        ({}, {"gpu-fraction": "0.5", NUMBER: "0"}, f"{NUMBER} is 0; a number of GPUs such as 2"),
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
            f".request is not supported; write gpu-memory and {NAME} instead",
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
    assert fitted(given)[0] == refusal


def test_refuses_more_memory_than_a_gpu_has(server: ApiServer) -> None:
    refusal = server.dry_run(pod({}, annotations={"gpu-memory": "90000"})).refusal
    assert refusal.startswith("container main-0: nvidia.com/gpumem is 90000 (MiB); 1 to 40960")


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
