"""What a claim was allocated of a node, as the API tells it."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import pytest

from divvy.agent.claims.record import (
    BadAllocation,
    ClaimRecord,
    allocated_gpus,
    decoded,
    encoded,
    held_claim,
    repair_from_copies,
)
from divvy.model.offered_gpu import OfferedGpu
from tests.agent.claim_values import (
    BY_SIZE,
    MEMORY,
    ON_DEMAND,
    claim,
    claim_record,
    held,
    offered_gpu,
)

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


@pytest.mark.parametrize(("strategy", "is_served"), [("TimeSlicing", True), ("MPS", False)])
def test_serves_or_refuses_parameters_for_nvidias_driver_by_name(
    strategy: str, is_served: bool
) -> None:
    claim = allocated({})
    parameters = {
        "apiVersion": "resource.nvidia.com/v1beta1",
        "kind": "GpuConfig",
        "sharing": {"strategy": strategy},
    }
    opaque = {"driver": "gpu.nvidia.com", "parameters": parameters}
    # From a class, which a user does not see.
    claim["status"]["allocation"]["devices"]["config"] = [{"source": "FromClass", "opaque": opaque}]
    offered = {OFFERED.uuid: OFFERED}
    if is_served:
        assert len(held_claim(claim, "u", "node/divvy", offered).devices) == 1
        return
    with pytest.raises(BadAllocation, match=r"claim team/train has parameters .* MPS is not"):
        held_claim(claim, "u", "node/divvy", offered)


@pytest.mark.parametrize("prefix", ["", "divvy.gpu/"])
def test_reads_the_sizes_of_a_share(prefix: str) -> None:
    consumed = {f"{prefix}memory": "3000Mi", f"{prefix}cores": "30"}
    claim = held_claim(allocated(consumed), "u", "node/divvy", {OFFERED.uuid: OFFERED})
    assert [(held.memory_mib, held.cores) for held in claim.devices] == [(3000, 30)]


@pytest.mark.parametrize(
    "consumed", [{"cores": "1500m"}, {"memory": "5n"}, {"cores": "-1"}, {"memory": "lots"}]
)
def test_reports_an_invalid_size_in_one_sentence(consumed: dict[str, str]) -> None:
    (value,) = consumed.values()
    with pytest.raises(BadAllocation) as raised:
        held_claim(allocated(consumed), "u", "node/divvy", {OFFERED.uuid: OFFERED})
    assert str(raised.value) == (
        f"device {DEVICE} was allocated in part: {value!r} is not a whole number"
    )


GPU, TWO = offered_gpu(0, ON_DEMAND), offered_gpu(1)
FIRST = claim("first", held(GPU, "-mig-1g5gb-0"))
SECOND = claim("second", held(GPU, "-mig-3g20gb-0"))
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
def test_believes_copies_that_are_newer_than_the_record(
    claims: tuple[Any, ...], copied: tuple[Any, ...], right: tuple[Any, ...]
) -> None:
    record = repair_from_copies(claim_record(GPU, claims=claims), claim_record(TWO, claims=copied))
    assert set(record.claims) == {right_claim.uid for right_claim in right}
    assert (TWO.uuid in record.offered) == (
        set(record.claims) != {held_claim.uid for held_claim in claims}
    )
    assert repair_from_copies(record, ClaimRecord()) == record


OLD, NEW = offered_gpu(0, BY_SIZE), offered_gpu(0, ON_DEMAND)
OTHER = offered_gpu(1, BY_SIZE)


def by_uuid(*gpus: OfferedGpu) -> dict[str, OfferedGpu]:
    return {gpu.uuid: gpu for gpu in gpus}


def test_reads_back_a_written_record() -> None:
    devices = (held(NEW, "-mig-1g5gb-0", has_instance=True), held(OTHER, "-share", 3000, 30))
    record = claim_record(NEW, OTHER, claims=(claim("one", *devices),))
    assert decoded(json.loads(json.dumps(encoded(record)))) == record


RESULT = {"request": "gpu/s0", "driver": "divvy.gpu", "pool": "node/divvy", "device": "gpu-0-share"}


def resource_claim(*results: object, uid: str = "u") -> dict[str, object]:
    return {
        "metadata": {"namespace": "team", "name": "c", "uid": uid},
        "status": {
            "allocation": {"devices": {"results": list(results)}},
            "reservedFor": [{"resource": "pods", "name": "p", "uid": "pu"}],
        },
    }


def test_reads_devices_and_amounts_from_an_allocation() -> None:
    result = {
        **RESULT,
        "shareID": "s",
        "consumedCapacity": {"divvy.gpu/memory": "3000Mi", "cores": "30", "shares": "1"},
    }
    held = held_claim(
        resource_claim(result, {**RESULT, "driver": "x"}), "u", "node/divvy", by_uuid(OLD)
    )
    (device,) = held.devices
    assert (device.request, device.memory_mib, device.cores, device.share_id) == (
        "gpu",
        3000,
        30,
        "s",
    )
    assert held.pods == (("p", "pu"),)
    assert allocated_gpus([resource_claim(result)], "node/divvy") == {"gpu-0-share"}
    assert allocated_gpus([resource_claim(result), {"metadata": {}}], "other/divvy") == set()
    # A GPU does not wait for what is never prepared.
    assert not allocated_gpus([resource_claim({**result, "adminAccess": True})], "node/divvy")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (resource_claim(RESULT, uid="v"), "has been replaced"),
        ({"metadata": {"namespace": "team", "name": "c", "uid": "u"}}, "is not allocated"),
        (resource_claim(), "is allocated no device of divvy.gpu"),
        (resource_claim({**RESULT, "driver": "x"}), "is allocated no device of divvy.gpu"),
        (resource_claim({**RESULT, "pool": "other/divvy"}), "does not belong to this node"),
        (resource_claim({**RESULT, "device": "gpu-9"}), "no longer offered on this node"),
        (resource_claim({**RESULT, "adminAccess": True}), "admin access is not offered"),
    ],
)
def test_refuses_what_it_cannot_serve_in_one_sentence(value: dict[str, object], text: str) -> None:
    with pytest.raises(BadAllocation, match=text):
        held_claim(value, "u", "node/divvy", by_uuid(OLD))


def test_adds_up_exactly_what_shares_take() -> None:
    """GPUs of which shares take as much stand in the order of their index, whatever the shares."""
    gpus = [offered_gpu(index) for index in range(2)]
    parts = [(0, "a", 10), (0, "b", 20), (1, "c", 30)]
    claims = tuple(
        claim(name, held(gpus[index], "-share", MEMORY * cores // 100, cores))
        for index, name, cores in parts
    )
    shares = claim_record(*gpus, claims=claims).allocated_to_shares()
    assert shares == {"GPU-0": Fraction(3, 5), "GPU-1": Fraction(3, 5)}
