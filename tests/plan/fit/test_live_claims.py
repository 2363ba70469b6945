"""What is read of slices and claims: devices, who holds them, what is free."""

from typing import Any

import pytest

from divvy.plan.fit.live_claims import claimed_gpus, pods_with_claims
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
def test_takes_a_share_of_unknown_size_for_held_whole(consumed: dict, message: str) -> None:
    held = claim("a", "n", "gpu-n-0-share", pod="train")
    held["status"]["allocation"]["devices"]["results"][0]["consumedCapacity"] = consumed
    notes: list[str] = []
    first, second = claimed_gpus(slices("n", {"shares": {}}), [held], note=notes.append)
    assert [note for note in notes if message in note] == notes
    assert len(notes) == 1
    (device,) = first.devices
    assert (device.free_mib, device.free_cores) == (0, 0)
    assert [holder.words for holder in device.holders] == ["team/train (of what cannot be read)"]
    assert second.devices[0].free_mib == 40960
    assert pods_with_claims([held]) == ("team/train",)


@pytest.mark.parametrize(
    ("consumed", "free"),
    [(None, (0, 0)), ({"memory": "3000Mi"}, (40960 - 3000, 0)), ({"cores": "30"}, (0, 70))],
)
def test_takes_a_share_without_a_size_for_held_whole(
    consumed: dict[str, str] | None, free: tuple[int, int]
) -> None:
    """As the agent does: its containers may use all of it."""
    held = claim("a", "n", "gpu-n-0-share", pod="train")
    held["status"]["allocation"]["devices"]["results"][0]["consumedCapacity"] = consumed
    first, _ = claimed_gpus(slices("n", {"shares": {}}), [held])
    assert (first.devices[0].free_mib, first.devices[0].free_cores) == free


@pytest.mark.parametrize(
    ("results", "held"),
    [
        ([5], "all"),
        ([{"pool": "n/divvy"}], "all"),
        ({"driver": "divvy.gpu"}, "all"),
        ([{"driver": "divvy.gpu"}], "all"),
        ([{"driver": "divvy.gpu", "pool": "n/divvy", "device": 7}], "n"),
        ([{"driver": "divvy.gpu", "pool": "n/divvy"}], "n"),
        ([{"driver": "other.example", "device": {}}], "none"),
    ],
)
def test_takes_what_a_claim_may_hold_for_held(results: Any, held: str) -> None:
    odd = claim("odd", "n", "gpu-n-0-share")
    odd["status"]["allocation"]["devices"]["results"] = results
    odd["status"]["reservedFor"] = []
    listed = [*slices("n", {"shares": {}}), *slices("m", {"shares": {}})]
    notes: list[str] = []
    gpus = claimed_gpus(listed, [odd], note=notes.append)
    free = {gpu.node: gpu.devices[0].free_mib > 0 for gpu in gpus}
    assert free == {"n": held == "none", "m": held != "all"}
    assert bool(notes) == (held != "none")
    left = pods_with_claims([odd])
    assert left == (() if held == "none" else ("claim team/odd (of what cannot be read)",))


def test_takes_claims_that_nobody_could_read_for_holders_of_anything() -> None:
    gpus = claimed_gpus(slices("n", {"shares": {}}), (), unread=["mallory/odd"])
    assert [gpu.devices[0].free_mib for gpu in gpus] == [0, 0]
    assert pods_with_claims((), unread=["mallory/odd"]) == (
        "claim mallory/odd (of what cannot be read)",
    )


def test_leaves_out_and_names_a_device_that_no_agent_wrote() -> None:
    listed = [*slices("n", {"shares": {}}), *slices("m", {"shares": {}})]
    device = listed[0]["spec"]["devices"][0]
    uuid = device["attributes"].pop("uuid")
    notes: list[str] = []
    gpus = claimed_gpus(listed, (), note=notes.append)
    assert notes == ["device gpu-n-0-share of pool n/divvy cannot be read: it has no uuid"]
    assert [gpu.name for gpu in gpus] == ["m GPU 0", "m GPU 1", "n GPU 1"]
    device["attributes"]["uuid"] = uuid
    device["capacity"]["memory"]["value"] = "40 Gi"
    claimed_gpus(listed, (), note=notes.append)
    assert "'40 Gi'; a quantity such as 3000Mi is expected" in notes[1]
    for odd in ({"name": "d"}, {}, 5, None, {"name": "d", "attributes": {"uuid": {}}}):
        listed[0]["spec"]["devices"][0] = odd
        assert len(claimed_gpus(listed, (), note=notes.append)) == 3


def test_takes_counters_for_used_up_where_a_device_of_the_node_cannot_be_read() -> None:
    listed = slices("n", ON_DEMAND, gpus=1)
    devices = listed[-1]["spec"]["devices"]
    device = next(item for item in devices if "1g" in item["name"])
    held = claim("a", "n", device["name"])
    (gpu,) = claimed_gpus(listed, [held])
    assert any(gpu.free.values())
    del device["attributes"]
    (gpu,) = claimed_gpus(listed, [held])
    assert all(number <= 0 for number in gpu.free.values())


@pytest.mark.parametrize(
    "odd",
    [
        {"driver": "divvy.gpu"},
        {"driver": "divvy.gpu", "pool": 5},
        {"driver": "divvy.gpu", "nodeName": "m", "pool": {"name": "m/divvy", "generation": "9"}},
        {"driver": "divvy.gpu", "nodeName": "m", "pool": {"name": "m/divvy", "generation": 0},
         "devices": 7, "sharedCounters": "x"},
    ],
)  # fmt: skip
def test_leaves_out_and_names_a_slice_that_cannot_be_read(odd: dict) -> None:
    listed = [{"metadata": {"name": "odd"}, "spec": odd}, *slices("n", {"shares": {}})]
    notes: list[str] = []
    assert len(claimed_gpus(listed, (), note=notes.append)) == 2
    assert notes


def test_leaves_out_a_rule_that_cannot_be_read() -> None:
    notes: list[str] = []
    rules = [{"metadata": {"name": "odd"}, "spec": {"deviceSelector": {}, "taint": {}}}, {}]
    assert len(claimed_gpus(slices("n", {"shares": {}}), (), rules, note=notes.append)) == 2
    assert len(notes) == 2


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
