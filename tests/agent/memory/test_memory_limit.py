"""Which containers are above their limit, and when their processes are ended."""

from __future__ import annotations

import signal
from dataclasses import replace

from divvy.agent.containers import Container, Member, Process
from divvy.agent.gpu.holders import Holder
from divvy.agent.memory.memory_limit import Excess, Limit, Use, enforcement, excesses

UID = "0cb0a8de-f426-41f8-b28e-6bd02aa3eb2e"
CONTAINER = "9c03f94287184f1e508c67b2a4d6e60716610c14cc462f7bacd613eacaa1fc45"
SHARED, OTHER = "nvidia.com/gpu.shared", "nvidia.com/gpu"
LIMITS = {SHARED: Limit(6826)}
WHERE, OTHER_ID = Member(UID, CONTAINER), "0" * 64


CONTAINERS = {
    CONTAINER: Container("default/web-1", "main"),
    OTHER_ID: Container("default/web-1", "sidecar"),
}


def holder(
    number: int, resource: str = SHARED, pod: str = "default/web-1", container: str = "main"
) -> Holder:
    return Holder(pod, container, resource, f"GPU-2::{number}")


def use(mib: int, pid: int = 1, where: Member = WHERE) -> Use:
    return Use(where, Process(pid, 100), "GPU-2", mib)


def over_limit(mib: int, *holders: Holder, enforced: bool = False) -> tuple[Excess, ...]:
    limits = {SHARED: Limit(6826, enforced)}
    return excesses([use(mib - 1000), use(1000, 2)], CONTAINERS, {"GPU-2": holders}, limits)


def over(mib: int, *holders: Holder) -> list[tuple[int, int]]:
    return [(excess.used_mib, excess.limit_mib) for excess in over_limit(mib, *holders)]


def test_adds_up_all_processes_of_a_container() -> None:
    assert over(6826, holder(0)) == []
    assert over(6827, holder(0)) == [(6827, 6826)]


def test_doubles_the_limit_for_two_shares() -> None:
    assert over(13000, holder(0), holder(1)) == []


def test_counts_no_shares_of_others_toward_the_limit() -> None:
    assert over(7000, holder(0), holder(1, pod="default/web-2")) == [(7000, 6826)]
    assert over(7000, holder(0), holder(1, container="sidecar")) == [(7000, 6826)]


def test_limits_each_container_of_a_pod_separately() -> None:
    uses = [use(5000), use(5000, 3, Member(UID, OTHER_ID))]
    held = {"GPU-2": (holder(0), holder(1, container="sidecar"))}
    assert excesses(uses, CONTAINERS, held, LIMITS) == ()
    uses[1] = replace(uses[1], used_mib=7000)
    (excess,) = excesses(uses, CONTAINERS, held, LIMITS)
    assert (excess.container, excess.processes) == ("sidecar", (Process(3, 100),))


def test_sets_no_limit_for_a_device_without_one() -> None:
    assert over(40000, holder(0, OTHER)) == []


def test_reports_usage_and_limit_in_the_event() -> None:
    (warned,) = over_limit(9000, holder(0))
    assert warned.sentence.startswith("container main uses 9000 MiB of GPU-2")
    assert "6826 MiB" in warned.sentence
    assert "terminated" not in warned.sentence
    (enforced,) = over_limit(9000, holder(0), enforced=True)
    assert enforced.sentence.endswith("its processes on the device are terminated")


def test_waits_ten_seconds_between_the_two_signals() -> None:
    mine, late = Process(7, 1), Process(8, 1)
    warned, due = enforcement([mine, mine], {}, 100.0)
    assert due == [(mine, signal.SIGTERM)]
    warned, due = enforcement([mine, late], warned, 105.0)
    assert due == [(late, signal.SIGTERM)]
    warned, due = enforcement([mine, late], warned, 110.0)
    assert due == [(mine, signal.SIGKILL)]
    warned, due = enforcement([late], warned, 111.0)
    assert (warned, due) == ({late: 105.0}, [])
    assert enforcement([mine], warned, 112.0) == ({mine: 112.0}, [(mine, signal.SIGTERM)])
