"""A limited share is alone in its container, or the container does not start."""

from __future__ import annotations

import pytest

from divvy.agent.gpu.holders import Holder
from divvy.agent.plugin.allocation import Refused
from divvy.agent.plugin.container_start import require_no_other_gpu

SHARED, GPU, MIG = "nvidia.com/gpu.shared", "nvidia.com/gpu", "nvidia.com/mig-1g.5gb.shared"
SHARE = Holder("team/web-0", "main", SHARED, "GPU-0::1", "uid-2")


def refusal(*holders: Holder, device_ids: tuple[str, ...] = ("GPU-0::1",)) -> str:
    with pytest.raises(Refused) as refused:
        require_no_other_gpu(SHARED, device_ids, holders)
    return str(refused.value)


@pytest.mark.parametrize(
    "beside",
    [
        Holder("team/web-0", "main", GPU, "GPU-1", "uid-2"),
        Holder("team/web-0", "main", MIG, "MIG-7::0", "uid-2"),
        # One account shows it without the name, one without the UID.
        Holder("", "main", GPU, "GPU-1", "uid-2"),
        Holder("team/web-0", "main", GPU, "GPU-1"),
    ],
)
def test_refuses_another_gpu_in_the_container_with_a_remedy(beside: Holder) -> None:
    text = refusal(SHARE, beside)
    assert f"{SHARED}: container main also has {beside.resource}" in text
    assert "request them in two containers" in text
    assert refusal(beside, SHARE) == text


@pytest.mark.parametrize(
    "elsewhere",
    [
        Holder("team/web-0", "other", GPU, "GPU-1", "uid-2"),
        Holder("team/web-1", "main", GPU, "GPU-1", "uid-3"),
        # The StatefulSet's last pod of this name.
        Holder("team/web-0", "main", GPU, "GPU-1", "uid-1"),
        Holder("", "main", GPU, "GPU-1", "uid-1"),
        Holder("", "main", GPU, "GPU-1"),
        Holder("team/web-0", "main", "rdma/hca", "mlx5_0-1", "uid-2"),
        Holder("team/web-0", "main", SHARED, "GPU-1::0", "uid-2"),
    ],
)
def test_ignores_others_devices_and_what_is_no_other_gpu(elsewhere: Holder) -> None:
    require_no_other_gpu(SHARED, ["GPU-0::1"], [SHARE, elsewhere])


def test_accepts_two_replicas_in_one_container() -> None:
    second = Holder("team/web-0", "main", SHARED, "GPU-0::2", "uid-2")
    require_no_other_gpu(SHARED, ["GPU-0::2", "GPU-0::1"], [SHARE, second])
    assert "does not show" in refusal(SHARE, device_ids=("GPU-0::1", "GPU-0::2"))


def test_holds_back_a_container_that_is_not_listed() -> None:
    assert "does not show which container has GPU-0::1; the start will be retried" in refusal()


def test_admits_a_container_allocated_before_the_limiter() -> None:
    beside = Holder("team/web-0", "main", GPU, "GPU-1", "uid-2")
    holders = [SHARE, beside]
    require_no_other_gpu(SHARED, ["GPU-0::1"], holders, {("uid-2", "main", SHARED)})
    for other in (("uid-1", "main", SHARED), ("uid-2", "main", GPU), ("uid-2", "init", SHARED)):
        with pytest.raises(Refused):
            require_no_other_gpu(SHARED, ["GPU-0::1"], holders, {other})


def test_holds_back_an_init_container_with_the_later_user_of_its_share() -> None:
    init = Holder("", "init", SHARED, "GPU-0::1", "uid-2")
    beside = Holder("team/web-0", "main", GPU, "GPU-1", "uid-2")
    assert "container main also has" in refusal(init, SHARE, beside)
