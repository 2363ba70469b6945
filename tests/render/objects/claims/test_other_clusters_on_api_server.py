"""Clusters with names of their own, with tenants alone, of unknown hardware."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.render.objects.claims.api_server import GPU, MEMORY, USE, ApiServer, pod
from tests.render.objects.claims.conftest import serving

pytestmark = pytest.mark.lab
OWN, OWN_MEMORY, OWN_CORES = "example.com/vgpu", "example.com/vgpu-memory", "example.com/vgpu-cores"
APART = {
    "names": {"gpu": OWN, "memory": OWN_MEMORY, "cores": OWN_CORES},
    "profiles": {"apart": {"claims": {"shares": {}, "tenants": ["prod", "dev"]}}},
    "pools": {"all": {"profile": "apart"}},
}


@pytest.fixture(scope="module")
def other() -> Iterator[ApiServer]:
    with serving(APART, memory=OWN_MEMORY) as api_server:
        yield api_server


def test_reads_requests_under_the_stack_files_names(other: ApiServer) -> None:
    answer = other.dry_run(pod({OWN: 2, OWN_MEMORY: 300, OWN_CORES: 7}, namespace="dev"))
    assert answer.templates == {"divvy-c0": "divvy-2x300m-7c.tenant.dev"}
    assert "limits" not in answer.resources()[0]


def test_ignores_the_usual_names_under_own_ones(other: ApiServer) -> None:
    assert other.dry_run(pod({GPU: 1, MEMORY: 300})).refusal == ""
    refusal = other.dry_run(pod({GPU: 1, OWN_MEMORY: 300}, namespace="dev")).refusal
    assert refusal == (
        f"container main-0 has {GPU} together with {OWN_MEMORY}; request GPUs in only one way"
    )


def test_requires_a_tenants_namespace_when_all_shares_are_for_tenants(other: ApiServer) -> None:
    assert other.dry_run(pod({OWN_MEMORY: 300})).refusal == (
        "the namespace default has no label divvy.gpu/tenant, and GPUs by size are for the "
        "tenants dev, prod"
    )
    assert other.dry_run(pod({OWN: 1})).refusal == ""


def test_refuses_only_impossible_sizes_without_hardware(other: ApiServer) -> None:
    known = other.dry_run(pod({OWN_MEMORY: 2_000_000}, namespace="dev", annotations={USE: "B900"}))
    assert known.refusal == ""
    refusal = other.dry_run(pod({OWN_MEMORY: 5_000_000}, namespace="dev")).refusal
    assert refusal == f"container main-0: {OWN_MEMORY} is 5000000 (MiB); 1 to 4194304 are possible"
