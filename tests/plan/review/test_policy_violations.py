"""What a policy does not allow in a stack file, and what it leaves alone."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from divvy.model import parse_cluster
from divvy.model.stack_policy import parse_policy
from divvy.plan.predict.guarantees import MEMORY_LEVELS, level
from divvy.plan.predict.prediction import plan
from divvy.plan.review.policy_violations import violations

SATURDAY = datetime(2026, 11, 28, 23, tzinfo=UTC)
LIMITED = {"limit": "auto", "action": "prevent"}
PROFILES: dict[str, Any] = {
    "whole": {},
    "mig": {"mig": {"3g.20gb": 2}},
    "driver": {"timeSlicing": {"replicas": 4, "memoryLimit": {**LIMITED, "enforcement": "driver"}}},
    "limited": {"timeSlicing": {"replicas": 4, "memoryLimit": LIMITED}},
    "over": {"timeSlicing": {"replicas": 4, "memoryLimit": {**LIMITED, "oversubscribe": 2.0}}},
    "mps": {"mps": {"replicas": 8}},
    "watched": {"timeSlicing": {"replicas": 2, "memoryLimit": "auto"}},
    "turns": {"timeSlicing": {"replicas": 6}},
    "mig-turns": {"mig": {"3g.20gb": 2}, "timeSlicing": {"replicas": 2}},
    "claims": {"claims": {}},
    "shares": {"claims": {"shares": {"max": 8}, "mig": ["1g.5gb"]}},
    "mig-claims": {"claims": {"mig": ["1g.5gb"]}},
    "single": {"claims": {"shares": {"max": 1}}},
    "tenants": {"claims": {"shares": {"max": 2}, "tenants": ["prod", "dev"]}},
}
MIG_CLAIMS = ["shares.claims.mig", "mig-claims.claims.mig"]
REPLICAS = ["driver", "limited", "over", "mps", "watched", "turns", "mig-turns"]
SHARES = ["shares.claims.shares", "tenants.claims.shares"]
SINGLE = "single.claims.shares"


def refused(policy: dict[str, Any], now: datetime = SATURDAY, **cluster: Any) -> list[str]:
    """Return the profiles and keys of the cluster that a policy does not allow."""
    document = {"profiles": PROFILES, "pools": {"all": {"profile": "whole"}}, **cluster}
    broken = violations(parse_policy(policy), parse_cluster(document), now)
    assert {violation.rule for violation in broken} <= policy.keys()
    return [violation.problem.path.removeprefix("profiles.") for violation in broken]


@pytest.mark.parametrize(
    ("policy", "paths"),
    [
        ({}, []),
        ({"memory": "watched"}, ["turns", "mig-turns"]),
        ({"memory": "prevented"}, ["mps", "watched", "turns", "mig-turns"]),
        (
            {"memory": "limited"},
            [*REPLICAS[1:], SHARES[0], SINGLE, SHARES[1]],
        ),
        (
            {"faults": "isolated"},
            [*REPLICAS, *SHARES],
        ),
        (
            {"sharing": "tenants-apart"},
            [*REPLICAS, SHARES[0]],
        ),
        (
            {"sharing": "none"},
            [*REPLICAS, *SHARES],
        ),
        ({"maxContainersPerDevice": 4}, ["mps", "turns", "shares.claims.shares"]),
        ({"oversubscription": False}, ["over"]),
    ],
)
def test_names_every_profile_that_is_not_allowed(policy: dict[str, Any], paths: list[str]) -> None:
    assert refused(policy) == paths


def test_names_the_rule_of_a_profile_with_several() -> None:
    rules = [{"devices": [0]}, {"devices": [1], "timeSlicing": {"replicas": 2}}]
    pools = {"all": {"profile": "split"}}
    assert refused({"memory": "hard"}, profiles={"split": rules}, pools=pools) == ["split[1]"]


def test_allows_evictions_within_windows_alone() -> None:
    evicts = {"change": {"policy": "evict"}}
    assert refused({}, **evicts) == []
    assert refused({"evictions": "never"}, **evicts) == ["change.policy"]
    assert refused({"evictions": "never"}, change={"policy": "wait"}) == []
    windows = {"evictions": ["Mon 00:00-01:00", "Sat 22:00-04:00"]}
    assert refused(windows, **evicts) == []
    assert refused(windows, now=SATURDAY.replace(hour=21), **evicts) == ["change.policy"]


def test_knows_every_level_that_a_plan_shows() -> None:
    hardware = {"model": "A100-SXM4-40GB", "gpus": 1, "count": 1}
    pools = {
        name: {"profile": name, "hardware": hardware, "select": {"pool": name}} for name in PROFILES
    }
    nodes = [
        pool.node for pool in plan(parse_cluster({"profiles": PROFILES, "pools": pools}), "x").pools
    ]
    shown = {
        level(kind.guarantees.memory)
        for node in nodes
        if node is not None
        for kind in (*node.devices, *node.claimable)
    }
    assert shown == set(MEMORY_LEVELS)


def test_counts_mig_devices_of_claims_as_slices() -> None:
    paths = refused({"memory": "exclusive"})
    assert set(MIG_CLAIMS) <= set(paths)
    assert "mig" in paths
    assert not {"whole", "claims"} & set(paths)


@pytest.mark.parametrize("sharing", ["timeSlicing", "mps"])
def test_proves_no_fixed_size_on_unknown_gpus(sharing: str) -> None:
    limit = {"limit": "10Gi", "action": "prevent"}
    profiles = {"fixed": {sharing: {"replicas": 4, "memoryLimit": limit}}, "whole": {}}
    hardware = {"hardware": {"model": "A100-SXM4-40GB", "gpus": 1, "count": 1}}
    known = {"pool": {"profile": "fixed", **hardware}}
    policy = {"oversubscription": False}
    assert refused(policy, profiles=profiles, pools=known) == []
    unknown = {"pool": {"profile": "fixed"}}
    assert refused(policy, profiles=profiles, pools=unknown) == ["fixed"]
    unnamed = {"pool": {"profile": "whole", **hardware}}
    assert refused(policy, profiles=profiles, pools=unnamed) == ["fixed"]
    assert refused({}, profiles=profiles, pools=unknown) == []


def test_proves_no_fixed_size_by_gpus_that_the_rule_does_not_take() -> None:
    limit = {"limit": "60Gi", "action": "prevent"}
    shared = {"timeSlicing": {"replicas": 4, "memoryLimit": limit}}
    pool = {"profile": "fixed", "hardware": {"model": "A100-SXM4-40GB", "gpus": 1, "count": 1}}
    policy = {"oversubscription": False}
    others = {"fixed": [{"devices": "H100*", **shared}, {}]}
    assert refused(policy, profiles=others, pools={"pool": pool}) == ["fixed[0]"]
    fitting = {"limit": "10Gi", "action": "prevent"}
    own = {"fixed": [{"devices": "A100*", "timeSlicing": {"replicas": 4, "memoryLimit": fitting}}]}
    assert refused(policy, profiles=own, pools={"pool": pool}) == []


@pytest.mark.parametrize("action", ["warn", "enforce"])
@pytest.mark.parametrize(
    ("mig", "size", "paths"),
    [
        ({}, "10Gi", []),
        ({}, "10241Mi", ["p"]),
        ({"mig": {"3g.20gb": 2}}, "4Gi", []),
        ({"mig": {"3g.20gb": 1, "1g.5gb": 1}}, "4Gi", ["p"]),
    ],
)
def test_adds_up_fixed_limits_that_are_watched_alone(
    mig: dict[str, Any], size: str, action: str, paths: list[str]
) -> None:
    limit = {"limit": size, "action": action}
    profiles = {"p": {**mig, "timeSlicing": {"replicas": 4, "memoryLimit": limit}}}
    pools = {
        "pool": {"profile": "p", "hardware": {"model": "A100-SXM4-40GB", "gpus": 1, "count": 1}}
    }
    assert refused({"oversubscription": False}, profiles=profiles, pools=pools) == paths
    assert refused({}, profiles=profiles, pools=pools) == []


@pytest.mark.parametrize(
    ("path", "is_a_gpus"),
    [
        ("/dev/nvidia0", True),
        ("/dev/nvidia[0-9]", True),
        ("/dev/nvidia-caps/*", True),
        ("/dev/*", True),
        ("/dev/n?idia*", True),
        ("/dev/./nvidia0", True),
        ("/dev//nvidia0", True),
        ("/dev/./*", True),
        ("/dev/fuse", False),
        ("/dev/fpga*", False),
        ("/dev/nv", False),
    ],
)
def test_refuses_device_files_that_may_be_a_gpus(path: str, *, is_a_gpus: bool) -> None:
    devices = [{"resource": "example.com/x", "paths": [path], "count": 9}]
    expected = ["devices[0]"] if is_a_gpus else []
    for policy in ({"sharing": "none"}, {"faults": "isolated"}, {"memory": "watched"}):
        assert refused(policy, profiles={"whole": {}}, devices=devices) == expected
    assert refused({"oversubscription": False}, profiles={"whole": {}}, devices=devices) == []


@pytest.mark.parametrize(
    ("advisory", "rule"),
    [([], "memory"), (["memory"], "sharing"), (["sharing"], "memory")],
)
def test_refuses_device_files_by_a_rule_that_refuses(advisory: list[str], rule: str) -> None:
    policy = parse_policy({"memory": "hard", "sharing": "none", "advisory": advisory})
    devices = [{"resource": "example.com/x", "paths": ["/dev/nvidia0"], "count": 1}]
    document = {"profiles": {"whole": {}}, "pools": {"all": {"profile": "whole"}}}
    cluster = parse_cluster({**document, "devices": devices})
    assert [broken.rule for broken in violations(policy, cluster, SATURDAY)] == [rule]


def test_shows_a_path_as_text_alone() -> None:
    path = "/dev/nvidia0\x1b[2J\nwarning: all is well"
    devices = [{"resource": "example.com/x", "paths": [path]}]
    document = {"profiles": {"whole": {}}, "pools": {"all": {"profile": "whole"}}}
    cluster = parse_cluster({**document, "devices": devices})
    (broken,) = violations(parse_policy({"sharing": "none"}), cluster, SATURDAY)
    assert broken.problem.reason.isprintable()
