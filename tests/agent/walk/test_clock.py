"""The walk's clock: what a program waits for a processor or the disk is not the program's time."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.agent.walk import clock
from tests.agent.walk.clock import NodeClock


class Machine:
    """A made-up /proc and the wall's clock."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.wall = 100.0
        monkeypatch.setattr(clock, "_PROC", str(folder))
        monkeypatch.setattr(clock, "monotonic", lambda: self.wall)

    def thread(
        self, process: int, waited: float, state: str = "S", children: str = "", number: int = 0
    ) -> None:
        task = self.folder / f"{process}/task/{number or process}"
        task.mkdir(parents=True, exist_ok=True)
        (task / "schedstat").write_text(f"5 {int(waited * 1e9)} 7\n")
        (task / "stat").write_text(f"{process} (a) name) {state} 1 1\n")
        (task / "children").write_text(children)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def test_follows_the_wall_clock_on_a_quiet_machine(machine: Machine) -> None:
    machine.thread(1, waited=0.001)
    at = NodeClock(lambda: [1])
    at.tick()
    machine.wall += 5.0
    at.tick()
    assert (at.now, at.lost) == (5.0, 0.0)


def test_subtracts_what_a_thread_waits_for_a_processor(machine: Machine) -> None:
    machine.thread(1, waited=3.0, children="2 ")
    machine.thread(2, waited=0.0)
    at = NodeClock(lambda: [1])
    at.tick()
    machine.wall += 5.0
    machine.thread(2, waited=4.0)
    at.tick()
    assert (at.now, at.lost) == (1.0, 4.0)


def test_subtracts_the_longest_wait_of_any_thread(machine: Machine) -> None:
    machine.thread(1, waited=0.0, children="2 ")
    machine.thread(1, waited=0.0, number=11)
    machine.thread(2, waited=0.0)
    at = NodeClock(lambda: [1])
    at.tick()
    machine.wall += 5.0
    machine.thread(1, waited=1.0, children="2 ")
    machine.thread(1, waited=3.0, number=11)
    machine.thread(2, waited=2.0)
    at.tick()
    assert (at.now, at.lost) == (2.0, 3.0)


def test_runs_never_backwards(machine: Machine) -> None:
    machine.thread(1, waited=0.0)
    at = NodeClock(lambda: [1])
    at.tick()
    machine.wall += 5.0
    machine.thread(1, waited=5.1)
    at.tick()
    assert (at.now, at.lost) == (0.0, 5.0)


def test_stands_still_while_a_thread_waits_for_the_disk(machine: Machine) -> None:
    machine.thread(1, waited=0.0)
    at = NodeClock(lambda: [1])
    at.tick()
    machine.wall += 5.0
    machine.thread(1, waited=0.0, state="D")
    at.tick()
    assert (at.now, at.lost) == (0.0, 5.0)


def test_follows_processes_that_come_and_go(machine: Machine) -> None:
    machine.thread(1, waited=0.0, children="2 ")
    at = NodeClock(lambda: [1, 3])
    at.tick()
    machine.wall += 5.0
    machine.thread(3, waited=1.0)
    at.tick()
    assert (at.now, at.lost) == (4.0, 1.0)
