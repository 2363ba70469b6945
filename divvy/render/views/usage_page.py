"""`divvy top` as one self-contained HTML page with a bar for every GPU."""

from divvy.live.usage import Holding, Usage, UsedGpu, UsedNode, sums
from divvy.render.views import usage_words
from divvy.render.views.page import Figure, drawn, template
from divvy.render.views.usage_words import (
    MAX_NODES_IN_FULL,
    SIMULATED,
    holding_memory,
    memory_words,
    usage_title,
)


def usage_page(usage: Usage) -> str:
    """Return who holds which GPU as an HTML page; of many nodes one line each."""
    return template("usage.html.j2").render(
        usage=usage,
        title=usage_title(usage),
        in_full=len(usage.nodes) <= MAX_NODES_IN_FULL,
        simulated=SIMULATED if any(node.simulated for node in usage.nodes) else "",
        wording=usage_words,
        sums=sums,
        use_figure=use_figure,
    )


def use_figure(node: UsedNode) -> Figure:
    """Draw the GPUs of a node, each filled by what its holders use of its memory."""
    return drawn(
        f"Memory in use on the GPUs of {node.name}",
        [(f"GPU {gpu.index}", _pieces(gpu)) for gpu in node.gpus],
    )


def _pieces(gpu: UsedGpu) -> list[tuple[float, str, str, str]]:
    """Return the pieces of a bar: part of the whole, label, kind, words."""
    if gpu.used_mib is None or not gpu.total_mib:
        return [(1.0, "use is not known", "free", "its use is not known")]
    whole = max(gpu.total_mib, gpu.used_mib, 1)
    pieces = []
    rest = gpu.used_mib
    for holding in gpu.holdings:
        used = min(holding.used_mib or 0, rest)
        if used:
            words = f"{holding.device}, {holding.holder}: {holding_memory(holding)}"
            pieces.append((used / whole, holding.pod.name or holding.claim, _kind(holding), words))
            rest -= used
    if rest:
        others = "used by holders together, and by the driver"
        pieces.append((rest / whole, f"{rest:,} MiB", "shared", f"{rest:,} MiB {others}"))
    free = whole - gpu.used_mib
    if free:
        words = f"{memory_words(free, None)} not in use"
        pieces.append((free / whole, words, "free", words))
    return pieces


def _kind(holding: Holding) -> str:
    first = holding.device[:1]
    return f"mig{first}" if first in "12347" and first else "whole"
