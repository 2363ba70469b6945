"""What is read of slices and claims: devices, who holds them, what is free."""

import re
from typing import Any

import pytest

from divvy.plan.live_claims import UnreadableClaims, claimed_gpus, pods_with_claims
from tests.plan.claimed import claim, slices

ON_DEMAND = {"shares": {}, "mig": ["1g.5gb", "3g.20gb"]}


def test_subtracts_claims_from_free_shares() -> None:
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


def test_takes_nothing_for_a_claim_with_admin_access() -> None:
    """Such as one for monitoring: the scheduler gives the device to others, too."""
    watching = claim("watching", "n", "gpu-n-0-share")
    watching["status"]["allocation"]["devices"]["results"][0]["adminAccess"] = True
    (gpu,) = claimed_gpus(slices("n", ON_DEMAND, gpus=1), [watching])
    assert gpu.holders == ()
    assert gpu.free == claimed_gpus(slices("n", ON_DEMAND, gpus=1), ())[0].free
    # Its pod has to end like others before the driver goes.
    assert pods_with_claims([watching]) == ("team/watching",)


def test_consumes_the_counters_of_a_shared_device_once() -> None:
    held = [
        claim("a", "n", "gpu-n-0-share", "3000Mi", "30"),
        claim("b", "n", "gpu-n-0-share", "3000Mi", "30"),
        claim("c", "n", "gpu-n-1-mig-3g20gb-4"),
    ]
    first, second = claimed_gpus(slices("n", ON_DEMAND), held)
    assert set(first.free.values()) == {0}
    assert [second.free[f"memory-slice-{number}"] for number in (0, 3, 4, 7)] == [1, 1, 0, 0]
    assert second.free["compute-slices"] == 4


def test_ignores_older_generations_and_other_drivers() -> None:
    older = slices("n", {"shares": {}}, gpus=4, generation=1)
    newer = slices("n", {"shares": {}}, gpus=2, generation=2)
    other = [{"spec": {**newer[0]["spec"], "driver": "gpu.example.com"}}]
    assert [gpu.index for gpu in claimed_gpus([*older, *newer, *other], ())] == [0, 1]


def test_ignores_a_slice_that_another_node_publishes_in_the_pool() -> None:
    own = slices("n", {"shares": {}}, gpus=2)
    foreign = slices("n", {"shares": {}}, gpus=1, generation=10**6)
    foreign = [{"spec": {**foreign[0]["spec"], "nodeName": "m"}}]
    assert [gpu.name for gpu in claimed_gpus([*foreign, *own], ())] == ["n GPU 0", "n GPU 1"]


@pytest.mark.parametrize(
    ("selector", "tainted"),
    [
        ({}, ["gpu-n-0-share", "gpu-n-1-share"]),
        ({"driver": "divvy.gpu", "pool": "n/divvy"}, ["gpu-n-0-share", "gpu-n-1-share"]),
        ({"device": "gpu-n-1-share"}, ["gpu-n-1-share"]),
        ({"pool": "m/divvy"}, []),
        ({"driver": "gpu.example.com", "device": "gpu-n-1-share"}, []),
        (None, []),
    ],
)
def test_taints_the_devices_that_a_rule_of_the_cluster_selects(
    selector: dict[str, str] | None, tainted: list[str]
) -> None:
    """As the scheduler does, with the taints that the slice itself has."""

    def rule(effect: str) -> dict[str, Any]:
        taint = {"key": "example.com/repair", "value": "fan", "effect": effect}
        return {
            "spec": {"taint": taint, **({} if selector is None else {"deviceSelector": selector})}
        }

    for effect in ("NoSchedule", "NoExecute"):
        gpus = claimed_gpus(slices("n", {"shares": {}}), (), [rule(effect)])
        devices = [device for gpu in gpus for device in gpu.devices]
        assert [device.name for device in devices if device.taints] == tainted
        assert {taint for device in devices for taint in device.taints} <= {
            "example.com/repair=fan"
        }
    # The first only informs; what a later Kubernetes may add is to be taken for that.
    for effect in ("None", "NoExecuteWithPodDisruptionBudget"):
        gpus = claimed_gpus(slices("n", {"shares": {}}), (), [rule(effect)])
        assert not any(device.taints for gpu in gpus for device in gpu.devices)


def test_looks_at_a_rule_for_the_devices_that_it_selects_alone() -> None:
    """5,000 nodes have 40,000 GPUs and more, and an administrator may taint each by itself."""
    reads: list[str] = []

    class Selector(dict[str, str]):
        def get(self, name: str, default: Any = None) -> Any:
            reads.append(name)
            return super().get(name, default)

    listed = [spec for number in range(20) for spec in slices(f"n{number}", {"shares": {}})]
    taint = {"key": "example.com/repair", "effect": "NoSchedule"}
    rules = [
        {"spec": {"taint": taint, "deviceSelector": Selector(pool=f"n{number}/divvy")}}
        for number in range(10)
    ]
    gpus = claimed_gpus(listed, (), rules)
    assert sum(bool(device.taints) for gpu in gpus for device in gpu.devices) == 20
    assert len(reads) <= 3 * len(rules)


@pytest.mark.parametrize(
    ("consumed", "message"),
    [
        ({"memory": "lots"}, "claim team/a cannot be read: is 'lots'"),
        ({"cores": []}, "claim team/a cannot be read: is []"),
    ],
)
def test_names_a_malformed_claim(consumed: dict, message: str) -> None:
    held = claim("a", "n", "gpu-n-0-share")
    held["status"]["allocation"]["devices"]["results"][0]["consumedCapacity"] = consumed
    with pytest.raises(UnreadableClaims, match=re.escape(message)):
        claimed_gpus(slices("n", {"shares": {}}), [held])


def test_names_a_slice_that_no_agent_wrote() -> None:
    listed = slices("n", {"shares": {}}, gpus=1)
    device = listed[0]["spec"]["devices"][0]
    uuid = device["attributes"].pop("uuid")
    with pytest.raises(UnreadableClaims) as raised:
        claimed_gpus(listed, ())
    message = "device gpu-n-0-share of pool n/divvy cannot be read: it has no uuid"
    assert str(raised.value) == message
    device["attributes"]["uuid"] = uuid
    device["capacity"]["memory"]["value"] = "40 Gi"
    with pytest.raises(UnreadableClaims, match="'40 Gi'; a quantity such as 3000Mi is expected"):
        claimed_gpus(listed, ())


def test_reads_consumed_capacity_with_qualified_names() -> None:
    held = claim("a", "n", "gpu-n-0-share")
    consumed = {"divvy.gpu/memory": "3000Mi", "divvy.gpu/cores": "30"}
    held["status"]["allocation"]["devices"]["results"][0]["consumedCapacity"] = consumed
    (gpu,) = claimed_gpus(slices("n", {"shares": {}}, gpus=1), [held])
    assert gpu.devices[0].free_mib == 40960 - 3000
    assert gpu.devices[0].free_cores == 70


def test_lists_the_pods_that_hold_claims() -> None:
    held = [
        claim("a", "n", "gpu-n-0-share", "3000Mi", "30", pod="train"),
        claim("b", "m", "gpu-m-0-share", "3000Mi", "30", pod="train"),
        claim("c", "n", "gpu-n-1-share", pod="also"),
        {"metadata": {"namespace": "team", "name": "waits"}, "spec": {}},
    ]
    other = claim("d", "n", "nic-0", pod="other")
    other["status"]["allocation"]["devices"]["results"][0]["driver"] = "nic.example.com"
    assert pods_with_claims([*held, other]) == ("team/also", "team/train")
