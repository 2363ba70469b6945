"""What claims are offered, hold and were allocated."""

from __future__ import annotations

import json

import pytest

from divvy.agent.decide.claim_offers import claim_holders
from divvy.agent.decide.claim_record import (
    BadAllocation,
    OfferedGpu,
    allocated_gpus,
    decoded,
    encoded,
    held_claim,
)
from tests.agent.claim_values import BY_SIZE, ON_DEMAND, claim, claim_record, held, offered_gpu

OLD, NEW = offered_gpu(0, BY_SIZE), offered_gpu(0, ON_DEMAND)
OTHER = offered_gpu(1, BY_SIZE)


def by_uuid(*gpus: OfferedGpu) -> dict[str, OfferedGpu]:
    return {gpu.uuid: gpu for gpu in gpus}


def test_whoever_may_have_a_gpu_holds_it_for_the_plugin() -> None:
    record = claim_record(OLD, OTHER, claims=(claim("pod", held(OLD, "-share")),))
    holders = claim_holders(record)
    assert [each.pod for each in holders[OLD.uuid]] == ["default/pod"]
    assert [each.pod for each in holders[OTHER.uuid]] == [""]


def test_a_record_is_read_as_it_was_written() -> None:
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


def test_an_allocation_says_how_much_of_which_gpu() -> None:
    result = {
        **RESULT,
        "shareID": "s",
        "consumedCapacity": {"divvy.gpu/memory": "3000Mi", "cores": "30", "shares": "1"},
    }
    found = held_claim(
        resource_claim(result, {**RESULT, "driver": "x"}), "u", "node/divvy", by_uuid(OLD)
    )
    (device,) = found.devices
    assert (device.request, device.memory_mib, device.cores, device.share_id) == (
        "gpu",
        3000,
        30,
        "s",
    )
    assert found.pods == (("p", "pu"),)
    assert allocated_gpus([resource_claim(result)], "node/divvy") == {"gpu-0-share"}
    assert allocated_gpus([resource_claim(result), {"metadata": {}}], "other/divvy") == set()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (resource_claim(RESULT, uid="v"), "has been replaced"),
        ({"metadata": {"namespace": "team", "name": "c", "uid": "u"}}, "is not allocated"),
        (resource_claim({**RESULT, "pool": "other/divvy"}), "does not belong to this node"),
        (resource_claim({**RESULT, "device": "gpu-9"}), "not offered on this node any more"),
        (resource_claim({**RESULT, "adminAccess": True}), "admin access is not offered"),
    ],
)
def test_what_cannot_be_served_is_refused_with_a_sentence(
    value: dict[str, object], text: str
) -> None:
    with pytest.raises(BadAllocation, match=text):
        held_claim(value, "u", "node/divvy", by_uuid(OLD))
