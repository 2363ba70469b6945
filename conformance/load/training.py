"""Train with a framework on shares of one GPU, side by side."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from conformance.check import PARTITIONED
from conformance.cluster.pods import Outcome, PodNamespace
from conformance.evidence import Verdict
from conformance.observe.device_memory import memory_fits
from conformance.observe.probes import smi_total
from conformance.promise import DevicePromise

# Long enough that pods that start one after the other train at the same time.
_SECONDS = 15
_PATIENCE = 300
# More than the share, beside the little that the network takes.
_BEYOND = 64
# CUDA_ERROR_OUT_OF_MEMORY (cuda.h); another error may have been anything's.
_REFUSED = r"^\d+ MiB more: refused with CUDA's code 2,"


def train(pods: PodNamespace, promise: DevicePromise) -> list[Outcome]:
    """Train on one device more than there are GPUs or instances, so that two share one."""
    count = min(promise.kinds + 1, promise.count)
    ask = (promise.device.memory_mib or 0) + _BEYOND
    command = ["train", f"--seconds={_SECONDS}", f"--ask={ask}"]
    names: list[str] = []
    try:
        for _ in range(count):
            names.append(pods.start(promise.node.name, command, promise.resource))
        return [pods.wait(name, _PATIENCE) for name in names]
    finally:
        pods.remove(*names)


@dataclass(frozen=True)
class Trained:
    """What one training said: of the loss, of its memory in MiB, and when, on the node's clock.

    ``refused``: with CUDA's code for out of memory; ``goes_on``: it trained a step after that.
    ``total`` and ``used`` are CUDA's word, ``smi_mib`` is nvidia-smi's; None: it said nothing.
    """

    learns: bool
    is_repeated: bool
    refused: bool
    goes_on: bool
    total: int | None
    used: int | None
    smi_mib: int | None
    began: float
    ended: float


def read_training(outcome: Outcome, *, is_mig: bool = False) -> Trained:
    """Read the log of ``train`` on a share of a GPU, or of a MIG device."""
    log = outcome.log
    loss = re.search(r"^loss (\S+) -> (\S+) in \d+ steps$", log, re.MULTILINE)
    memory = re.search(r"^memory (\d+) of (\d+) MiB$", log, re.MULTILINE)
    more = re.search(r"^one step more: loss (\S+)$", log, re.MULTILINE)
    times = re.search(r"^trained from (\S+) to (\S+)$", log, re.MULTILINE)
    return Trained(
        learns=loss is not None
        and float(loss[2]) < float(loss[1]) / 10
        and "\nlosses: all finite" in log,
        is_repeated="the same again: equal" in log,
        refused=bool(re.search(_REFUSED, log, re.MULTILINE)),
        goes_on=more is not None and math.isfinite(float(more[1])),
        total=int(memory[2]) if memory else None,
        used=int(memory[1]) if memory else None,
        smi_mib=smi_total(log, is_mig=is_mig),
        began=float(times[1]) if times else 0.0,
        ended=float(times[2]) if times else 0.0,
    )


def side_by_side(outcomes: Sequence[Outcome]) -> bool:
    """Return whether all trained at the same time for a while."""
    read = [read_training(outcome) for outcome in outcomes]
    return max(run.began for run in read) < min(run.ended for run in read)


def judge_training(promise: DevicePromise, outcomes: Sequence[Outcome]) -> Verdict:
    """Judge the trainings of ``train``: what is expected of each, and what came of it."""
    limit = promise.device.memory_mib or 0
    expected = (
        f"learns, the same again, CUDA and nvidia-smi show {limit} MiB, uses no more, "
        "more refused with CUDA's code 2, trains on"
    )
    is_mig = promise.mode in PARTITIONED
    answers = []
    for outcome in outcomes:
        read = read_training(outcome, is_mig=is_mig)
        shows = all(memory_fits(promise, size) for size in (read.total, read.smi_mib))
        sizes = f"CUDA shows {read.total} MiB and nvidia-smi {read.smi_mib} MiB"
        words = [
            "learns" if read.learns and outcome.code == 0 else f"does not learn ({outcome})",
            "the same again" if read.is_repeated else "not the same again: it computes wrong",
            f"CUDA and nvidia-smi show {limit} MiB" if shows else sizes,
            "uses no more" if read.used and read.used <= limit else "uses more, or nothing",
            "more refused with CUDA's code 2" if read.refused else "more not refused with it",
            "trains on" if read.goes_on else "does not train on",
        ]
        answers.append(", ".join(words))
    result = expected if all(answer == expected for answer in answers) else "; ".join(answers)
    return f"{len(outcomes)} trainings: {expected}", f"{len(outcomes)} trainings: {result}"
