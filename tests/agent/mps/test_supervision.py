"""What is done next about one GPU's MPS daemon, over every run of events."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from divvy.agent.mps.record import Recorded
from divvy.agent.mps.supervision import (
    EXCLUSIVE_PROCESS,
    OUTDATED,
    STARTING,
    Ceiling,
    Life,
    Seen,
    Step,
    next_step,
    problem_of,
)

CEILING, OTHER = Ceiling(10240, 25), Ceiling(20480, 50)
DEFAULT = 0
RUNNING = Seen(Recorded(DEFAULT, 7, 7), EXCLUSIVE_PROCESS, alive=True)


def test_starts_a_daemon_in_order() -> None:
    world = World(wanted=CEILING)
    assert world.run(until_ready=True) == [
        Step.RECORD,
        Step.EXCLUDE,
        Step.START,
        Step.ASK,
        Step.LIMIT,
    ]
    assert world.problem == ""


def test_stops_a_daemon_in_reverse_order() -> None:
    world = World(wanted=CEILING)
    world.run(until_ready=True)
    world.wanted = None
    assert world.run() == [Step.QUIT, Step.RESTORE, Step.FORGET]
    assert (world.mode, world.recorded, world.alive) == (DEFAULT, None, False)


def test_kills_a_daemon_that_does_not_quit() -> None:
    world = World(wanted=CEILING, deaf=True)
    world.alive, world.recorded, world.mode = True, Recorded(DEFAULT), EXCLUSIVE_PROCESS
    world.wanted = None
    assert world.run() == [Step.QUIT, Step.KILL, Step.RESTORE, Step.FORGET]


def test_withdraws_shares_at_once_and_ends_a_silent_daemon_later() -> None:
    life = Life(started=0.0).heard(0.0).limited(CEILING)
    assert problem_of(CEILING, RUNNING, life) == ""
    silent = life.unheard(1.0)
    assert problem_of(CEILING, RUNNING, silent) == "its MPS daemon does not answer"
    assert next_step(CEILING, RUNNING, silent, 10.9) is Step.ASK
    assert next_step(CEILING, RUNNING, silent, 11.0) is Step.KILL
    assert problem_of(CEILING, RUNNING, silent.heard(5.0)) == ""


def test_ends_the_daemon_of_a_driver_that_was_replaced() -> None:
    life = Life(started=0.0).heard(0.0).limited(CEILING)
    recorded = Recorded(DEFAULT, 7, 7, "550.163.01")
    for loaded, outdated in (("550.163.01", False), ("", False), ("580.95.05", True)):
        seen = Seen(recorded, EXCLUSIVE_PROCESS, alive=True, driver=loaded)
        assert (next_step(CEILING, seen, life, 1.0) is Step.KILL) is outdated
        assert (problem_of(CEILING, seen, life) == OUTDATED) is outdated
    adopted = Seen(Recorded(DEFAULT, 7, 7), EXCLUSIVE_PROCESS, alive=True, driver="580.95.05")
    assert problem_of(CEILING, adopted, life) == ""


def test_backs_off_after_failed_starts() -> None:
    life, now, pauses = Life(), 0.0, []
    for _ in range(7):
        life = life.starting(now).failed("it ended", now)
        pauses.append(life.retry_at - now)
        now = life.retry_at
    assert pauses == [1, 2, 5, 15, 60, 60, 60]
    life = life.starting(now).heard(now).heard(now + 60)
    assert life.failed("it ended", now).retry_at - now == 1


def test_changes_the_ceiling_without_a_restart() -> None:
    life = Life(started=0.0).heard(0.0).limited(CEILING)
    assert next_step(OTHER, RUNNING, life, 1.0) is Step.LIMIT


def test_withdraws_shares_until_a_refused_limit_is_accepted() -> None:
    life = Life(started=0.0).heard(0.0).limited(CEILING).refusing("set_x: Invalid device", 1.0)
    assert problem_of(OTHER, RUNNING, life) == (
        "its MPS daemon refuses a limit: set_x: Invalid device"
    )
    # The clients that it has are still watched over.
    assert next_step(OTHER, RUNNING, life, 1.5) is Step.ASK
    life = life.heard(2.0)
    assert problem_of(OTHER, RUNNING, life) != ""
    assert next_step(OTHER, RUNNING, life, 2.0) is Step.LIMIT
    again = life.refusing("set_x: Invalid device", 2.0)
    assert (next_step(OTHER, RUNNING, again, 3.9), next_step(OTHER, RUNNING, again, 4.0)) == (
        Step.ASK,
        Step.LIMIT,
    )
    assert problem_of(OTHER, RUNNING, again.heard(4.0).limited(OTHER)) == ""


@pytest.mark.parametrize("command", ["start_server", "server create"])
def test_says_what_may_keep_a_server_from_starting(command: str) -> None:
    life = Life(started=0.0).heard(0.0).refusing(f"{command}: Failed", 1.0, has_server=False)
    assert problem_of(CEILING, RUNNING, life) == (
        f"its MPS server does not start; does an earlier client still run? {command}: Failed"
    )


def test_backs_off_from_a_limit_that_is_refused_long_after_the_start() -> None:
    life, now, pauses = Life(started=0.0).heard(0.0).limited(CEILING), 100.0, []
    for _ in range(7):
        life = life.heard(now).refusing("set_x: Invalid device", now)
        pauses.append(life.retry_at - now)
        now = life.retry_at
    assert pauses == [1, 2, 5, 15, 60, 60, 60]
    life = life.limited(OTHER).heard(now)
    assert life.refusing("set_x: Invalid device", now).retry_at - now == 1


def test_starts_a_server_again_at_once_that_ends_while_a_limit_is_refused() -> None:
    """Its clients have none until then, and a program beside them could take the GPU."""
    life = Life(started=0.0).heard(0.0).limited(CEILING)
    for _ in range(5):
        life = life.refusing("namespace set: it has active clients", 100.0)
    assert next_step(CEILING, RUNNING, life.heard(101.0), 101.0) is Step.ASK
    life = life.heard(101.0).unlimited()
    assert next_step(CEILING, RUNNING, life, 101.0) is Step.LIMIT
    # One that cannot start is given time.
    life = life.refusing("server create: it has not started", 101.0, has_server=False)
    life = life.heard(102.0).unlimited()
    assert next_step(CEILING, RUNNING, life, 102.0) is Step.ASK


def test_starts_no_daemon_on_a_gpu_that_does_not_report_its_mode() -> None:
    unknown = Seen(None, None, alive=False)
    assert next_step(CEILING, unknown, Life(), 0.0) is Step.WAIT
    assert next_step(CEILING, Seen(Recorded(0), None, alive=False), Life(), 0.0) is Step.WAIT
    assert problem_of(CEILING, unknown, Life()) == STARTING


def test_keeps_an_administrators_exclusive_mode() -> None:
    left = Seen(Recorded(EXCLUSIVE_PROCESS), EXCLUSIVE_PROCESS, alive=False)
    assert next_step(None, left, Life(), 0.0) is Step.FORGET


@dataclass
class World:
    """A GPU on which every step does what it says, and things happen between two steps."""

    wanted: Ceiling | None = None
    deaf: bool = False
    now: float = 0.0
    mode: int = DEFAULT
    recorded: Recorded | None = None
    alive: bool = False
    life: Life = field(default_factory=Life)

    @property
    def seen(self) -> Seen:
        return Seen(self.recorded, self.mode, self.alive)

    @property
    def problem(self) -> str:
        return problem_of(self.wanted, self.seen, self.life)

    def step(self) -> Step:
        step = next_step(self.wanted, self.seen, self.life, self.now)
        self.now += 0.5
        match step:
            case Step.RECORD:
                self.recorded = Recorded(self.mode)
            case Step.EXCLUDE:
                assert self.recorded is not None, "a mode was changed that cannot be restored"
                self.mode = EXCLUSIVE_PROCESS
            case Step.START:
                assert self.mode == EXCLUSIVE_PROCESS
                assert not self.alive
                self.alive, self.life = True, self.life.starting(self.now)
            case Step.ASK:
                heard = self.alive and not self.deaf
                self.life = self.life.heard(self.now) if heard else self.life.unheard(self.now)
            case Step.LIMIT:
                assert self.wanted is not None
                self.life = self.life.limited(self.wanted)
            case Step.QUIT:
                self.life = self.life.quitting(self.now)
                if not self.deaf:
                    self.alive, self.life = False, Life()
            case Step.KILL:
                quitting = self.life.quit_at is not None
                self.alive = False
                self.life = Life() if quitting else self.life.failed("it did not answer", self.now)
            case Step.RESTORE:
                assert not self.alive
                assert self.recorded is not None
                self.mode = self.recorded.mode
            case Step.FORGET:
                self.recorded = None
        return step

    def die(self) -> None:
        if self.alive:
            self.alive, self.life = False, self.life.failed("it ended", self.now)

    def run(self, *, until_ready: bool = False) -> list[Step]:
        steps: list[Step] = []
        for _ in range(300):
            if until_ready and not self.problem:
                break
            step = self.step()
            steps += [] if step is Step.WAIT else [step]
            if self.wanted is None and self.recorded is None:
                break
        return steps


EVENTS = st.sampled_from(["step", "die", "want", "drop", "deaf", "hear", "agent", "default"])


@given(st.lists(EVENTS, max_size=60))
def test_restores_the_mode_whatever_happens(events: list[str]) -> None:
    world = World()
    for event in events:
        match event:
            case "step":
                world.step()
            case "die":
                world.die()
            case "want":
                world.wanted = CEILING
            case "drop":
                world.wanted = None
            case "deaf" | "hear":
                world.deaf = event == "deaf"
            case "agent":  # another one begins: it knows the record and what runs
                world.life = Life()
            case _:
                world.mode = DEFAULT  # an administrator
        assert world.mode == DEFAULT or world.recorded == Recorded(DEFAULT)
        if not world.problem:
            assert world.alive
    world.deaf, world.wanted = False, CEILING
    world.run(until_ready=True)
    assert world.problem == ""
    world.wanted = None
    world.run()
    assert (world.mode, world.recorded, world.alive) == (DEFAULT, None, False)
