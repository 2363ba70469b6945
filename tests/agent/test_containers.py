"""From a process to its container."""

from __future__ import annotations

import pytest

from divvy.agent.containers import Container, Member, containers_by_id, member

UID = "0cb0a8de-f426-41f8-b28e-6bd02aa3eb2e"
CONTAINER = "9c03f94287184f1e508c67b2a4d6e60716610c14cc462f7bacd613eacaa1fc45"
SYSTEMD = UID.replace("-", "_")


@pytest.mark.parametrize(
    "cgroup",
    [
        f"0::/kubepods/besteffort/pod{UID}/{CONTAINER}\n",
        f"0::/kubepods/pod{UID}/{CONTAINER}\n",
        # a group of the container's own below it
        f"0::/kubepods/besteffort/pod{UID}/{CONTAINER}/init\n",
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
def test_reads_pod_and_container_from_the_cgroup(cgroup: str) -> None:
    assert member(cgroup) == Member(UID, CONTAINER)


@pytest.mark.parametrize(
    "cgroup",
    [
        "0::/system.slice/nvidia-persistenced.service\n",
        f"0::/user.slice/pod{UID}/x\n",
        "0::/kubepods/besteffort\n",
        "",
    ],
)
def test_finds_no_container_for_a_process_outside_pods(cgroup: str) -> None:
    assert member(cgroup) is None


def test_reads_a_static_pod_by_its_hash() -> None:
    uid = "f" * 32
    assert member(f"0::/kubepods/burstable/pod{uid}/{CONTAINER}") == Member(uid, CONTAINER)


def test_names_containers_by_the_kubelets_links() -> None:
    links = [f"web-1_default_main-{CONTAINER}.log", "lost+found"]
    assert containers_by_id(links) == {CONTAINER: Container("default/web-1", "main")}
