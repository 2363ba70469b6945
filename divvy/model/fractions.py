"""Parts of GPUs by annotation, as KAI and Run:ai have them: what becomes of each annotation.

``names.fraction`` in a stack file names the first, and with it the others are read, too. Admission,
`divvy fit` and docs/coming-from.md read this table. Source: KAI-Scheduler, docs/gpu-sharing and its
admission webhook; what that refuses is refused here, too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from divvy.model.api_names import FRACTION_BEFORE, OTHER_GPUS
from divvy.model.stack import Names

KAI_FRACTION = "gpu-fraction"
MEMORY = "gpu-memory"
DEVICES = "gpu-fraction-num-devices"
CONTAINER = "gpu-fraction-container-name"
TIME, CORES = "gpu-sm-percentage", "gpu-sm-cores"
LIMIT_SUFFIX = ".limit"
# Of single containers, KAI's own and those of NVIDIA's gpu-fractioning.
PER_CONTAINER = ("nvidia.com/container.", "kai.scheduler/container.")
# Kueue's label on the pods of a Job that it has started, and the one on the Job that has it wait.
KUEUE_JOB, KUEUE_QUEUE = "kueue.x-k8s.io/podset", "kueue.x-k8s.io/queue-name"
# By annotation, the expression that its value matches, and what is expected; alike in RE2.
FORMATS: Mapping[str, tuple[str, str]] = {
    KAI_FRACTION: (r"^0?\.(0[1-9]|[1-9])[0-9]*$", "0.01 to 0.99 is expected"),
    MEMORY: (r"^[1-9][0-9]{0,6}$", "a whole number of MiB such as 2000 is expected"),
    DEVICES: (r"^([1-9]|[12][0-9]|3[0-2])$", "1 to 32 GPUs are expected"),
    TIME: (r"^([1-9][0-9]?|100)$", "1 to 100 per cent of a GPU's time are expected"),
}
INSTEAD_OF_CORES = f"write {TIME} instead"
INSTEAD_OF_LIMIT = "the memory of a share is its limit; leave it out"
INSTEAD_OF_PER_CONTAINER = (
    f"leave it out; {MEMORY} with {CONTAINER} gives one container memory, and the profile says how "
    "GPUs are shared"
)
NOT_COUNTED = "Kueue has counted no GPU for this pod: in a Job it does not read "
COUNTED_INSTEAD = "; name a ResourceClaimTemplate in the Job"
MAX_CHARACTERS = 40
"""Of a value that a user has written, in a message; alike in the policies."""


def followed(names: Names) -> tuple[str, ...]:
    """Return the annotations that become a claim; none where the stack file names no fraction."""
    return () if names.fraction is None else (names.fraction, MEMORY, DEVICES, CONTAINER, TIME)


def is_asked(annotations: Mapping[str, Any], names: Names) -> bool:
    """Return whether a pod asks for a part of a GPU, or tries to."""
    return names.fraction is not None and any(
        name in asking(names) or name.startswith(PER_CONTAINER) for name in annotations
    )


def asking(names: Names) -> tuple[str, ...]:
    """Return the annotations that ask for a part of a GPU, also those that are refused."""
    return (*followed(names), *_limits(names), CORES)


def asked_as(annotations: Mapping[str, Any], names: Names) -> str:
    """Return how a pod asks, or has asked, for a part of a GPU by annotation, "" if it does not.

    Anybody may write what stands for the past: only the pod's claims say what it has.
    """
    here = " ".join(f"{name}={annotations[name]}" for name in asking(names) if name in annotations)
    return _shortened(annotations.get(FRACTION_BEFORE) or here, 80)


def fraction_problem(
    annotations: Mapping[str, Any],
    names: Names,
    containers: Sequence[Mapping[str, Any]],
    labels: Mapping[str, Any] | None = None,
) -> str:
    """Return why a pod with such annotations and labels is refused, "" if it is not."""
    size = [name for name in (str(names.fraction), MEMORY) if name in annotations]
    for name in sorted(annotations):
        if instead := _instead(name, names):
            return f"the annotation {name} is not supported; {instead}"
    if len(size) != 1:
        both = f"both {names.fraction} and {MEMORY}; leave one of them out"
        neither = f"neither {names.fraction} nor {MEMORY}, without which the others mean nothing"
        return f"the pod has {both if size else neither}"
    if KUEUE_JOB in (labels or {}):
        return f"{NOT_COUNTED}{size[0]}{COUNTED_INSTEAD}"
    for name, (pattern, expected) in _formats(names).items():
        value = annotations.get(name)
        if value is not None and not re.fullmatch(pattern, str(value), re.ASCII):
            return f"the annotation {name} is {_shortened(value)}; {expected}"
    container = annotations.get(CONTAINER)
    if container is not None and container not in [item.get("name") for item in containers]:
        words = _shortened(container)
        return f"the annotation {CONTAINER} names {words}, and the pod has no such container"
    sized = (names.gpu, names.memory, names.memory_percentage, names.cores)
    for item in containers:
        for name in _requested(item):
            if name in sized or name.startswith(OTHER_GPUS):
                return (
                    f"container {item.get('name')} has {name} together with the annotation "
                    f"{size[0]}; request GPUs in only one way"
                )
    return ""


def _instead(name: str, names: Names) -> str:
    """Return what to do instead of an annotation that is not followed, "" if it is."""
    if name == CORES:
        return INSTEAD_OF_CORES
    if name in _limits(names):
        return INSTEAD_OF_LIMIT
    return INSTEAD_OF_PER_CONTAINER if name.startswith(PER_CONTAINER) else ""


def _limits(names: Names) -> tuple[str, ...]:
    return tuple(f"{name}{LIMIT_SUFFIX}" for name in (names.fraction, MEMORY))


def _requested(container: Mapping[str, Any]) -> list[str]:
    resources = container.get("resources") or {}
    return sorted({*(resources.get("limits") or {}), *(resources.get("requests") or {})})


def _shortened(value: object, characters: int = MAX_CHARACTERS) -> str:
    return str(value)[:characters].replace("\n", " ")


def fraction_limits(annotations: Mapping[str, Any], names: Names) -> dict[str, str]:
    """Return the limits that say the same, for a pod that is not refused."""
    limits = {names.gpu: str(annotations.get(DEVICES, "1"))}
    if names.fraction is not None and names.fraction in annotations:
        digits = str(annotations[names.fraction]).partition(".")[2]
        # A part of a per cent is left out: three thirds fit on a GPU.
        limits[names.memory_percentage] = str(int(digits.ljust(2, "0")[:2]))
    if MEMORY in annotations:
        limits[names.memory] = str(annotations[MEMORY])
    if TIME in annotations:
        limits[names.cores] = str(annotations[TIME])
    return limits


def _formats(names: Names) -> dict[str, tuple[str, str]]:
    """Return the formats, with the fraction's by its name in the stack file."""
    return {
        str(names.fraction) if name == KAI_FRACTION else name: expected
        for name, expected in FORMATS.items()
    }
