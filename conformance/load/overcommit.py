"""Ask for more memory than a device has, while neighbours on the same GPU compute."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from conformance.cluster.pods import Outcome, PodNamespace
from conformance.load.share_limit import REFUSED
from conformance.load.workload_pods import BROKEN, COMPUTING, rounds_in
from conformance.observe.identities import visible_gpus
from conformance.promise import DevicePromise

# As much of a device's memory as a process's context takes.
_CONTEXT_MIB = 512
# Enough of them that one is on the same GPU, however devices are spread.
_MAX_NEIGHBOURS = 8
_STARTED, _WENT_ON = 60, 20


@dataclass(frozen=True)
class Overcommit:
    """What came of asking for too much: ``neighbours`` says of each on the same GPU if it went on.

    ``elsewhere`` is how many neighbours were on other GPUs, where they show nothing.
    """

    command: tuple[str, ...]
    greedy: Outcome
    neighbours: tuple[bool, ...]
    elsewhere: int

    @property
    def words(self) -> str:
        """Describe what neighbours showed."""
        if not self.neighbours:
            return "no neighbour on the same GPU"
        return f"{sum(self.neighbours)} of {len(self.neighbours)} neighbours compute on"


def refuses_beyond(memory_mib: int, overcommit: Overcommit) -> tuple[bool, str, str]:
    """Judge a device of this memory: whether it holds, what is expected, what came of it."""
    least_mib, greedy = least_granted(memory_mib), overcommit.greedy
    last_line = greedy.log.strip().splitlines()[-1:] or [str(greedy)]
    holds = greedy.code == REFUSED and all(overcommit.neighbours)
    return (
        holds and granted_mib(greedy.log) >= least_mib,
        f"exit code {REFUSED} (out of memory), at least {least_mib} MiB of {memory_mib} "
        "allocated, neighbours on the same GPU compute on",
        f"exit code {greedy.code}, {last_line[0]}; {overcommit.words}",
    )


def least_granted(memory_mib: int) -> int:
    """Return the MiB that a device of this memory has to grant before it refuses more.

    One that grants less than half of its memory, and its process's context, does not have the
    memory that it shows.
    """
    return max(memory_mib // 2 - _CONTEXT_MIB, 1)


def granted_mib(log: str) -> int:
    """Return how much mem-hog was granted, 0 if nothing."""
    granted = re.search(r"^allocated (\d+) MiB", log, re.MULTILINE)
    return int(granted[1]) if granted else 0


def overcommit(pods: PodNamespace, promise: DevicePromise) -> Overcommit:
    """Ask for a tenth more than the device's memory, beside neighbours where there are devices."""
    mib = int((promise.device.memory_mib or 0) * 1.1)
    command = ("mem-hog", "--mib", str(mib), "--chunk", "256")
    node, resource = promise.node.name, promise.resource
    greedy_script = ("/bin/sh", "-c", f"nvidia-smi -L; exec {' '.join(command)}")
    names: list[str] = []
    try:
        for _ in range(min(promise.count - 1, _MAX_NEIGHBOURS)):
            names.append(pods.start(node, COMPUTING, resource))
        pods.until(lambda: all(_rounds(pods, name) for name in names), _STARTED)
        greedy = pods.run(node, greedy_script, resource)
        gpu = visible_gpus(greedy.log)
        beside = [name for name in names if visible_gpus(pods.log(name)) == gpu and gpu]
        return Overcommit(command, greedy, _went_on(pods, beside), len(names) - len(beside))
    finally:
        pods.remove(*names)


def _went_on(pods: PodNamespace, names: Sequence[str]) -> tuple[bool, ...]:
    before = {name: _rounds(pods, name) for name in names}
    pods.until(lambda: all(_rounds(pods, name) > before[name] for name in names), _WENT_ON)
    return tuple(
        _rounds(pods, name) > before[name] and BROKEN not in pods.log(name) for name in names
    )


def _rounds(pods: PodNamespace, name: str) -> int:
    return rounds_in(pods.log(name))
