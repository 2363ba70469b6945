"""What recorded pods would need of any device: the peak with headroom, never less than is known."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil
from operator import attrgetter
from typing import NamedTuple

from divvy.advise.trace import Kind, RecordedPod

# Needs are rounded up to this, so that pods are alike.
_STEP_MIB = 64
# What a need is made of.
_FIGURES = attrgetter(
    "resource", "kind", "devices", "given_mib", "given_cores", "peak_mib", "cores"
)


class Need(NamedTuple):
    """What pods that are alike need of each of their ``devices``: MiB, per cent of a GPU.

    ``whole``: no part of a GPU will do. ``resource`` and ``kind`` are what they have held.
    ``is_known``: its memory was measured, and its compute, where a driver tells it.
    """

    devices: int
    memory_mib: int
    cores: int
    whole: bool
    resource: str
    kind: Kind
    is_known: bool


@dataclass(frozen=True, eq=False)
class Needs:
    """The needs of pods, and of each pod the number of its own."""

    kinds: tuple[Need, ...]
    of_pod: Sequence[int]


def needs_of(pods: Sequence[RecordedPod], headroom: float, gpu_mib: int) -> Needs:
    """Return what pods need of GPUs with that much memory; ``headroom`` 0.2 is 20 % over the peak.

    What is unknown is all that the pod was given: of an unknown part, the whole GPU.
    """
    return _alike(pods, partial(_need, headroom=headroom, gpu_mib=gpu_mib))


def given_of(pods: Sequence[RecordedPod], gpu_mib: int) -> Needs:
    """Return what pods were given, as if they had used all of it."""
    return _alike(pods, partial(_given, gpu_mib=gpu_mib))


def held_or_needed(given: Needs, needs: Needs, is_held: Sequence[bool]) -> Needs:
    """Return what pods were given where that is still held (by kind of it), else what they need."""
    shift = len(given.kinds)
    of_pod = [
        kind if is_held[kind] else shift + needed
        for kind, needed in zip(given.of_pod, needs.of_pod, strict=True)
    ]
    return Needs((*given.kinds, *needs.kinds), of_pod)


def _alike(pods: Iterable[RecordedPod], need_of: Callable[[RecordedPod], Need]) -> Needs:
    """Return each need once; pods of the same figures are looked at once."""
    numbers: dict[Need, int] = {}
    known: dict[tuple[object, ...], int] = {}
    of_pod = []
    for pod in pods:
        figures = _FIGURES(pod)
        number = known.get(figures)
        if number is None:
            number = known[figures] = numbers.setdefault(need_of(pod), len(numbers))
        of_pod.append(number)
    return Needs(tuple(numbers), of_pod)


def _given(pod: RecordedPod, gpu_mib: int) -> Need:
    memory = gpu_mib if pod.given_mib is None else ceil(min(pod.given_mib, gpu_mib))
    cores = max(1, min(100, int(100 if pod.given_cores is None else pod.given_cores)))
    whole = pod.kind == "whole"
    return Need(pod.devices, memory, cores, whole, pod.resource, pod.kind, is_known=True)


def _need(pod: RecordedPod, headroom: float, gpu_mib: int) -> Need:
    given = gpu_mib if pod.given_mib is None else min(pod.given_mib, gpu_mib)
    memory = given
    if pod.peak_mib is not None:
        # It ran in what it was given, however little above its peak that is.
        memory = max(pod.peak_mib, min(pod.peak_mib * (1 + headroom), given))
        memory = min(max(given, pod.peak_mib), -(-memory // _STEP_MIB) * _STEP_MIB)
    given_cores = 100 if pod.given_cores is None else int(pod.given_cores)
    return Need(
        devices=pod.devices,
        memory_mib=ceil(memory),
        cores=max(1, min(100, given_cores if pod.cores is None else ceil(pod.cores))),
        # Programs that use several GPUs expect all of each.
        whole=pod.kind == "whole" and pod.devices > 1,
        resource=pod.resource,
        kind=pod.kind,
        # Of a MIG device no driver tells the compute.
        is_known=pod.peak_mib is not None and (pod.cores is not None or pod.kind == "mig"),
    )
