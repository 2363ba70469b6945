"""Parts of GPUs by annotation, as KAI and Run:ai have them: what becomes of each annotation.

``names.fraction`` in a stack file names the first, and with it the others are read, too. Admission,
`divvy fit` and docs/coming-from.md read this table. Source: KAI-Scheduler, docs/gpu-sharing and its
admission webhook, which refuses the same pods.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from divvy.model.stack import Names

KAI_FRACTION = "gpu-fraction"
MEMORY = "gpu-memory"
DEVICES = "gpu-fraction-num-devices"
CONTAINER = "gpu-fraction-container-name"
TIME, CORES = "gpu-sm-percentage", "gpu-sm-cores"
LIMIT_SUFFIX = ".limit"
# Of single containers, and of NVIDIA's gpu-fractioning.
PER_CONTAINER = "nvidia.com/container."
# By annotation, the expression that its value matches, and what is expected; alike in RE2.
FORMATS: Mapping[str, tuple[str, str]] = {
    KAI_FRACTION: (r"^0?\.(0[1-9]|[1-9])[0-9]*$", "0.01 to 0.99 is expected"),
    MEMORY: (r"^[1-9][0-9]{0,7}$", "a whole number of MiB such as 2000 is expected"),
    DEVICES: (r"^[1-9][0-9]{0,2}$", "a number of GPUs such as 2 is expected"),
    TIME: (r"^([1-9][0-9]?|100)$", "1 to 100 per cent of a GPU's time are expected"),
}
NOT_FOLLOWED: Mapping[str, str] = {
    CORES: f"write {TIME} instead",
    PER_CONTAINER: f"write {MEMORY} and {CONTAINER} instead",
    LIMIT_SUFFIX: "the memory of a share is its limit; leave it out, or let both be equal",
}


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
    limits = (f"{name}{LIMIT_SUFFIX}" for name in (names.fraction, MEMORY))
    return (*followed(names), *limits, CORES)


def fraction_problem(
    annotations: Mapping[str, Any], names: Names, containers: Sequence[Mapping[str, Any]]
) -> str:
    """Return why a pod with such annotations is refused, "" if it is not."""
    size = [name for name in (str(names.fraction), MEMORY) if name in annotations]
    for name in sorted(annotations):
        if name == CORES or name.startswith(PER_CONTAINER):
            key = PER_CONTAINER if name.startswith(PER_CONTAINER) else name
            return f"the annotation {name} is not supported; {NOT_FOLLOWED[key]}"
    if len(size) != 1:
        both = f"both {names.fraction} and {MEMORY}; leave one of them out"
        neither = f"neither {names.fraction} nor {MEMORY}, without which the others mean nothing"
        return f"the pod has {both if size else neither}"
    limit = f"{size[0]}{LIMIT_SUFFIX}"
    if annotations.get(limit, annotations[size[0]]) != annotations[size[0]]:
        return f"the annotation {limit} is not supported; {NOT_FOLLOWED[LIMIT_SUFFIX]}"
    for name, (pattern, expected) in _formats(names).items():
        value = annotations.get(name)
        if value is not None and not re.fullmatch(pattern, str(value), re.ASCII):
            return f"the annotation {name} is {value}; {expected}"
    container = annotations.get(CONTAINER)
    if container is not None and container not in [item.get("name") for item in containers]:
        return f"the annotation {CONTAINER} names {container}, and the pod has no such container"
    sized = (names.gpu, names.memory, names.memory_percentage, names.cores)
    for item in containers:
        for name in (item.get("resources") or {}).get("limits") or {}:
            if name in sized:
                return (
                    f"container {item.get('name')} has {name} together with the annotation "
                    f"{size[0]}; request GPUs in only one way"
                )
    return ""


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
