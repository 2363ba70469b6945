"""The next step for a GPU's MPS daemon: a decision from its desired and its observed state."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, auto

from divvy.agent.mps.record import Recorded

EXCLUSIVE_PROCESS = 3
"""The compute mode (nvmlComputeMode_t) in which only an MPS server may use a GPU."""
ASK_SECONDS = 0.4
# Unanswered for so long, a daemon is ended: with it its clients, so not for a moment's silence.
_WEDGED_SECONDS = 10.0
_QUIT_SECONDS = 2.0
# So long up, a daemon's next failure is a first one again.
_CALM_SECONDS = 60.0
_BACKOFF_SECONDS = (1.0, 2.0, 5.0, 15.0, 60.0)
STARTING = "its MPS daemon is starting"
OUTDATED = "its MPS daemon belongs to the previous driver"
# Commands that start a server, of MPS 2 and 3: a refusal begins with its command.
_SERVER_STARTS = ("start_server", "server create")


@dataclass(frozen=True)
class Share:
    """What a process of one container may use at most: memory in MiB, threads in per cent.

    ``name`` is that of its namespace, where the daemon has such.
    """

    name: str
    memory_mib: int
    threads: int


@dataclass(frozen=True)
class Ceiling:
    """What no client of a daemon can exceed: memory in MiB, threads in per cent.

    Both are None if clients are left of a profile that has gone: they keep what they had.
    ``shares`` are those that are held, where each has a namespace of its own; None if it is not
    known who holds any.
    """

    memory_mib: int | None
    threads: int | None
    shares: tuple[Share, ...] | None = ()


class Step(Enum):
    """What is done next."""

    WAIT = auto()
    RECORD = auto()
    EXCLUDE = auto()
    START = auto()
    ASK = auto()
    LIMIT = auto()
    QUIT = auto()
    KILL = auto()
    RESTORE = auto()
    FORGET = auto()


@dataclass(frozen=True)
class Seen:
    """What is known of a GPU now: its record, its compute mode (None if unknown), the process.

    ``driver`` is the version of the driver that is loaded, "" if that is not known. Without
    ``holders_known`` containers that run may have mounted the daemon's folders.
    """

    recorded: Recorded | None
    mode: int | None
    alive: bool
    driver: str = ""
    holders_known: bool = True

    @property
    def outdated(self) -> bool:
        """Return whether the daemon is of a driver that has been replaced: it serves no client."""
        recorded_driver = self.recorded.driver if self.recorded else ""
        is_known = bool(recorded_driver and self.driver)
        return self.alive and is_known and recorded_driver != self.driver


@dataclass(frozen=True)
class Life:
    """What has become of a GPU's daemon, with times of a monotonic clock.

    ``answered`` is when it answered last, since this process started, adopted or asked it;
    ``silent`` since when it has not. ``ceiling`` is the one that it took last, ``refused`` why it
    takes none, and ``refusing_server`` whether it had a server then. ``starts`` counts them,
    ``failures`` those in a row, and ``problem`` is why the last step failed or the daemon ended.
    """

    started: float | None = None
    answered: float | None = None
    silent: float | None = None
    quit_at: float | None = None
    retry_at: float = 0.0
    failures: int = 0
    starts: int = 0
    ceiling: Ceiling | None = None
    refused: str = ""
    refusing_server: bool = False
    problem: str = ""

    @property
    def ready(self) -> bool:
        """Return whether clients can connect now."""
        return self.answered is not None and self.silent is None and self.ceiling is not None

    def starting(self, now: float) -> Life:
        """Note a start."""
        return Life(
            started=now, failures=self.failures, starts=self.starts + 1, problem=self.problem
        )

    def heard(self, now: float) -> Life:
        """Note an answer."""
        started = now if self.started is None else self.started
        calm = now - started >= _CALM_SECONDS and not self.refused
        return replace(
            self,
            started=started,
            answered=now,
            silent=None,
            failures=0 if calm else self.failures,
        )

    def unheard(self, now: float) -> Life:
        """Note that no answer came; before the first one that is a daemon that still starts."""
        silent = now if self.silent is None else self.silent
        return replace(self, silent=silent)

    def limited(self, ceiling: Ceiling) -> Life:
        """Note that the daemon has its ceiling: it is ready."""
        return replace(self, ceiling=ceiling, refused="", refusing_server=False, problem="")

    def unlimited(self) -> Life:
        """Note that the daemon has lost its ceiling with its server: it is not ready.

        A refusal by the server that ended does not delay the start of the next one.
        """
        retry_at = 0.0 if self.refusing_server else self.retry_at
        return replace(self, ceiling=None, refusing_server=False, retry_at=retry_at)

    def refusing(self, refused: str, now: float, *, has_server: bool = True) -> Life:
        """Note that the daemon refuses its ceiling: it is not ready, and is told again later."""
        pause = _BACKOFF_SECONDS[min(self.failures, len(_BACKOFF_SECONDS) - 1)]
        return replace(
            self,
            failures=self.failures + 1,
            retry_at=now + pause,
            ceiling=None,
            refused=refused,
            refusing_server=has_server,
        )

    def failed(self, problem: str, now: float) -> Life:
        """Note an unexpected end, or a step that failed: the next try waits longer."""
        pause = _BACKOFF_SECONDS[min(self.failures, len(_BACKOFF_SECONDS) - 1)]
        return Life(
            failures=self.failures + 1, starts=self.starts, retry_at=now + pause, problem=problem
        )

    def quitting(self, now: float) -> Life:
        """Note that the daemon was asked to end."""
        return replace(self, quit_at=now)


def next_step(wanted: Ceiling | None, seen: Seen, life: Life, now: float) -> Step:
    """Decide; ``wanted`` is None if the GPU is to have no daemon."""
    if wanted is None:
        return _towards_none(seen, life, now)
    if seen.recorded is None:
        return Step.WAIT if seen.mode is None or now < life.retry_at else Step.RECORD
    wedged = life.silent is not None and now - life.silent >= _WEDGED_SECONDS
    if seen.outdated or (wedged and seen.alive):
        return Step.KILL
    pausing = now < life.retry_at
    if pausing and not life.refused:
        return Step.WAIT
    if seen.mode is not None and seen.mode != EXCLUSIVE_PROCESS:
        return Step.EXCLUDE
    if not seen.alive:
        return Step.WAIT if seen.mode is None else Step.START
    answers = life.answered is not None and life.silent is None
    if answers and life.ceiling != wanted and not pausing:
        return Step.LIMIT
    return Step.ASK


def _towards_none(seen: Seen, life: Life, now: float) -> Step:
    if seen.recorded is None:
        return Step.WAIT
    if seen.alive:
        if life.quit_at is None:
            return Step.QUIT
        return Step.KILL if now - life.quit_at >= _QUIT_SECONDS else Step.WAIT
    if seen.mode is None or now < life.retry_at:
        return Step.WAIT
    if seen.mode != seen.recorded.mode:
        return Step.RESTORE
    return Step.FORGET if seen.holders_known else Step.WAIT


def problem_of(wanted: Ceiling | None, seen: Seen, life: Life) -> str:
    """Return why no container can be given a share by MPS of this GPU, "" if it can."""
    if wanted is None:
        return "it is not to have an MPS daemon now"
    if seen.outdated:
        return OUTDATED
    if seen.alive and life.ready:
        return "" if seen.mode in (None, EXCLUSIVE_PROCESS) else "its compute mode was changed"
    if seen.alive and life.answered is not None and life.silent is not None:
        return "its MPS daemon does not answer"
    if seen.alive and life.refused.startswith(_SERVER_STARTS):
        # In the mode EXCLUSIVE_PROCESS it starts beside nothing else.
        return f"its MPS server does not start; does an earlier client still run? {life.refused}"
    if seen.alive and life.refused:
        return f"its MPS daemon refuses a limit: {life.refused}"
    return f"it has no MPS daemon: {life.problem}" if life.problem else STARTING
