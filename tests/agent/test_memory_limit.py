"""From a process to its pod, and which pods are above their limit."""

from __future__ import annotations

import pytest

from divvy.agent.holders import Holder
from divvy.agent.memory_limit import Use, excesses, pod_uid, pods_by_uid

UID = "0cb0a8de-f426-41f8-b28e-6bd02aa3eb2e"
CONTAINER = "9c03f94287184f1e508c67b2a4d6e60716610c14cc462f7bacd613eacaa1fc45"
SYSTEMD = UID.replace("-", "_")
SHARED, OTHER = "nvidia.com/gpu.shared", "nvidia.com/gpu"
LIMITS = {SHARED: 6826}


@pytest.mark.parametrize(
    "cgroup",
    [
        f"0::/kubepods/besteffort/pod{UID}/{CONTAINER}\n",
        f"0::/kubepods/pod{UID}/{CONTAINER}\n",
        f"0::/parent/node/kubepods/burstable/pod{UID}/{CONTAINER}\n",
        "0::/kubepods.slice/kubepods-burstable.slice/"
        f"kubepods-burstable-pod{SYSTEMD}.slice/cri-containerd-{CONTAINER}.scope\n",
        f"0::/kubepods.slice/kubepods-pod{SYSTEMD}.slice/crio-{CONTAINER}.scope\n",
        # cgroup v1 beside an empty v2 hierarchy
        f"12:memory:/kubepods/burstable/pod{UID}/{CONTAINER}\n"
        f"1:name=systemd:/kubepods/burstable/pod{UID}/{CONTAINER}\n0::/\n",
        f"4:devices:/kubepods.slice/kubepods-besteffort.slice/"
        f"kubepods-besteffort-pod{SYSTEMD}.slice/docker-{CONTAINER}.scope\n",
    ],
)
def test_the_cgroup_names_the_pod(cgroup: str) -> None:
    assert pod_uid(cgroup) == UID


@pytest.mark.parametrize(
    "cgroup",
    [
        "0::/system.slice/nvidia-persistenced.service\n",
        f"0::/user.slice/pod{UID}/x\n",
        "0::/kubepods/besteffort\n",
        "",
    ],
)
def test_a_process_outside_pods_has_none(cgroup: str) -> None:
    assert pod_uid(cgroup) is None


def test_a_static_pod_has_a_hash() -> None:
    uid = "f" * 32
    assert pod_uid(f"0::/kubepods/burstable/pod{uid}/{CONTAINER}") == uid


def test_the_log_folders_name_the_pods() -> None:
    assert pods_by_uid([f"default_web-1_{UID}", "lost+found"]) == {UID: "default/web-1"}


def holder(number: int, resource: str = SHARED, pod: str = "default/web-1") -> Holder:
    return Holder(pod, "main", resource, f"GPU-2::{number}")


def over(mib: int, *holders: Holder) -> list[tuple[int, int]]:
    uses = [Use(UID, "GPU-2", mib - 1000), Use(UID, "GPU-2", 1000)]
    found = excesses(uses, {UID: "default/web-1"}, {"GPU-2": holders}, LIMITS)
    return [(excess.used_mib, excess.limit_mib) for excess in found]


def test_all_processes_of_a_pod_count_together() -> None:
    assert over(6826, holder(0)) == []
    assert over(6827, holder(0)) == [(6827, 6826)]


def test_two_shares_allow_twice_as_much() -> None:
    assert over(13000, holder(0), holder(1)) == []


def test_shares_of_others_allow_nothing() -> None:
    assert over(7000, holder(0), holder(1, pod="default/web-2")) == [(7000, 6826)]


def test_a_device_without_a_limit_has_none() -> None:
    assert over(40000, holder(0, OTHER)) == []


def test_the_event_says_how_much_and_which_limit() -> None:
    (excess,) = excesses(
        [Use(UID, "GPU-2", 9000)], {UID: "default/web-1"}, {"GPU-2": (holder(0),)}, LIMITS
    )
    assert "9000 MiB of GPU-2" in excess.sentence
    assert "6826 MiB" in excess.sentence
