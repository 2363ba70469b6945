"""What is offered changes only when no claim has anything of it; the record says it all."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from divvy.agent.decide.claim_offers import claim_holders, next_offers, plugin_is_done
from divvy.agent.decide.claim_record import (
    BadAllocation,
    OfferedGpu,
    allocated_gpus,
    decoded,
    encoded,
    held_claim,
)
from divvy.agent.decide.desired import DesiredState
from divvy.agent.decide.inventory import AdvertisedGpu
from divvy.agent.decide.reconciliation import KubeletView
from divvy.agent.decide.transition import Decision
from divvy.model import DesiredGpu, DesiredNode
from divvy.model.claims import Claims
from divvy.model.contract import State
from tests.agent.claim_values import BY_SIZE, ON_DEMAND, claim, claim_record, held, offered_gpu
from tests.agent.devices import gpu, snapshot

OLD, NEW = offered_gpu(0, BY_SIZE), offered_gpu(0, ON_DEMAND)
OTHER = offered_gpu(1, BY_SIZE)


def by_uuid(*gpus: OfferedGpu) -> dict[str, OfferedGpu]:
    return {gpu.uuid: gpu for gpu in gpus}


def test_a_gpu_keeps_its_devices_while_a_claim_may_have_one() -> None:
    offers = next_offers(by_uuid(OLD, OTHER), by_uuid(NEW, OTHER), free=(), add=True)
    assert offers.offered == by_uuid(OLD, OTHER)
    assert offers.retiring == {OLD.uuid}
    offers = next_offers(by_uuid(OLD, OTHER), by_uuid(NEW, OTHER), free={OLD.uuid}, add=True)
    assert offers.offered == by_uuid(NEW, OTHER)
    assert not offers.retiring


def test_a_gpu_leaves_when_it_is_free_and_comes_when_the_plugin_is_done() -> None:
    assert next_offers(by_uuid(OLD), {}, free=(), add=True).offered == by_uuid(OLD)
    assert next_offers(by_uuid(OLD), {}, free={OLD.uuid}, add=True).offered == {}
    assert next_offers({}, by_uuid(NEW), free=(), add=False).offered == {}
    assert next_offers({}, by_uuid(NEW), free=(), add=True).offered == by_uuid(NEW)


def test_what_is_no_device_changes_at_once() -> None:
    """Placement and the kind of turns concern claims that come, and nothing that is counted."""
    packed = replace(OLD, spread=False, sharing=replace(OLD.sharing, compute="cap"))
    offers = next_offers(by_uuid(OLD), by_uuid(packed), free=(), add=True)
    assert offers.offered == by_uuid(packed)
    assert not offers.retiring


def ready(number: int) -> tuple[DesiredGpu, Decision]:
    layout = DesiredGpu(f"GPU-{number}", number, 0, None, (), Claims())
    return layout, Decision(AdvertisedGpu(layout))


@pytest.mark.parametrize(
    ("kubelet", "state", "expected"),
    [
        (KubeletView({}, frozenset(), fence=True), State.READY, True),
        (KubeletView({}, frozenset(), fence=False), State.READY, False),
        (KubeletView({}, frozenset({"GPU-1::3"}), fence=True), State.READY, False),
        (KubeletView({"GPU-0": ()}, frozenset(), fence=True), State.READY, False),
        (KubeletView({}, frozenset({"another"}), fence=True), State.READY, True),
        (KubeletView({}, frozenset(), fence=True), State.WAITING, False),
        ("holders are unknown", State.READY, False),
    ],
)
def test_no_gpu_comes_before_the_last_is_free_of_the_plugin(
    kubelet: KubeletView | str, state: State, expected: bool
) -> None:
    (first, decision), (second, other) = ready(0), ready(1)
    desired = DesiredState(node=DesiredNode("p", "p", "pool", (first, second), ()), config="{}")
    decided = {"GPU-0": decision, "GPU-1": replace(other, state=state)}
    assert plugin_is_done(desired, snapshot(gpu(0), gpu(1)), kubelet, decided) is expected


def test_whoever_may_have_a_gpu_holds_it_for_the_plugin() -> None:
    record = claim_record(OLD, OTHER, claims=(claim("pod", held(OLD, "-share")),))
    holders = claim_holders(record)
    assert [each.pod for each in holders[OLD.uuid]] == ["default/pod"]
    assert [each.pod for each in holders[OTHER.uuid]] == [""]


def test_a_record_is_read_as_it_was_written() -> None:
    devices = (held(NEW, "-mig-1g5gb-0", made=True), held(OTHER, "-share", 3000, 30))
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
