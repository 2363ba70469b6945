"""What a node lacks for claims, in words."""

from __future__ import annotations

import pytest

from divvy.plan.fit.claim_allocation import NodeDevices
from divvy.plan.fit.claim_requests import Request
from divvy.plan.fit.live_claims import claimed_gpus
from divvy.plan.fit.shortage import claim_holders, claim_shortage
from tests.plan.claimed import claim, slices

_TAINTS = "devices have taints (divvy.gpu/fault=fan)"


@pytest.mark.parametrize(
    ("count", "tainted", "words"),
    [
        (1, (), "has no room left for 1 whole GPU; held by team/a"),
        (1, (1,), f"has no room left for 1 whole GPU; held by team/a; some {_TAINTS}"),
        (2, (1,), f"has no GPUs that give 2 whole GPUs, even with nothing held; some {_TAINTS}"),
        (1, (0, 1), f"offers no whole GPU to claims: its {_TAINTS}"),
    ],
)
def test_names_the_taints_of_devices_that_would_do(
    count: int, tainted: tuple[int, ...], words: str
) -> None:
    """A GPU that nobody holds and nobody gets would be a riddle."""
    held = [claim("a", "n", "gpu-n-0")] + ([] if tainted else [claim("a", "n", "gpu-n-1")])
    gpus = claimed_gpus(slices("n", {}, taints=dict.fromkeys(tainted, "fan")), held)
    shortage = claim_shortage([Request(count, "gpu")], NodeDevices(gpus), claim_holders(gpus))
    assert shortage.words == words


def test_names_the_taints_of_devices_that_are_large_enough() -> None:
    gpus = [
        *claimed_gpus(slices("n", {"shares": {}}, "A100-SXM4-40GB", gpus=1), ()),
        *claimed_gpus(slices("n", {"shares": {}}, "H100-SXM5-80GB", 1, taints={0: "fan"}), ()),
    ]
    shortage = claim_shortage([Request(1, "share", 60_000)], NodeDevices(gpus), ())
    assert shortage.words.endswith(f"60,000 MiB are more than its 40,960; some {_TAINTS}")
