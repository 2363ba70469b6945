"""Words for the use of GPUs: the same in every view."""

from divvy.live.usage import Holding, Usage, UsedGpu, UsedNode, sums
from divvy.model.api_names import State
from divvy.model.phrases import plural

# Beyond so many nodes each is one line, unless one is asked for.
MAX_NODES_IN_FULL = 20
UNKNOWN = "–"
SIMULATED = "simulated by Divvy: no GPU is behind these figures"
_AGES = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))


def usage_title(usage: Usage) -> str:
    """Return how much of a cluster is in use."""
    whole = sums(usage.nodes)
    words = f"{plural(len(usage.nodes), 'node')}, {plural(whole.gpus, 'GPU')}"
    if whole.total_mib:
        words += f", {gib(whole.used_mib)} of {gib(whole.total_mib)} GiB in use"
    # A user who may read no pods does not read that there are none.
    return f"{words}, {plural(whole.pods, 'pod')}" if whole.pods or not usage.notes else words


def node_title(node: UsedNode) -> str:
    """Describe what a node is: pool, profile, GPUs."""
    parts = [f"pool {node.pool}" if node.pool else "in no pool"]
    parts += [f"profile {node.profile}"] if node.profile else []
    parts += [f"{node.gpu_count} × {node.product or 'GPU'}"] if node.gpu_count else []
    return ", ".join(parts)


def state_words(state: str, reason: str) -> str:
    """Return a state that deserves attention with its reason, empty for one that does not."""
    if state in ("", State.READY, "Running"):
        return reason
    return f"{state}: {reason}" if reason else state


def first_sentence(reason: str) -> str:
    """Return what a reason begins with: the scheduler adds what preemption would not do."""
    return reason.partition(". ")[0].removesuffix(".")


def resource_words(node: UsedNode) -> str:
    """Return how many devices of each resource are requested, or just how many there are."""
    return ", ".join(
        f"{resource.resource} {resource.allocatable:,}"
        if resource.requested is None
        else f"{resource.resource} {resource.requested:,} of {resource.allocatable:,}"
        for resource in node.resources
    )


def resource_title(node: UsedNode) -> str:
    """Describe what the numbers of devices are."""
    return (
        "offered" if any(resource.requested is None for resource in node.resources) else "requested"
    )


def gpu_memory(gpu: UsedGpu) -> str:
    """Return how much of a GPU's memory is in use."""
    return memory_words(gpu.used_mib, gpu.total_mib)


def holding_memory(holding: Holding) -> str:
    """Return how much of a device's memory is in use, and what else limits its holder."""
    words = memory_words(holding.used_mib, holding.limit_mib)
    if holding.cores is not None:
        words += f", {holding.cores} % of time"
    return words if holding.utilisation is None else f"{words}, util {holding.utilisation} %"


def holding_state(holding: Holding) -> str:
    """Describe what of a holder deserves attention."""
    over = [f"{holding.over_mib:,} MiB over its limit"] if holding.over_mib else []
    state = state_words(holding.pod.state, holding.pod.reason)
    return ", ".join([*over, *([state] if state else [])])


def free_words(gpu: UsedGpu) -> str:
    """Describe what is free on a GPU: ``2 × 1g.5gb, 1 × 2g.10gb``."""
    return ", ".join(f"{count} × {kind}" for kind, count in gpu.free.items())


def unplaced_title(node: UsedNode) -> str:
    """Describe what the pods are whose GPU is not shown."""
    if node.unknown:
        return "pods; which GPU each holds is not known"
    return "pods that hold no GPU yet"


def memory_words(used: int | None, most: int | None) -> str:
    """Return ``1,500 of 4,864 MiB``; if one of them is unknown, the other."""
    if used is None and most is None:
        return UNKNOWN
    if most is None:
        return f"{used:,} MiB"
    return f"{UNKNOWN if used is None else f'{used:,}'} of {most:,} MiB"


def percent(value: int | None) -> str:
    """Return per cent, or that it is not known."""
    return UNKNOWN if value is None else f"{value} %"


def gib(mib: int) -> str:
    """Return MiB as GiB: whole ones from 100 on."""
    value = mib / 1024
    return f"{value:,.0f}" if value >= 99.95 else f"{value:.1f}"


def age(seconds: float | None) -> str:
    """Return an age in its largest unit, as kubectl does: ``3h``."""
    if seconds is None:
        return UNKNOWN
    size, unit = next((unit_size for unit_size in _AGES if seconds >= unit_size[0]), _AGES[-1])
    return f"{int(seconds // size):,}{unit}"
