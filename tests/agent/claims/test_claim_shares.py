"""What the limiter is told of a claim."""

from __future__ import annotations

import pytest

from divvy.agent.claims.claim_shares import claim_id, claim_shares, is_limited
from divvy.agent.claims.record import BadAllocation
from divvy.agent.inject.share import share_name
from divvy.model.sharing import DeviceShare, Sharing
from tests.agent.claim_values import ON_DEMAND, claim, held, offered_gpu
from tests.agent.devices import device_share

NAME = share_name([claim_id("uid-c")])
FIRST, SECOND = offered_gpu(0, ON_DEMAND), offered_gpu(1, ON_DEMAND)
UUIDS = {"gpu-0-share": "GPU-0", "gpu-1-share": "GPU-1", "gpu-1": "GPU-1"}


def test_limits_no_claim_on_a_whole_gpu() -> None:
    assert not is_limited(held(FIRST, "-share"))
    assert not is_limited(held(FIRST, ""))
    assert not is_limited(held(FIRST, "-mig-1g5gb-0"))
    assert is_limited(held(FIRST, "-share", cores=99))
    assert is_limited(held(FIRST, "-share", memory=40959))
    assert is_limited(held(FIRST, "-share", oversubscribed=True))
    assert claim_shares(claim("c", held(FIRST, "-share"), held(SECOND, "")), UUIDS) == ()


def test_writes_a_line_and_a_page_for_each_gpu_of_a_claim() -> None:
    shares = claim_shares(
        claim("c", held(SECOND, "-share", 3000, 30, compute="cap"), held(FIRST, "-share", 2000, 1)),
        UUIDS,
    )
    assert shares == (
        device_share("GPU-0", 2000, "share", 1, f"{NAME}-0"),
        device_share("GPU-1", 3000, "cap", 30, f"{NAME}-1"),
    )


def test_adds_up_two_shares_of_one_gpu() -> None:
    devices = (held(FIRST, "-share", 3000, 60), held(FIRST, "-share", 2000, 30))
    assert claim_shares(claim("c", *devices), UUIDS) == (
        device_share("GPU-0", 5000, "share", 90, f"{NAME}-0"),
    )


def test_does_not_limit_a_whole_gpu_beside_a_share() -> None:
    shares = claim_shares(claim("c", held(FIRST, "-share", 3000, 30), held(SECOND, "")), UUIDS)
    assert shares[1] == DeviceShare("GPU-1", Sharing(memory_mib=40960))


def test_refuses_more_devices_than_a_limiter_knows() -> None:
    gpus = [offered_gpu(number) for number in range(17)]
    devices = [held(gpu, "-share", 1000, 10) for gpu in gpus]
    uuids = {device.device.name: device.uuid for device in devices}
    with pytest.raises(BadAllocation, match="17 devices; a claim with a share can have at most 16"):
        claim_shares(claim("c", *devices), uuids)
