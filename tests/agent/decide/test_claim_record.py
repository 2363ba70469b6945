"""What a claim was allocated of a node, as the API tells it."""

from __future__ import annotations

from typing import Any

import pytest

from divvy.agent.decide.claim_record import BadAllocation, ClaimRecord, held_claim, put_right
from tests.agent.claim_values import ON_DEMAND, claim, claim_record, held, offered_gpu

OFFERED = offered_gpu()
DEVICE = OFFERED.gpu.devices[0].name


def allocated(consumed: dict[str, Any]) -> dict[str, Any]:
    """Return a claim that was allocated so much of a share."""
    result = {
        "driver": "divvy.gpu",
        "pool": "node/divvy",
        "device": DEVICE,
        "request": "gpu",
        "consumedCapacity": consumed,
    }
    return {
        "metadata": {"namespace": "team", "name": "train", "uid": "u"},
        "status": {"allocation": {"devices": {"results": [result]}}},
    }


@pytest.mark.parametrize("prefix", ["", "divvy.gpu/"])
def test_sizes_of_a_share(prefix: str) -> None:
    consumed = {f"{prefix}memory": "3000Mi", f"{prefix}cores": "30"}
    claim = held_claim(allocated(consumed), "u", "node/divvy", {OFFERED.uuid: OFFERED})
    assert [(held.memory_mib, held.cores) for held in claim.devices] == [(3000, 30)]


@pytest.mark.parametrize(
    "consumed", [{"cores": "1500m"}, {"memory": "5n"}, {"cores": "-1"}, {"memory": "lots"}]
)
def test_a_size_that_is_none_is_said_in_one_sentence(consumed: dict[str, str]) -> None:
    (value,) = consumed.values()
    with pytest.raises(BadAllocation) as raised:
        held_claim(allocated(consumed), "u", "node/divvy", {OFFERED.uuid: OFFERED})
    assert str(raised.value) == (
        f"device {DEVICE} was allocated in part: {value!r} is no whole quantity"
    )


ONE, TWO = offered_gpu(0, ON_DEMAND), offered_gpu(1)
FIRST = claim("first", held(ONE, "-mig-1g5gb-0"))
SECOND = claim("second", held(ONE, "-mig-3g20gb-0"))
SHARE = claim("share", held(TWO, "-share", 3000, 30))


@pytest.mark.parametrize(
    ("claims", "copied", "right"),
    [
        ((FIRST, SHARE), (), (FIRST, SHARE)),  # the node has booted
        ((FIRST, SHARE), (SHARE,), (FIRST, SHARE)),  # somebody has removed a copy
        ((), (FIRST,), (FIRST,)),
        ((FIRST,), (SECOND,), (SECOND,)),
        ((FIRST, SHARE), (SECOND, SHARE), (SECOND, SHARE)),
        ((claim("first", prepared=False),), (SHARE,), (SHARE,)),
    ],
)
def test_copies_are_believed_where_they_are_newer_than_the_record(
    claims: tuple[Any, ...], copied: tuple[Any, ...], right: tuple[Any, ...]
) -> None:
    found = put_right(claim_record(ONE, claims=claims), claim_record(TWO, claims=copied))
    assert set(found.claims) == {one.uid for one in right}
    assert (TWO.uuid in found.offered) == (set(found.claims) != {one.uid for one in claims})
    assert put_right(found, ClaimRecord()) == found
