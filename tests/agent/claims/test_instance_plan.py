"""A claim's MIG device is made where it was allocated; what others have made stays."""

from __future__ import annotations

from dataclasses import replace

import pytest

from divvy.agent.claims.device_faults import device_faults, taint_value, taints
from divvy.agent.claims.instance_plan import (
    ForeignInstance,
    device_uuid,
    foreign_reason,
    plan_device,
    plan_return,
)
from divvy.agent.gpu.hardware import Gpu, MigInstance
from divvy.agent.gpu.health import Fault, Health
from divvy.agent.gpu.mig_plan import MigPlan, mig_layout
from divvy.model import Placement
from tests.agent.claim_values import ON_DEMAND, claim, claim_record, held, offered_gpu
from tests.agent.devices import gpu, instance, snapshot

OFFERED = offered_gpu(0, ON_DEMAND)
HELD = held(OFFERED, "-mig-2g10gb-2")
EMPTY = claim_record(OFFERED)
TWO_AT_2, ONE_AT_0 = instance(1, 14, 2, 2), instance(2, 19, 0, 1)


def on(*instances: MigInstance) -> Gpu:
    return gpu(mig=True, instances=instances)


def test_switches_the_mig_mode_if_needed() -> None:
    placements = (Placement(2, 2, "2g.10gb"),)
    assert plan_device(gpu(), HELD, EMPTY) == MigPlan("GPU-0", mode=True, create=placements)
    assert plan_device(on(), HELD, EMPTY) == MigPlan("GPU-0", create=placements)
    whole = held(OFFERED, "")
    assert plan_device(on(), whole, EMPTY) == MigPlan("GPU-0", mode=False)
    assert plan_device(gpu(), whole, EMPTY).nothing


def test_reuses_an_existing_instance_of_the_claim() -> None:
    ours = replace(HELD, has_instance=True)
    record = claim_record(OFFERED, claims=(claim("c", ours),))
    assert plan_device(on(TWO_AT_2), ours, record).nothing
    assert device_uuid(on(TWO_AT_2), ours) == "MIG-1"
    half = replace(TWO_AT_2, ci=None, uuid=None)
    assert plan_device(on(half), ours, record).complete == (half,)
    # After a reboot it has gone.
    assert plan_device(on(), ours, record).create == (Placement(2, 2, "2g.10gb"),)


def test_leaves_instances_of_others_alone() -> None:
    for held_device in (HELD, held(OFFERED, ""), held(OFFERED, "-share")):
        with pytest.raises(ForeignInstance, match=r"2g\.10gb at memory slice 2"):
            plan_device(on(TWO_AT_2), held_device, EMPTY)
    assert plan_device(on(ONE_AT_0), HELD, EMPTY).create
    assert "no claim created" in foreign_reason(on(ONE_AT_0), EMPTY)
    assert foreign_reason(gpu(), EMPTY) == ""


def test_releases_only_the_instance_it_created_and_keeps_the_mode() -> None:
    assert plan_return(on(TWO_AT_2, ONE_AT_0), replace(HELD, has_instance=True)) == MigPlan(
        "GPU-0", destroy=(TWO_AT_2,)
    )
    assert plan_return(on(TWO_AT_2), HELD).nothing
    assert plan_return(on(ONE_AT_0), replace(HELD, has_instance=True)).nothing
    assert plan_return(gpu(), replace(HELD, has_instance=True)).nothing


def test_reads_the_layout_from_what_exists() -> None:
    assert mig_layout(gpu()) is None
    assert mig_layout(on()) == {}
    assert mig_layout(on(TWO_AT_2, ONE_AT_0)) == {"2g.10gb": 1, "1g.5gb": 1}


def test_relates_a_fault_to_the_gpu_or_an_instances_placement() -> None:
    record = claim_record(OFFERED, claims=(claim("c", replace(HELD, has_instance=True)),))
    observation = snapshot(on(TWO_AT_2))
    described = {"GPU-0", "MIG-1"}
    whole = Health({("GPU-0", None): Fault("XID 79")})
    assert set(device_faults(record, observation, whole, described).values()) == {"XID 79"}
    part = Health({("GPU-0", 1): Fault("XID 63")})
    faults = device_faults(record, observation, part, described)
    assert faults == {"gpu-0-mig-1g5gb-2": "XID 63", "gpu-0-mig-2g10gb-2": "XID 63"}
    away = device_faults(record, None, Health(), (), "the driver is away")
    assert set(away.values()) == {"the driver is away"}
    assert len(away) == len(OFFERED.gpu.devices)


def test_taints_a_device_for_every_reason_not_to_allocate() -> None:
    keys = {
        name: [taint.key for taint in device_taints]
        for name, device_taints in taints(
            EMPTY, snapshot(on(TWO_AT_2)), {"gpu-0": "XID 79"}, {"GPU-0"}
        ).items()
    }
    others = ["divvy.gpu/profile-change", "divvy.gpu/foreign-mig-instance"]
    assert keys["gpu-0"] == ["divvy.gpu/unhealthy", *others]
    assert keys["gpu-0-share"] == others
    assert taint_value("the GPU is lost: XID 79!") == "the-GPU-is-lost-XID-79"
    assert len(taint_value("x" * 100)) == 63
