"""Limits by size become claims: what a real API server makes of pods (dry runs)."""

from __future__ import annotations

import pytest

from divvy.model.claim_names import SizedRequest, parse_template_name, template_name
from tests.render.objects.claims.api_server import (
    CORES,
    GPU,
    MEMORY,
    NO,
    PERCENTAGE,
    USE,
    ApiServer,
    Limits,
    init,
    pod,
)

pytestmark = pytest.mark.lab


@pytest.mark.parametrize(
    ("limits", "annotations", "sized"),
    [
        ({GPU: 2, MEMORY: 3000, CORES: 30}, {}, SizedRequest(2, 3000, "m", 30)),
        ({MEMORY: 3000}, {}, SizedRequest(1, 3000, "m")),
        ({MEMORY: "3k"}, {}, SizedRequest(1, 3000, "m")),
        ({GPU: 1, MEMORY: 4096}, {}, SizedRequest(1, 4096, "m")),
        ({GPU: 1, CORES: 30}, {}, SizedRequest(1, 100, "p", 30)),
        ({PERCENTAGE: 25, CORES: 100}, {}, SizedRequest(1, 25, "p", 100)),
        ({GPU: 32, PERCENTAGE: 100}, {}, SizedRequest(32, 100, "p")),
        # As HAMi reads it, and as its default is: no cores were asked for.
        ({MEMORY: 4096, CORES: 0}, {}, SizedRequest(1, 4096, "m")),
        # Drivers report a little more or less than data sheets say.
        ({MEMORY: 41000}, {}, SizedRequest(1, 41000, "m")),
        ({MEMORY: 1}, {USE: "A100"}, SizedRequest(1, 1, "m", use_types=("a100",))),
        ({MEMORY: 1}, {USE: " "}, SizedRequest(1, 1, "m")),
        ({GPU: 1}, {USE: "A100"}, SizedRequest(1, 1, "g", use_types=("a100",))),
        ({GPU: 4}, {NO: "T4"}, SizedRequest(4, 1, "g", no_types=("t4",))),
        ({MEMORY: 1}, {NO: ",T4, ,"}, SizedRequest(1, 1, "m", no_types=("t4",))),
        (
            {MEMORY: 1},
            {USE: "H100,NVIDIA A100-SXM4-40GB,a100,A100", NO: "T4, Tesla_V100"},
            SizedRequest(
                *(1, 1, "m", None, ("a100", "h100", "nvidia-a100-sxm4-40gb")),
                no_types=("t4", "tesla-v100"),
            ),
        ),
    ],
)
def test_turns_limits_into_a_template_named_after_the_request(
    server: ApiServer, limits: Limits, annotations: dict[str, str], sized: SizedRequest
) -> None:
    answer = server.dry_run(pod({**limits, "cpu": "100m"}, annotations=annotations))
    assert answer.templates == {"divvy-c0": template_name(sized)}
    assert parse_template_name(template_name(sized)) == sized
    assert answer.claims_of() == [["divvy-c0"]]
    # What the API server has made of limits as requests is gone, too.
    assert answer.resources()[0]["limits"] == {"cpu": "100m"}
    assert answer.resources()[0]["requests"] == {"cpu": "100m"}
    assert answer.body["metadata"]["labels"] == {"divvy.gpu/by-size": "true"}


@pytest.mark.parametrize(
    "limits",
    [
        {GPU: 0},
        {GPU: 1, CORES: 0},
        {"cpu": 1},
        {},
        {"nvidia.com/mig-1g.5gb": 1},
        {"nvidia.com/gpu.shared": 1},
    ],
)
def test_leaves_pods_alone_that_do_not_ask_by_size(server: ApiServer, limits: Limits) -> None:
    annotations = {} if CORES in limits else {USE: "odd!"}
    answer = server.dry_run(pod(limits, annotations=annotations))
    assert "resourceClaims" not in answer.body["spec"]
    assert "labels" not in answer.body["metadata"]
    assert set(answer.resources()[0].get("limits", {})) == set(limits)


def test_gives_each_container_its_own_claim(server: ApiServer) -> None:
    answer = server.dry_run(pod({MEMORY: 10}, {"cpu": 1}, {MEMORY: 20}, {GPU: 1}, {MEMORY: 10}))
    assert answer.templates == {
        "divvy-c0": "divvy-1x10m",
        "divvy-c2": "divvy-1x20m",
        "divvy-c4": "divvy-1x10m",
    }
    assert answer.claims_of() == [["divvy-c0"], [], ["divvy-c2"], [], ["divvy-c4"]]
    assert answer.resources()[3]["limits"] == {GPU: "1"}


def test_shares_a_containers_claim_with_an_earlier_init_container(server: ApiServer) -> None:
    before = [
        init({MEMORY: 20}, number=0),
        init({MEMORY: 20}, sidecar=True, number=1),
        init({MEMORY: 30}, number=2),
        init({MEMORY: 30}, number=3),
        init({"cpu": 1}, number=4),
    ]
    answer = server.dry_run(pod({MEMORY: 10}, {MEMORY: 20}, initContainers=before))
    claims = answer.claims_of("initContainers")
    assert claims == [["divvy-c1"], ["divvy-i3"], ["divvy-i4"], ["divvy-i4"], []]
    assert answer.claims_of() == [["divvy-c0"], ["divvy-c1"]]
    assert answer.templates == {
        "divvy-c0": "divvy-1x10m",
        "divvy-c1": "divvy-1x20m",
        "divvy-i3": "divvy-1x20m",
        "divvy-i4": "divvy-1x30m",
    }


def test_keeps_a_sidecars_claim_from_a_later_init_container(server: ApiServer) -> None:
    before = [init({MEMORY: 20}, sidecar=True), init({MEMORY: 20}, number=1)]
    answer = server.dry_run(pod({"cpu": 1}, initContainers=before))
    assert answer.claims_of("initContainers") == [["divvy-i1"], ["divvy-i2"]]


def test_keeps_claims_that_a_pod_already_has(server: ApiServer) -> None:
    mine = {"name": "mine", "resourceClaimName": "made-before"}
    asking = pod({MEMORY: 10}, resourceClaims=[mine])
    asking["spec"]["containers"][0]["resources"]["claims"] = [{"name": "mine"}]
    asking["metadata"]["labels"] = {"app": "x"}
    answer = server.dry_run(asking)
    assert answer.body["spec"]["resourceClaims"][0] == mine
    assert answer.templates == {"divvy-c0": "divvy-1x10m"}
    assert answer.claims_of() == [["mine", "divvy-c0"]]
    assert answer.body["metadata"]["labels"] == {"app": "x", "divvy.gpu/by-size": "true"}


def test_accepts_a_generated_pod_name(server: ApiServer) -> None:
    asking = pod({MEMORY: 10})
    asking["metadata"]["generateName"] = "job-"
    del asking["metadata"]["name"]
    assert server.dry_run(asking).templates == {"divvy-c0": "divvy-1x10m"}


def test_removes_requests_equal_to_the_limits_with_them(server: ApiServer) -> None:
    asking = pod({GPU: 1, MEMORY: 3000})
    asking["spec"]["containers"][0]["resources"]["requests"] = {MEMORY: "3k", "cpu": "1"}
    assert server.dry_run(asking).resources()[0]["requests"] == {"cpu": "1"}


def test_takes_the_tenant_from_the_namespace(server: ApiServer) -> None:
    assert server.dry_run(pod({MEMORY: 10})).templates == {"divvy-c0": "divvy-1x10m"}
    answer = server.dry_run(pod({MEMORY: 10}, namespace="prod", annotations={NO: "t4"}))
    assert answer.templates == {"divvy-c0": "divvy-1x10m.no.t4.tenant.prod"}


def test_stays_within_the_limits_of_cel_for_many_containers_and_types(server: ApiServer) -> None:
    limits = [{GPU: 1, MEMORY: 100 + number, CORES: 10} for number in range(40)]
    types = {USE: ",".join(f"A100-{n}" for n in range(15)) + ",A100", NO: "T4,V100,P100"}
    assert len(server.dry_run(pod(*limits, annotations=types)).templates) == 40


@pytest.mark.parametrize("annotations", [{}, {USE: " "}, {"other": "A100"}])
def test_keeps_whole_gpus_of_any_type_a_resource(
    server: ApiServer, annotations: dict[str, str]
) -> None:
    answer = server.dry_run(pod({GPU: 1}, annotations=annotations))
    assert "resourceClaims" not in answer.body["spec"]
    assert "labels" not in answer.body["metadata"]
    assert answer.resources()[0]["limits"] == {GPU: "1"}


def test_applies_types_to_the_containers_with_gpus(server: ApiServer) -> None:
    answer = server.dry_run(
        pod({GPU: 0}, {GPU: 1}, {"nvidia.com/mig-1g.5gb": 1}, annotations={USE: "A100"})
    )
    assert answer.templates == {"divvy-c1": "divvy-1x1g.use.a100"}
    assert answer.resources()[0]["limits"] == {GPU: "0"}
    assert "limits" not in answer.resources()[1]


def test_requests_whole_gpus_of_a_type_without_a_tenant(server: ApiServer) -> None:
    for namespace in ("prod", "qa"):  # the cluster does not know the tenant qa
        asking = pod({GPU: 1}, namespace=namespace, annotations={USE: "A100"})
        assert server.dry_run(asking).templates == {"divvy-c0": "divvy-1x1g.use.a100"}
