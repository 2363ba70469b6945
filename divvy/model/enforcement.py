"""The ladder: how a node can keep a container within its memory, the strongest way first.

Sources: docs.nvidia.com/deploy/mps, "MPS v3 Memory Partitioning" (release 615), for what the driver
needs and counts, "MPS v3 Interface" and "Appendix: Environment Variables" for namespaces; MPS v2
and the limiter as this repository has them.
"""

import re
from dataclasses import dataclass
from enum import StrEnum

from divvy.model.versions import is_older

DRIVER_LIMITS_SINCE = "615"
MPS_V3_SINCE = "615"
_DMEM_SINCE = (6, 14)
_KERNEL = re.compile(r"(\d+)\.(\d+)")


class Rung(StrEnum):
    """What keeps a container within its memory; a weaker one comes later.

    ``MPS_V3`` gives each container a namespace, whose limits its variables do not lift; they are of
    processes, as those of ``MPS``.
    """

    MIG = "mig"
    DRIVER = "driver"
    MPS_V3 = "mps v3"
    MPS = "mps"
    LIMITER = "limiter"
    WATCHED = "watched"


@dataclass(frozen=True)
class NodeCapabilities:
    """What decides which rungs a node has.

    ``driver`` and ``kernel`` are versions as they call themselves, ``cgroup`` is the version of
    the control groups. ``hook`` tells whether the container runtime runs one for each container:
    the driver's limit is set before the container's process starts. ``compute_mode`` tells
    whether a GPU's compute mode can be set, which MPS needs.
    """

    driver: str
    cgroup: int
    kernel: str
    hook: bool = True
    compute_mode: bool = True


def driver_limits_problem(capabilities: NodeCapabilities) -> str:
    """Return why the driver of a node cannot limit a container's memory, "" if it can."""
    if is_older(capabilities.driver, DRIVER_LIMITS_SINCE):
        return f"driver {capabilities.driver} limits no memory; {DRIVER_LIMITS_SINCE} or newer does"
    if capabilities.cgroup < 2:
        return (
            f"driver {capabilities.driver} limits the memory of control groups of version 2, "
            f"and this node has version {capabilities.cgroup}"
        )
    if not capabilities.hook:
        return (
            "the driver's limit is set by a CDI hook and the driver's nvidia-smi: this node lacks "
            "one of them"
        )
    return ""


def counted_by(capabilities: NodeCapabilities) -> str:
    """Return who counts for the driver's limits: "dmem", the kernel, or "misc", the driver."""
    match = _KERNEL.match(capabilities.kernel)
    is_new = match is not None and (int(match[1]), int(match[2])) >= _DMEM_SINCE
    return "dmem" if is_new else "misc"


def rungs(
    capabilities: NodeCapabilities, *, has_mig: bool, is_mig_device: bool = False
) -> tuple[Rung, ...]:
    """Return the rungs of a GPU of a node, or of one of its MIG devices, the strongest first."""
    has_driver_limits = not is_mig_device and not driver_limits_problem(capabilities)
    has_mps = not is_mig_device and capabilities.compute_mode
    available = {
        Rung.MIG: has_mig,
        Rung.DRIVER: has_driver_limits,
        Rung.MPS_V3: has_mps and not is_older(capabilities.driver, MPS_V3_SINCE),
        Rung.MPS: has_mps,
        Rung.LIMITER: True,
        Rung.WATCHED: True,
    }
    return tuple(rung for rung in Rung if available[rung])
