"""Feature labels: what they say of sharing follows what is offered now."""

import re
from dataclasses import replace

import pytest

from divvy.agent.gpu.hardware import MigInstance
from divvy.agent.gpu.labels import OWNED, feature_labels
from divvy.agent.plugin.inventory import Device, Resource
from divvy.model.sharing import Sharing
from tests.agent.devices import gpu, instance, replicas, snapshot, whole


def test_omits_withdrawn_shares_from_labels() -> None:
    gone = replace(replicas(1, 4), devices=())
    labels = feature_labels(snapshot(gpu(0)), [whole(1), gone], None)
    assert labels["nvidia.com/gpu.replicas"] == "1"
    assert labels["nvidia.com/gpu.sharing-strategy"] == "none"


def test_counts_offered_shares_in_labels() -> None:
    labels = feature_labels(snapshot(gpu(0)), [replicas(1, 4)], None)
    assert labels["nvidia.com/gpu.replicas"] == "4"
    assert labels["nvidia.com/gpu.sharing-strategy"] == "time-slicing"


def test_owns_every_label_that_it_writes() -> None:
    """What is not owned would be refused by the admission policy, and never removed."""
    written = feature_labels(snapshot(gpu(0)), [replicas(1, 4)], "mixed")
    assert len(written) > 10
    assert all(OWNED.match(name) for name in written)


def seventh(gi: int, profile_id: int = 19) -> MigInstance:
    return replace(instance(gi, profile_id, gi, 1), memory_mib=4864, sms=14)


def mig(name: str, count: int, per_device: int = 1) -> Resource:
    devices = tuple(
        Device(f"MIG-{index}::{number}", f"MIG-{index}", "GPU-0")
        for index in range(count)
        for number in range(per_device)
    )
    return Resource(f"nvidia.com/{name}", devices, "mig", Sharing(per_device))


@pytest.mark.parametrize(
    ("name", "per_device", "product", "replicas", "strategy"),
    [
        ("gpu", 1, "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", "1", "none"),
        ("gpu", 2, "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb-SHARED", "2", "time-slicing"),
        ("gpu.shared", 2, "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", "2", "time-slicing"),
    ],
)
def test_describes_mig_devices_advertised_as_gpus_like_gfd(
    name: str, per_device: int, product: str, replicas: str, strategy: str
) -> None:
    """As GPU feature discovery 0.20 wrote them on the same simulated driver."""
    seen = snapshot(gpu(0, mig=True, instances=tuple(seventh(i) for i in range(7))))
    labels = feature_labels(seen, [mig(name, 7, per_device)], "single")
    assert {key.removeprefix("nvidia.com/gpu."): text for key, text in labels.items()}.items() >= {
        "count": "7",
        "memory": "4864",
        "multiprocessors": "14",
        "product": product,
        "replicas": replicas,
        "sharing-strategy": strategy,
    }.items()
    assert all(OWNED.match(key) for key in labels)


def test_counts_no_replica_without_a_whole_gpu() -> None:
    seen = snapshot(gpu(0, mig=True, instances=(seventh(0),)))
    labels = feature_labels(seen, [mig("mig-1g.5gb", 1)], "mixed")
    assert (labels["nvidia.com/gpu.replicas"], labels["nvidia.com/gpu.count"]) == ("0", "1")
    assert labels["nvidia.com/mig-1g.5gb.product"] == "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb"


def test_separates_a_profiles_attributes_in_its_product() -> None:
    seen = snapshot(gpu(0, mig=True, instances=(seventh(0, 20),)))
    labels = feature_labels(seen, [mig("mig-1g.5gb.me", 1)], "mixed")
    assert labels["nvidia.com/mig-1g.5gb.me.product"] == "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb.me"


@pytest.mark.parametrize(
    "product",
    ["NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "NVIDIA (odd) -"],
)
def test_writes_only_valid_label_values(product: str) -> None:
    """The API server would refuse the whole patch, the status annotation with it."""
    card = replace(gpu(0, mig=True, instances=(seventh(0),)), product=product)
    for resources in (
        [mig("gpu", 1, 2)],
        [mig("mig-1g.5gb", 1)],
        [replicas(1, 4, "nvidia.com/gpu")],
    ):
        for value in feature_labels(snapshot(card), resources, "mixed").values():
            assert re.fullmatch(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?", value)


def test_differs_from_gfd_only_as_documented() -> None:
    """The differences from GPU feature discovery that docs/agent.md lists."""
    other = replace(gpu(1), product="Tesla T4", memory_mib=15360)
    labels = feature_labels(snapshot(gpu(0), other), [replicas(2, 4), whole(1)], None)
    assert labels["nvidia.com/gpu.product"] == "NVIDIA-A100-SXM4-40GB"
    assert (labels["nvidia.com/gpu.count"], labels["nvidia.com/gpu.replicas"]) == ("2", "4")
    cut = snapshot(gpu(0, mig=True, instances=(seventh(0),)))
    labels |= feature_labels(cut, [mig("mig-1g.5gb", 1)], None)
    ours = {name.removeprefix("nvidia.com/") for name in labels}
    assert "mig.strategy" not in ours
    absent = r"cuda\.(driver|runtime)\.|gpu\.(machine|mode)|vgpu|gfd|mps|.*\.(engines|slices)\."
    assert not [name for name in ours if re.match(absent, name)]


def test_names_families_as_gfd_does() -> None:
    of = {(7, 0): "volta", (7, 5): "turing", (8, 6): "ampere", (8, 9): "ada-lovelace"}
    of |= {(9, 0): "hopper", (10, 3): "blackwell", (12, 0): "blackwell", (13, 0): "rubin"}
    for capability, family in of.items():
        card = replace(gpu(0), compute_capability=capability)
        labels = feature_labels(snapshot(card), [whole(1)], None)
        assert labels["nvidia.com/gpu.family"] == family
