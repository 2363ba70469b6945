"""The advice for each pool: today's profile beside the best others, and one of them, or none."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from divvy.plan.predict.guarantees import MEMORY_LEVELS


class Guarantee(StrEnum):
    """What a pod is guaranteed of its device."""

    MEMORY = "memory"
    COMPUTE = "compute"
    FAULTS = "faults"


# From strong to weak. To a pod that has what it needs, a device of its own and a GPU are the same.
RANKS: Mapping[Guarantee, Mapping[str, int]] = {
    Guarantee.MEMORY: {
        **{word: rank for rank, word in enumerate(MEMORY_LEVELS)},
        "exclusive": 1,
    },
    Guarantee.COMPUTE: {
        "exclusive": 0,
        "hard": 0,
        "capped": 1,
        "weighted": 1,
        "concurrent": 2,
        "time-shared": 2,
        "none": 3,
    },
    Guarantee.FAULTS: {"isolated": 0, "shared by tenant": 1, "shared": 2},
}


@dataclass(frozen=True)
class GuaranteeChange:
    """A guarantee that pods would lose or gain: its levels, and how many pods."""

    guarantee: Guarantee
    before: str
    after: str
    pods: int

    @property
    def steps(self) -> int:
        """Return how much weaker it gets."""
        ranks = RANKS[self.guarantee]
        return ranks[self.after] - ranks[self.before]


@dataclass(frozen=True)
class Option:
    """A profile, and what becomes of the recorded pods with it.

    ``gpus`` and ``nodes`` are what the pods need at the peak, ``spare_nodes`` those of the pool
    that could go, ``idle_hours`` the GPU hours of the nodes that stay that no pod needed. By name:
    pods ``refused`` since no device holds them, ``killed`` since others could leave them no memory,
    ``slowed`` since they get less compute than they used; and those that would wait, with
    seconds, the longest first.
    ``requests`` are the resources that pods would have to ask for in place of others, with their
    number.
    """

    words: str
    profile: Any
    gpus: int
    nodes: int
    spare_nodes: int
    idle_hours: float
    refused: tuple[str, ...] = ()
    killed: tuple[str, ...] = ()
    slowed: tuple[str, ...] = ()
    waiting: tuple[tuple[str, float], ...] = ()
    lost: tuple[GuaranteeChange, ...] = ()
    gained: tuple[GuaranteeChange, ...] = ()
    requests: Mapping[tuple[str, str], int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def to_allow(self) -> tuple[Guarantee, ...]:
        """Return the guarantees that would have to be given up."""
        weaker = {change.guarantee for change in self.lost}
        weaker |= {Guarantee.COMPUTE} if self.slowed else set()
        return tuple(name for name in RANKS if name in weaker)

    @property
    def is_harmless(self) -> bool:
        """Return whether no pod is refused or killed."""
        return not self.refused and not self.killed

    @property
    def longest_wait(self) -> float:
        """Return the longest that a pod would wait, in seconds; infinite: for ever."""
        return max((seconds for _, seconds in self.waiting), default=0.0)


@dataclass(frozen=True)
class Times:
    """GPUs that pods needed, and that they had been given, at most, in equal parts of the time."""

    begin: float
    seconds: float
    needed: tuple[float, ...]
    given: tuple[float, ...]


@dataclass(frozen=True)
class PoolAdvice:
    """The advice for one pool; ``unknown`` says why there is none.

    ``best`` are the candidates that come nearest, those that keep every guarantee first;
    ``recommended`` is one of them, None to leave the pool as it is; ``reason`` is one sentence.
    """

    pool: str
    profile: str
    model: str = ""
    gpus: int = 0
    nodes: int = 0
    pods: int = 0
    unmeasured: int = 0
    today: Option | None = None
    best: tuple[Option, ...] = ()
    recommended: Option | None = None
    reason: str = ""
    times: Times | None = None
    unknown: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Advice:
    """The advice for the pools of a cluster, from what was recorded between two times."""

    cluster: str
    begin: float
    end: float
    headroom: float
    pools: tuple[PoolAdvice, ...]
    notes: tuple[str, ...] = ()


def duration_words(seconds: float) -> str:
    """Return a time to two figures: ``14 d``, ``3.5 h``, ``10 min``."""
    for unit, name in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= unit:
            return f"{seconds / unit:.1f}".removesuffix(".0") + f" {name}"
    return f"{seconds:.0f} s"
