"""What neighbours cost a device."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from conformance.cluster.pods import Outcome
from conformance.load.neighbours import (
    BURN,
    Figures,
    at_once,
    beside_all,
    fair_parts,
    gigabytes,
    gigaflops,
    mig_keeps,
    replicas_keep,
)
from conformance.promise import device_promises
from conformance.skips import CheckSkipped
from tests.conformance.promised_nodes import CLUSTER, live, promised


@pytest.mark.parametrize(
    ("beside", "fair", "kept"),
    [((100.0, 81.0), 1.0, 0.81), ((25.0, 20.0), 0.25, 0.8), ((0.0, 100.0), 1.0, 0.0), ((), 1.0, 0)],
)
def test_judges_by_the_worst_device(beside: tuple[float, ...], fair: float, kept: float) -> None:
    assert Figures(100.0, beside, ()).worst_part(fair) == pytest.approx(kept)


def test_counts_a_device_without_a_figure_as_keeping_nothing() -> None:
    assert Figures(0.0, (50.0,), ()).worst_part() == 0


def test_fails_a_mig_device_that_loses_over_a_fifth_to_neighbours() -> None:
    expected = "at least 80% of the 100 GB/s that it has alone"
    assert mig_keeps(Figures(100.0, (95.0, 80.0), ()), "GB/s") == (
        True, expected, "95, 80 GB/s with all neighbours: 80%",
    )  # fmt: skip
    assert mig_keeps(Figures(100.0, (95.0, 79.0), ()), "GB/s") == (
        False, expected, "95, 79 GB/s with all neighbours: 79%",
    )  # fmt: skip
    assert not mig_keeps(Figures(100.0, (), ()), "GB/s")[0]


def test_fails_a_share_below_a_quarter_of_its_fair_part() -> None:
    expected = "no replica below 25% of a fair part of 80 Gflop/s"
    assert replicas_keep(Figures(80.0, (20.0, 5.0), ()), 4) == (
        True, expected, "20, 5 Gflop/s: the worst has 25% of it",
    )  # fmt: skip
    assert replicas_keep(Figures(80.0, (20.0, 4.9), ()), 4)[0] is False


@pytest.mark.parametrize(
    ("compute", "parts"), [({"compute": "share"}, 4), ({"compute": "cap"}, 1), ({}, 4)]
)
def test_divides_nothing_that_a_replica_has_alone_under_a_cap(
    compute: dict[str, str], parts: int
) -> None:
    """Alone, too, a capped share has its part alone: a part of that is no fair one."""
    limit = {"limit": "auto", "action": "prevent"}
    sharing = {"replicas": 4, "memoryLimit": limit, **compute}
    value = {**CLUSTER, "profiles": {"whole": {"timeSlicing": sharing}}}
    (promise,) = device_promises(promised(value, live("n1", {"nvidia.com/gpu.shared": "8"})))
    assert fair_parts(promise) == parts
    starved = replicas_keep(Figures(25.0, (5.0, 5.0, 5.0, 5.0), ()), fair_parts(promise), 0.8)
    assert starved[0] is (parts == 4)


def test_reads_the_last_printed_figures() -> None:
    assert gigaflops("\r50%  proc'd: 1 (20 Gflop/s)\r100%  proc'd: 2 (30 Gflop/s)") == 30
    assert gigabytes("copied 4096 MiB in 6.00 s: 1431.66 GB/s") == 1431.66
    assert gigaflops("Couldn't init") == gigabytes("") == 0


ROUND = "@@ begin {began}\n({figure} Gflop/s)\n@@ end {ended} 0\n"


def test_counts_only_rounds_beside_all_neighbours() -> None:
    early = ROUND.format(began=1.0, figure=90, ended=2.0)
    first = early + ROUND.format(began=3.0, figure=40, ended=4.0)
    late = ROUND.format(began=2.5, figure=45, ended=3.5)
    halted = "@@ begin 2.0\n(80 Gflop/s)\n"
    logs = beside_all([first, late, halted])
    assert [gigaflops(log) for log in logs] == [40, 45, 0]
    assert "90" not in logs[0]


class BurningPods:
    """Pods that end a round whenever somebody waits; the last one stands still after one round."""

    def __init__(self) -> None:
        self.rounds: dict[str, int] = {}

    def start(self, *_: object) -> str:
        name = f"pod-{len(self.rounds)}"
        self.rounds[name] = 1
        return name

    def log(self, name: str) -> str:
        done = [ROUND.format(began=at, figure=40, ended=at) for at in range(self.rounds[name])]
        return "".join([*done, f"@@ begin {self.rounds[name]}\n(7 Gflop/s)\n"])

    def until(self, holds: Callable[[], bool], _: float) -> bool:
        for _step in range(9):
            for name in list(self.rounds)[:-1]:
                self.rounds[name] += 1
            if holds():
                return True
        return False

    def remove(self, *names: str) -> None:
        for name in names:
            del self.rounds[name]


def test_has_no_figure_of_a_device_that_stalls_after_its_first_round() -> None:
    pods: Any = BurningPods()
    promise: Any = SimpleNamespace(node=SimpleNamespace(name="n1"), resource="r", count=3)
    together = at_once(pods, [promise], BURN)
    assert [gigaflops(log) for log in together.logs["r"]] == [40, 40, 0]
    assert not pods.rounds, "pods are left"


def test_fails_a_neighbour_that_stalls_after_the_broken_program() -> None:
    """Its rounds before ended well: counted by exit codes alone it would pass."""
    pods: Any = BurningPods()
    promise: Any = SimpleNamespace(node=SimpleNamespace(name="n1"), resource="r", count=3)
    assert at_once(pods, [promise], BURN).errors == 1


def test_counts_devices_without_a_round_beside_all_others() -> None:
    figures = Figures(100.0, (95.0, 0.0, 0.0), ())
    holds, _, seen = mig_keeps(figures, "GB/s")
    assert not holds
    assert seen == (
        "95, 0, 0 GB/s with all neighbours: 0%; 2 of 3 ended no round while all were at work"
    )
    assert replicas_keep(figures, 4)[2].endswith("2 of 3 ended no round while all were at work")


class LatePods(BurningPods):
    """Pods of which the last never begins."""

    def __init__(self, phase: str) -> None:
        super().__init__()
        self.phase = phase

    def log(self, name: str) -> str:
        return "" if name == "pod-2" else super().log(name)

    def wait(self, _name: str, _seconds: float) -> Outcome:
        return Outcome(self.phase, None, "", "its words")


@pytest.mark.parametrize(
    ("phase", "raised"),
    [("Pending", CheckSkipped), ("Failed", AssertionError), ("Deleted", AssertionError)],
)
def test_names_a_pod_that_never_begins(phase: str, raised: type[BaseException]) -> None:
    pods: Any = LatePods(phase)
    promise: Any = SimpleNamespace(node=SimpleNamespace(name="n1"), resource="r", count=3)
    with pytest.raises(raised, match=f"1 of 3 pods did not begin .*{phase}.*its words"):
        at_once(pods, [promise], BURN)
    assert not pods.rounds, "pods are left"
