"""Whoever was allocated what is held still waits for exactly those who hold it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from divvy.agent.claims.conflicts import in_the_way
from divvy.agent.claims.record import HeldClaim
from divvy.model.claim_devices import CORES
from divvy.model.offered_gpu import OfferedGpu
from tests.agent.claim_values import ON_DEMAND, claim, held, offered_gpu

TENANTS = {"shares": {}, "tenants": ["prod", "dev"]}


def waits_for(device: str, *others: str, claims: object = ON_DEMAND) -> list[str]:
    gpu = offered_gpu(0, claims)
    holding = [
        claim(f"{at}{suffix}", held(gpu, suffix, 1000, 10)) for at, suffix in enumerate(others)
    ]
    conflicts = in_the_way(claim("asked", held(gpu, device, 1000, 10)), holding, {gpu.uuid: gpu})
    return [other.name for other in conflicts]


@pytest.mark.parametrize(
    ("device", "others", "expected"),
    [
        ("-share", ("-share", "-share"), []),
        ("", ("-share",), ["0-share"]),
        ("", ("",), ["0"]),
        ("-share", ("",), ["0"]),
        ("-mig-1g5gb-0", ("-mig-1g5gb-1", "-mig-3g20gb-4"), []),
        ("-mig-1g5gb-0", ("-mig-2g10gb-0", "-mig-3g20gb-4"), ["0-mig-2g10gb-0"]),
        ("-mig-1g5gb-0", ("-mig-1g5gb-0",), ["0-mig-1g5gb-0"]),
        ("-mig-3g20gb-0", ("-share",), ["0-share"]),
        ("-share", ("-mig-1g5gb-6",), ["0-mig-1g5gb-6"]),
    ],
)
def test_excludes_conflicting_modes_of_a_gpu(
    device: str, others: tuple[str, ...], expected: list[str]
) -> None:
    assert waits_for(device, *others) == expected


def test_keeps_tenants_apart() -> None:
    assert waits_for("-share-prod", "-share-prod", claims=TENANTS) == []
    assert waits_for("-share-prod", "-share-dev", claims=TENANTS) == ["0-share-dev"]


def test_ignores_other_gpus_and_the_claim_itself_in_a_conflict() -> None:
    gpus = {gpu.uuid: gpu for gpu in (offered_gpu(0), offered_gpu(1))}
    first, other = gpus.values()
    new = claim("asked", held(first, "-share"))
    assert in_the_way(new, [new, claim("other", held(other, "-share"))], gpus) == ()


def test_waits_with_a_share_until_the_gpu_has_room() -> None:
    gpu = offered_gpu(0, {"shares": {"max": 2}})
    small = claim("small", held(gpu, "-share", 30000, 10))

    def waits(*others: HeldClaim, memory: int = 1000, cores: int = 10) -> int:
        new = claim("asked", held(gpu, "-share", memory, cores))
        return len(in_the_way(new, [small, *others], {gpu.uuid: gpu}))

    assert waits() == 0
    assert waits(memory=20000) == 1
    assert waits(cores=91) == 1
    assert waits(claim("third", held(gpu, "-share", 1, 1))) == 2  # max: 2


@given(
    st.lists(
        st.tuples(st.integers(1, 40960), st.integers(1, 100), st.booleans()),
        min_size=1,
        max_size=12,
    )
)
def test_prepares_never_more_than_a_gpu_has(requests: list[tuple[int, int, bool]]) -> None:
    gpu = offered_gpu()
    offered: dict[str, OfferedGpu] = {gpu.uuid: gpu}
    prepared: list[HeldClaim] = []
    for at, (memory, cores, give_back) in enumerate(requests):
        new = claim(str(at), held(gpu, "-share", memory, cores))
        if not in_the_way(new, prepared, offered):
            prepared.append(new)
        elif give_back:
            prepared.pop(0)
        assert sum(prepared_claim.devices[0].memory_mib for prepared_claim in prepared) <= 40960
        assert sum(prepared_claim.devices[0].cores for prepared_claim in prepared) <= CORES
