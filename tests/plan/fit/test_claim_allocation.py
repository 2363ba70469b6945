"""Which device a claim gets: the first of the listing that fits."""

from __future__ import annotations

from divvy.plan.fit.claim_allocation import Allocation, NodeDevices
from divvy.plan.fit.claim_requests import Request
from divvy.plan.fit.live_claims import claimed_gpus
from tests.plan.claimed import claim, slices


def test_packs_shares_on_the_fullest_gpu_beginning_with_the_last() -> None:
    held = [claim("train", "n", "gpu-n-0-share", "3000Mi", "30")]
    request = Request(1, "share", memory_mib=2000, cores=20)
    for claims, chosen in (([], 2), (held, 0)):
        gpus = claimed_gpus(slices("n", {"shares": {}}, gpus=3), claims)
        node = NodeDevices(gpus, spread=False)
        for _ in range(2):
            placed = node.claim([request])
            assert placed is not None
            assert [placed_request.gpu.index for placed_request in placed] == [chosen]


def test_packs_shares_on_the_last_of_equally_full_gpus() -> None:
    """Whether pods hold the shares, or were placed just now."""
    held = [claim("train", "n", "gpu-n-1-share", "16384Mi", "40")]
    gpus = claimed_gpus(slices("n", {"shares": {}}), held)
    share = next(device for device in gpus[0].devices if device.kind == "share")
    placed = [Allocation(gpus[0], share, 40960 * cores // 100, cores) for cores in (15, 25)]
    placements = NodeDevices(gpus, spread=False, allocations=placed).claim(
        [Request(1, "share", memory_mib=2000, cores=20)]
    )
    assert placements is not None
    assert [placement.gpu.index for placement in placements] == [1]


def test_spreads_shares_to_the_gpus_with_the_fewest_claims() -> None:
    gpus = claimed_gpus(slices("n", {"shares": {}}, gpus=2), ())
    node = NodeDevices(gpus)
    request = Request(1, "share", memory_mib=2000, cores=20)
    placements = [node.claim([request]) for _ in range(3)]
    assert [placement[0].gpu.index for placement in placements if placement is not None] == [
        0,
        1,
        0,
    ]
