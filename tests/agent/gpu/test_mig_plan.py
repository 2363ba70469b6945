"""Re-cutting does the least, and never what no placement allows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from divvy.agent.gpu.mig_plan import CannotPartition, plan_mig
from tests.agent.devices import gpu, instance


def cut(*instances):  # type: ignore[no-untyped-def]
    return gpu(0, mig=True, instances=instances)


def test_leaves_a_correct_gpu_alone() -> None:
    right = cut(instance(1, 9, 0, 4), instance(2, 9, 4, 4))
    assert plan_mig(right, {"3g.20gb": 2}).nothing


def test_enables_mig_and_creates_all_instances_on_a_whole_gpu() -> None:
    plan = plan_mig(gpu(0), {"2g.10gb": 2, "1g.5gb": 3})
    assert plan.mode is True
    assert [instance.profile for instance in plan.create].count("1g.5gb") == 3
    assert plan.idle == {"GPU-0"}


def test_destroys_only_what_must_go() -> None:
    busy = cut(instance(1, 9, 0, 4), instance(2, 9, 4, 4))
    plan = plan_mig(busy, {"3g.20gb": 1, "1g.5gb": 3}, held={"MIG-2"})
    assert [instance.uuid for instance in plan.destroy] == ["MIG-1"]
    assert {instance.start for instance in plan.create} <= {0, 1, 2, 3}


def test_destroys_an_instance_that_blocks_every_placement_of_the_layout() -> None:
    # 1g at slice 3 leaves no room for 4g at 0–3, where alone a 4g can start.
    blocked = cut(instance(7, 19, 3, 1))
    plan = plan_mig(blocked, {"4g.20gb": 1, "1g.5gb": 1})
    assert [instance.gi for instance in plan.destroy] == [7]


def test_completes_a_gpu_instance_without_compute_instance() -> None:
    half = instance(1, 9, 0, 4)
    half = type(half)(half.gi, half.profile_id, half.start, half.size)
    plan = plan_mig(cut(half), {"3g.20gb": 1})
    assert plan.complete == (half,)
    assert not plan.destroy


def test_destroys_an_instance_with_only_a_part_of_its_compute() -> None:
    partial = replace(instance(1, 9, 0, 4), partial=True)
    plan = plan_mig(cut(partial), {"3g.20gb": 1})
    assert plan.destroy == (partial,)
    assert [placement.profile for placement in plan.create] == ["3g.20gb"]


def test_destroys_an_instance_that_somebody_else_has_split() -> None:
    """Each of its MIG devices has a part of its compute, and none is what the layout says."""
    split = replace(instance(1, 9, 0, 4), others=("MIG-other",))
    plan = plan_mig(cut(split, instance(2, 9, 4, 4)), {"3g.20gb": 2})
    assert plan.destroy == (split,)
    assert plan.idle == {"MIG-1", "MIG-other"}
    assert plan.remaining_uuids == {"MIG-2"}
    assert [placement.profile for placement in plan.create] == ["3g.20gb"]


def test_destroys_everything_to_switch_mig_off_on_an_idle_gpu() -> None:
    plan = plan_mig(cut(instance(1, 9, 0, 4)), None)
    assert plan.mode is False
    assert plan.idle == {"GPU-0"}


def test_refuses_what_no_placement_allows() -> None:
    with pytest.raises(CannotPartition, match="3g.20gb"):
        plan_mig(cut(), {"3g.20gb": 3})
