"""Whose a GPU is, and what it waits for on its way from one owner to the other."""

from __future__ import annotations

from dataclasses import replace

import pytest

from divvy.agent.gpu.holders import Holder
from divvy.agent.gpu.owner import (
    NO_CDI,
    WITHDRAWING,
    ClaimsView,
    KubeletFence,
    KubeletView,
    Owner,
    Ownership,
    hand_over,
    is_left_to_claims,
    kubelet_fence,
    released,
)
from divvy.model import DesiredGpu
from divvy.model.claims import Claims
from divvy.model.offered_gpu import OfferedGpu
from tests.agent.claim_values import BY_SIZE, ON_DEMAND, claim, claim_record, held, offered_gpu
from tests.agent.devices import gpu, instance

OLD, NEW = offered_gpu(0, BY_SIZE), offered_gpu(0, ON_DEMAND)
FREE = KubeletView({}, frozenset(), fence=True)
ALLOCATED = "waiting for claims that were just allocated"
POD = Holder("team/pod", "main", "nvidia.com/gpu", "GPU-0", "uid")


def fence(kubelet: KubeletView | str = FREE, **unready: str) -> KubeletFence:
    return kubelet_fence(
        (gpu(0), gpu(1)), kubelet, {uuid.replace("_", "-"): why for uuid, why in unready.items()}
    )


def claimed(*offered: OfferedGpu, unallocated: bool = False, is_held: bool = False) -> ClaimsView:
    claims = (claim("pod", held(OLD, "-share")),) if is_held else ()
    free = frozenset(gpu.uuid for gpu in offered) if unallocated else frozenset()
    return ClaimsView(claim_record(*offered, claims=claims), free)


def test_keeps_a_claims_offer_while_a_claim_may_have_it() -> None:
    """A device that went, or had another shape, would be allocated a second time."""
    for wanted, target in ((NEW, Owner.CLAIMS), (None, Owner.PLUGIN)):
        stays = Ownership(Owner.CLAIMS, target, ALLOCATED, OLD, retiring=True)
        assert hand_over(OLD.uuid, wanted, fence(), claimed(OLD)) == stays
        by_claim = hand_over(
            OLD.uuid, wanted, fence(), claimed(OLD, unallocated=True, is_held=True)
        )
        assert by_claim == replace(stays, waits_for="held by claim default/pod")


def test_changes_the_offer_once_the_scheduler_allocates_no_more() -> None:
    ownership = hand_over(OLD.uuid, NEW, fence(), claimed(OLD, unallocated=True))
    assert ownership == Ownership(Owner.CLAIMS, Owner.CLAIMS, offered=NEW)


def test_leaves_a_gpu_without_owner_before_the_device_plugin_gets_it() -> None:
    ownership = hand_over(OLD.uuid, None, fence(), claimed(OLD, unallocated=True), listed=True)
    assert ownership == Ownership(Owner.NOBODY, Owner.PLUGIN)
    ownership = hand_over(OLD.uuid, None, fence(), claimed(), listed=True)
    assert ownership == Ownership(Owner.PLUGIN, Owner.PLUGIN)


def test_changes_at_once_what_is_no_device() -> None:
    """Placement and the kind of turns concern claims that come, and nothing that is counted."""
    packed = replace(OLD, spread=False, sharing=replace(OLD.sharing, compute="cap"))
    ownership = hand_over(OLD.uuid, packed, fence(), claimed(OLD))
    assert ownership == Ownership(Owner.CLAIMS, Owner.CLAIMS, offered=packed)


@pytest.mark.parametrize(
    ("kubelet", "unready", "reason"),
    [
        (FREE, {}, ""),
        (replace(FREE, fence=False), {}, WITHDRAWING),
        (replace(FREE, allocatable=frozenset({"GPU-1::3"})), {}, f"GPU 1: {WITHDRAWING}"),
        (replace(FREE, held={"GPU-0": (POD,)}), {}, "held by team/pod"),
        (replace(FREE, held={"GPU-1": (POD,)}), {}, "GPU 1: held by team/pod"),
        (replace(FREE, allocatable=frozenset({"another"})), {}, ""),
        (FREE, {"GPU_1": "being repartitioned"}, "GPU 1: being repartitioned"),
        ("holders are unknown", {}, "holders are unknown"),
    ],
)
def test_offers_no_gpu_before_the_kubelet_has_freed_the_last_of_the_node(
    kubelet: KubeletView | str, unready: dict[str, str], reason: str
) -> None:
    ownership = hand_over("GPU-0", OLD, fence(kubelet, **unready), claimed())
    assert ownership.waits_for == reason
    assert (ownership.owner is Owner.CLAIMS) == (ownership.offered == OLD) == (not reason)
    assert ownership.asks_kubelet is bool(reason)


def test_counts_mig_devices_to_their_gpu() -> None:
    split = gpu(0, mig=True, instances=(instance(1, 14, 2, 2),))
    listed = replace(FREE, allocatable=frozenset({"MIG-1"}))
    assert kubelet_fence((split,), listed, {}).waits_for("GPU-0") == WITHDRAWING
    in_parts = replace(split, instances=(replace(split.instances[0], others=("MIG-other",)),))
    listed = replace(FREE, allocatable=frozenset({"MIG-other"}))
    assert kubelet_fence((in_parts,), listed, {}).waits_for("GPU-0") == WITHDRAWING


def test_offers_nothing_if_containers_cannot_get_it() -> None:
    ownership = hand_over("GPU-0", OLD, fence(), replace(claimed(), cdi=False))
    assert (ownership.owner, ownership.waits_for, ownership.offered) == (Owner.NOBODY, NO_CDI, None)


def test_releases_free_gpus_to_other_software() -> None:
    assert released(claimed(OLD, unallocated=True)) == {
        OLD.uuid: Ownership(Owner.NOBODY, Owner.PLUGIN)
    }
    assert released(claimed(OLD, is_held=True))[OLD.uuid].retiring


def test_states_in_one_line_who_owns_a_gpu_and_what_it_waits_for() -> None:
    assert hand_over("GPU-0", None, fence(), claimed(), listed=True).line == "plugin"
    waiting = hand_over("GPU-0", OLD, fence(replace(FREE, held={"GPU-0": (POD,)})), claimed())
    assert waiting.line == "plugin (held by team/pod)"
    assert hand_over("GPU-0", OLD, fence(GPU_1="blocked"), claimed()).line == (
        "nobody (GPU 1: blocked)"
    )
    assert hand_over(OLD.uuid, None, fence(), claimed(OLD)).line == f"claims ({ALLOCATED})"


def test_leaves_the_instances_of_claims_alone() -> None:
    plugin = DesiredGpu("GPU-0", 0, 0, {"1g.5gb": 7}, ())
    layout = DesiredGpu("GPU-0", 0, 0, None, (), Claims())
    for changing in (False, True):
        assert not is_left_to_claims(plugin, layout, claimed(OLD), changing=changing)
        assert not is_left_to_claims(layout, plugin, claimed(), changing=changing)
        assert is_left_to_claims(layout, plugin, claimed(OLD), changing=changing)
    assert is_left_to_claims(layout, None, claimed(), changing=False)
    assert is_left_to_claims(layout, layout, claimed(), changing=False)


def test_keeps_from_claims_what_the_device_plugin_began() -> None:
    """The profile went to MIG and back before the last instance was created."""
    layout = DesiredGpu("GPU-0", 0, 0, None, (), Claims())
    assert not is_left_to_claims(layout, layout, claimed(), changing=True)
    assert not is_left_to_claims(layout, None, claimed(), changing=True)
