"""Measures the cost of neighbours: a device alone, and while every other device works too.

Only hardware gives these figures a meaning. Each device of a kind is measured while all
devices of the node, of every kind that is cut or shared, do the same. Pods start one after the
other, so each works round after round until it is told to stop, and only those rounds count that
began when the last of them was at work.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from conformance.check import PARTITIONED, SHARED
from conformance.cluster.pods import Outcome, PodNamespace
from conformance.promise import DevicePromise
from conformance.skips import not_made

_SECONDS = 6
BURN = ("gpu-burn", "-m", "64", "-stts", "1", str(_SECONDS))
COPY = ("mem-bandwidth", "64", str(_SECONDS))
_PATIENCE = 120
# How many rounds' time pods have for one more whole round.
_ROUNDS = 6
# A pod that waits for a node, an image or a quota shows nothing of its device.
_NOT_YET = ("Pending", "Running")
_BEGIN, _END = "@@ begin", "@@ end"
# A device with hardware of its own may lose this much to neighbours: power and clocks are shared.
MIG_KEEPS = 0.8
# Of a fair part: 1 divided by the replicas of one device.
REPLICA_KEEPS = 0.25
# If the limiter divides the GPU's time.
PART_KEEPS = 0.8


@dataclass(frozen=True)
class Figures:
    """One kind of device: its figure alone, and that of each device among neighbours."""

    alone: float
    beside: tuple[float, ...]
    logs: tuple[str, ...]

    def worst_part(self, fair: float = 1.0) -> float:
        """Return the worst figure beside neighbours as a part of what is fair; 0 without one."""
        return min(self.beside, default=0.0) / (self.alone * fair) if self.alone else 0.0

    @property
    def listed(self) -> str:
        """Return the figures beside neighbours in words."""
        return ", ".join(f"{figure:g}" for figure in self.beside)

    @property
    def still(self) -> str:
        """Return for how many devices there is no figure, "" if there is one of each."""
        count = sum(not figure for figure in self.beside)
        words = f"; {count} of {len(self.beside)} ended no round while all were at work"
        return words if count else ""


def mig_keeps(figures: Figures, unit: str) -> tuple[bool, str, str]:
    """Judge a MIG device among neighbours: whether it keeps enough, what is expected, what is."""
    return (
        figures.worst_part() >= MIG_KEEPS,
        f"at least {MIG_KEEPS:.0%} of the {figures.alone:g} {unit} that it has alone",
        f"{figures.listed} {unit} with all neighbours: {figures.worst_part():.0%}{figures.still}",
    )


def replicas_keep(
    figures: Figures, shares: int, least: float = REPLICA_KEEPS
) -> tuple[bool, str, str]:
    """Judge the replicas of one device that all burn, as ``mig_keeps`` does."""
    worst = figures.worst_part(1 / shares)
    return (
        worst >= least,
        f"no replica below {least:.0%} of a fair part of {figures.alone:g} Gflop/s",
        f"{figures.listed} Gflop/s: the worst has {worst:.0%} of it{figures.still}",
    )


def fair_parts(promise: DevicePromise) -> int:
    """Return into how many fair parts what a replica has alone is divided: none under a cap."""
    return 1 if promise.compute == "cap" else promise.device.shares


def gigaflops(log: str) -> float:
    """Return the last figure that gpu-burn gave, 0 if it gave none."""
    return _last(r"\((\d+(?:\.\d+)?) Gflop/s\)", log)


def gigabytes(log: str) -> float:
    """Return the figure that mem-bandwidth gave, 0 if it gave none."""
    return _last(r"(\d+\.\d+) GB/s", log)


def _last(pattern: str, log: str) -> float:
    figures = re.findall(pattern, log)
    return float(figures[-1]) if figures else 0.0


def contended(promises: Sequence[DevicePromise]) -> list[DevicePromise]:
    """Return the kinds of a node whose devices have neighbours on the same GPU."""
    return [promise for promise in promises if promise.mode in (*PARTITIONED, *SHARED)]


def rounds(command: Sequence[str]) -> tuple[str, ...]:
    """Return a command that repeats another one and marks when each round begins and ends."""
    text = " ".join(command)
    loop = f"while :; do echo {_BEGIN} $(date +%s.%N); {text}; echo {_END} $(date +%s.%N) $?; done"
    return ("/bin/sh", "-c", loop)


@dataclass(frozen=True)
class Round:
    """One round of a pod: its times on the node's clock, its output; ``code`` None: not ended."""

    began: float
    ended: float | None
    code: int | None
    log: str


def rounds_of(log: str) -> list[Round]:
    """Read the rounds of a pod's log."""
    rounds = []
    for text in log.split(f"{_BEGIN} ")[1:]:
        began, _, rest = text.partition("\n")
        output, _, end = rest.partition(f"{_END} ")
        words = end.split()
        ended, code = (float(words[0]), int(words[1])) if len(words) >= 2 else (None, None)
        rounds.append(Round(float(began), ended, code, output))
    return rounds


def beside_all(logs: Sequence[str]) -> list[str]:
    """Return of each pod's log what it said in rounds that began when all pods were at work.

    Of a pod that ended no such round, "": it did not advance.
    """
    read = [rounds_of(log) for log in logs]
    last = max((own[0].began for own in read if own), default=0.0)
    return [
        "".join(
            workload.log
            for workload in own
            if workload.began >= last and workload.ended is not None
        )
        for own in read
    ]


def measure(
    pods: PodNamespace, promises: Sequence[DevicePromise], command: Sequence[str]
) -> Mapping[str, Figures]:
    """Run a command alone on one device of each kind, then on all devices at once."""
    read = gigaflops if command[0] == "gpu-burn" else gigabytes
    alone = {}
    for promise in promises:
        alone[promise.resource] = pods.run(promise.node.name, command, promise.resource, _PATIENCE)
    together = at_once(pods, promises, command)
    return {
        promise.resource: Figures(
            read(alone[promise.resource].log),
            tuple(read(log) for log in together.logs[promise.resource]),
            (alone[promise.resource].log, *together.logs[promise.resource]),
        )
        for promise in promises
    }


@dataclass(frozen=True)
class Together:
    """What pods said while all were at work, by resource; ``other`` is what ran beside them.

    ``errors`` counts pods of which any round failed, or that ended no round after ``other``.
    """

    logs: Mapping[str, Sequence[str]]
    errors: int
    other: Outcome | None


def at_once(
    pods: PodNamespace,
    promises: Sequence[DevicePromise],
    command: Sequence[str],
    spare: DevicePromise | None = None,
    other: Sequence[str] = (),
) -> Together:
    """Run a command on every device at once; on one device of ``spare``, ``other`` instead."""
    names: dict[str, list[str]] = {}
    done: Outcome | None = None
    try:
        for promise in promises:
            own = names.setdefault(promise.resource, [])
            for _ in range(
                promise.count - (spare is not None and promise.resource == spare.resource)
            ):
                own.append(pods.start(promise.node.name, rounds(command), promise.resource))
        busy = [name for own in names.values() for name in own]
        if not pods.until(lambda: all(rounds_of(pods.log(name)) for name in busy), _PATIENCE):
            _without_all(pods, busy)
        if spare is not None:
            done = pods.run(spare.node.name, other, spare.resource, _PATIENCE)
        since = {name: len(rounds_of(pods.log(name))) for name in busy}

        def advanced(name: str) -> bool:
            """Return whether a round that began from now on has ended."""
            return len(rounds_of(pods.log(name))) > since[name] + 1

        # A device that worked for a while and then stood still has no figure either.
        pods.until(lambda: all(map(advanced, busy)), _ROUNDS * _SECONDS)
        stuck = {name for name in busy if not advanced(name)}
        logs = {resource: [pods.log(name) for name in own] for resource, own in names.items()}
        every_log = [log for own in logs.values() for log in own]
        every = [rounds_of(log) for log in every_log]
        errors = sum(
            name in stuck
            or not any(outcome.code == 0 for outcome in own)
            or any(outcome.code for outcome in own)
            for name, own in zip(busy, every, strict=True)
        )
        figures = dict(zip(busy, beside_all(every_log), strict=True))
        beside = {
            resource: ["" if name in stuck else figures[name] for name in own]
            for resource, own in names.items()
        }
        return Together(beside, errors, done)
    finally:
        pods.remove(*(name for own in names.values() for name in own))


def _without_all(pods: PodNamespace, names: Sequence[str]) -> NoReturn:
    """Raise what keeps devices from working beside all others: a pod that fails is a failure."""
    late = [pods.wait(name, 0) for name in names if not rounds_of(pods.log(name))]
    count = f"{len(late)} of {len(names)} pods did not begin to work within {_PATIENCE} s"
    broken = [outcome for outcome in late if outcome.phase not in _NOT_YET]
    assert not broken, f"{count}: {broken[0]}"
    not_made(f"{count}, so nothing ran beside all neighbours: {late[0] if late else 'too late'}")
