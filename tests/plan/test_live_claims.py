"""What is read of slices and claims: devices, who holds them, what is free."""

from divvy.plan.live_claims import claimed_gpus
from tests.plan.claimed import claim, slices

ON_DEMAND = {"shares": {}, "mig": ["1g.5gb", "3g.20gb"]}


def test_shares_are_free_but_for_what_claims_take() -> None:
    held = [
        claim("a", "n", "gpu-n-0-share", "3000Mi", "30"),
        claim("b", "n", "gpu-n-0-share", "1Gi", "1500m"),
    ]
    first, second = claimed_gpus(slices("n", {"shares": {}}), held)
    (share,) = first.devices
    assert (share.free_mib, share.free_cores) == (40960 - 3000 - 1024, 69)
    assert [holder.words for holder in share.holders] == [
        "team/a (3,000 MiB, 30 %)",
        "team/b (1,024 MiB, 1 %)",
    ]
    assert second.holders == ()


def test_a_device_takes_its_counters_once_however_many_share_it() -> None:
    held = [
        claim("a", "n", "gpu-n-0-share", "3000Mi", "30"),
        claim("b", "n", "gpu-n-0-share", "3000Mi", "30"),
        claim("c", "n", "gpu-n-1-mig-3g20gb-4"),
    ]
    first, second = claimed_gpus(slices("n", ON_DEMAND), held)
    assert set(first.free.values()) == {0}
    assert [second.free[f"memory-slice-{number}"] for number in (0, 3, 4, 7)] == [1, 1, 0, 0]
    assert second.free["compute-slices"] == 4


def test_an_older_generation_and_other_drivers_do_not_count() -> None:
    older = slices("n", {"shares": {}}, gpus=4, generation=1)
    newer = slices("n", {"shares": {}}, gpus=2, generation=2)
    other = [{"spec": {**newer[0]["spec"], "driver": "gpu.example.com"}}]
    assert [gpu.index for gpu in claimed_gpus([*older, *newer, *other], ())] == [0, 1]
