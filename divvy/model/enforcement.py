"""What a node needs for the driver's own limits of memory, and for version 3 of MPS.

Sources: docs.nvidia.com/deploy/mps, "MPS v3 Memory Partitioning" (release 615), for what the driver
needs, "MPS v3 Interface" and "Appendix: Environment Variables" for namespaces.
"""

from dataclasses import dataclass

from divvy.model.versions import is_older

DRIVER_LIMITS_SINCE = "615"
MPS_V3_SINCE = "615"


@dataclass(frozen=True)
class NodeCapabilities:
    """What decides whether the driver of a node can limit a container's memory.

    ``driver`` is its version, ``cgroup`` that of the control groups. ``hook`` tells whether the
    container runtime runs one for each container: the driver's limit is set before the container's
    process starts.
    """

    driver: str
    cgroup: int
    hook: bool = True


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
