"""What a plan and a diff say of profiles with claims."""

from divvy.plan import diff, level
from tests.plan.stacks import planned, pool

ON_DEMAND = {"claims": {"shares": {}, "mig": ["1g.5gb", "3g.20gb"], "tenants": ["prod", "dev"]}}
PROFILES = {
    "whole": {},
    "claimed": {"claims": {}},
    "by-size": {"claims": {"shares": {"memory": {"step": "256Mi"}, "max": 8}}},
    "on-demand": ON_DEMAND,
    "part": [{"devices": [0], "claims": {"shares": {}}}, {"devices": [1]}],
}


def _offered(profile: str, **more: object) -> dict[str, int]:
    return dict(planned(PROFILES, p=pool(profile, **more)).pools[0].totals)


def test_advertises_nothing_by_the_device_plugin() -> None:
    node = planned(PROFILES, p=pool("on-demand")).pools[0].node
    assert node is not None
    assert dict(node.per_node) == {}
    assert node.devices == ()


def test_counts_each_kind_alone() -> None:
    assert _offered("claimed") == {"nvidia.com/gpu (claims)": 4}
    assert _offered("by-size") == {
        "nvidia.com/gpu (claims)": 4,
        "nvidia.com/gpu.shared (claims)": 32,
    }
    assert _offered("on-demand", count=2) == {
        "nvidia.com/gpu (claims)": 8,
        "nvidia.com/gpu.shared (claims)": 128,
        "nvidia.com/mig-1g.5gb (claims)": 56,
        "nvidia.com/mig-3g.20gb (claims)": 16,
    }


def test_serves_all_gpus_by_claims_after_one_rule_with_claims() -> None:
    assert _offered("part") == {
        "nvidia.com/gpu (claims)": 4,
        "nvidia.com/gpu.shared (claims)": 16,
    }


def test_guarantees_for_shares_what_the_limiter_does() -> None:
    node = planned(PROFILES, p=pool("on-demand")).pools[0].node
    assert node is not None
    promises = {claimable.name: claimable.guarantees for claimable in node.claimable}
    share = promises["nvidia.com/gpu.shared (claims)"]
    assert level(share.memory) == "prevented"
    assert level(share.compute) == "weighted"
    assert "same tenant" in share.faults
    assert level(promises["nvidia.com/mig-1g.5gb (claims)"].memory) == "hard"


def test_requires_idle_gpus_to_move_from_the_device_plugin_to_claims() -> None:
    before = planned(PROFILES, p=pool("whole"))
    for profile in ("claimed", "on-demand"):
        after = planned(PROFILES, p=pool(profile))
        there, back = diff(before, after), diff(after, before)
        assert [change.disruption.level for change in there.changes] == ["GPUs must be idle"]
        assert [change.disruption.level for change in back.changes] == ["GPUs must be idle"]
    names = [row.resource for row in there.changes[0].resources]
    assert names[:2] == ["nvidia.com/gpu", "nvidia.com/gpu (claims)"]


def test_keeps_what_claims_hold_when_their_profile_changes() -> None:
    profiles = {**PROFILES, "fewer": {"claims": {**ON_DEMAND["claims"], "mig": ["1g.5gb"]}}}
    (change,) = diff(
        planned(profiles, p=pool("on-demand")), planned(profiles, p=pool("fewer"))
    ).changes
    assert change.disruption.level == "new pods only"
    assert [row.resource for row in change.resources] == ["nvidia.com/mig-3g.20gb (claims)"]
