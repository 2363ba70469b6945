"""What the suite decides without a cluster: pods, tenants, figures, devices of a host."""

import re
from pathlib import Path
from typing import Any

import pytest

import conformance
from conformance.bare.host import devices_of
from conformance.catalogue import CATALOGUE
from conformance.neighbours import Figures, gigabytes, gigaflops, mig_keeps, shares_keep
from conformance.pod_spec import OWN, Wish, pod_spec
from conformance.promise import node_promises
from conformance.tenants import holders
from divvy.model import parse_cluster
from divvy.plan import plan

SUITE = Path(conformance.__file__).parent


def test_every_check_of_the_catalogue_has_one_test() -> None:
    proven = [
        identity
        for path in SUITE.rglob("test_*.py")
        for identity in re.findall(r'^@check\("(.*)"\)', path.read_text(), re.MULTILINE)
    ]
    assert sorted(proven) == sorted(CATALOGUE)


def test_a_pod_has_few_rights_and_ends_by_itself() -> None:
    spec = pod_spec(Wish("n1", "image", ["true"], resource="nvidia.com/gpu"), "restricted", "low")
    assert spec["securityContext"]["runAsNonRoot"]
    assert spec["containers"][0]["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert spec["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert spec["activeDeadlineSeconds"]
    assert spec["priorityClassName"] == "low"
    assert "nodeName" not in spec


def test_an_image_from_elsewhere_keeps_its_program() -> None:
    container = pod_spec(Wish("n1", "image", arguments=["10"]), "restricted", "low")["containers"]
    assert "command" not in container[0]
    assert container[0]["args"] == ["10"]


def pod(name: str, count: int, **more: Any) -> dict[str, Any]:
    limits = {"nvidia.com/gpu": str(count)}
    return {
        "metadata": {"namespace": "team", "name": name, "labels": more.get("labels")},
        "spec": {"nodeName": "n1", "containers": [{"resources": {"limits": limits}}]},
        "status": {"phase": more.get("phase", "Running")},
    }


def test_only_running_pods_of_others_hold_devices() -> None:
    pods = [
        pod("theirs", 2),
        pod("ended", 1, phase="Succeeded"),
        pod("ours", 1, labels=OWN),
        pod("none", 0),
        pod("waits", 1, phase="Pending"),
    ]
    assert holders(pods, "n1", "nvidia.com/gpu") == {"team/theirs": 2, "team/waits": 1}
    assert holders(pods, "n2", "nvidia.com/gpu") == {}
    assert holders(pods, "n1", "nvidia.com/gpu.shared") == {}


@pytest.mark.parametrize(
    ("beside", "fair", "kept"),
    [((100.0, 81.0), 1.0, 0.81), ((25.0, 20.0), 0.25, 0.8), ((0.0, 100.0), 1.0, 0.0), ((), 1.0, 0)],
)
def test_the_worst_device_counts(beside: tuple[float, ...], fair: float, kept: float) -> None:
    assert Figures(100.0, beside, ()).kept(fair) == pytest.approx(kept)


def test_a_device_without_a_figure_keeps_nothing() -> None:
    assert Figures(0.0, (50.0,), ()).kept() == 0


def test_a_mig_device_that_loses_more_than_a_fifth_to_neighbours_fails() -> None:
    expected = "at least 80% of the 100 GB/s that it has alone"
    assert mig_keeps(Figures(100.0, (95.0, 80.0), ()), "GB/s") == (
        True, expected, "95, 80 GB/s with all neighbours: 80%",
    )  # fmt: skip
    assert mig_keeps(Figures(100.0, (95.0, 79.0), ()), "GB/s") == (
        False, expected, "95, 79 GB/s with all neighbours: 79%",
    )  # fmt: skip
    assert not mig_keeps(Figures(100.0, (), ()), "GB/s")[0]


def test_a_share_below_a_quarter_of_its_fair_part_fails() -> None:
    expected = "no share below 25% of a fair share of 80 Gflop/s"
    assert shares_keep(Figures(80.0, (20.0, 5.0), ()), 4) == (
        True, expected, "20, 5 Gflop/s: the worst has 25% of it",
    )  # fmt: skip
    assert shares_keep(Figures(80.0, (20.0, 4.9), ()), 4)[0] is False


def test_figures_are_the_last_ones_printed() -> None:
    assert gigaflops("\r50%  proc'd: 1 (20 Gflop/s)\r100%  proc'd: 2 (30 Gflop/s)") == 30
    assert gigabytes("copied 4096 MiB in 6.00 s: 1431.66 GB/s") == 1431.66
    assert gigaflops("Couldn't init") == gigabytes("") == 0


LISTED = """\
GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-a)
  MIG 3g.20gb     Device  0: (UUID: MIG-a)
  MIG 1g.5gb      Device  1: (UUID: MIG-b)
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-b)
GPU 2: Another card (UUID: GPU-c)
"""


def test_programs_see_the_parts_of_a_cut_gpu_and_whole_others() -> None:
    found = devices_of("h", LISTED, {"GPU-a": 40960, "GPU-b": 40960, "GPU-c": 8192})
    assert [(str(one), one.uuid, one.gpu, one.memory_mib) for one in found] == [
        ("h:GPU 0 MIG 0 (3g.20gb)", "MIG-a", "GPU-a", 20096),
        ("h:GPU 0 MIG 1 (1g.5gb)", "MIG-b", "GPU-a", 4864),
        ("h:GPU 1", "GPU-b", "GPU-b", 40960),
        ("h:GPU 2", "GPU-c", "GPU-c", None),
    ]


def test_a_label_on_the_node_changes_what_is_promised() -> None:
    cluster = parse_cluster(
        {
            "profiles": {"whole": {}, "slices": {"timeSlicing": {"replicas": 4}}},
            "pools": {
                "p": {"hardware": {"model": "T4", "gpus": 2, "count": 2}, "profile": "whole"}
            },
        }
    )
    labels = {
        "plain": {},
        "tried": {"divvy.gpu/profile": "slices"},
        "odd": {"divvy.gpu/profile": "x"},
    }
    found = node_promises(cluster, plan(cluster, "s"), labels, None)
    assert {one.name: (one.profile, dict(one.plan.per_node)) for one in found} == {
        "plain": ("whole", {"nvidia.com/gpu": 2}),
        "tried": ("slices", {"nvidia.com/gpu.shared": 8}),
        "odd": ("whole", {"nvidia.com/gpu": 2}),
    }
