"""Words for plans: the same in every view."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from divvy.model import Placement
from divvy.model.claims import Claims
from divvy.model.phrases import plural, some
from divvy.model.problems import printable
from divvy.plan import (
    Change,
    Device,
    Difference,
    GpuPlan,
    Guarantees,
    NodePlan,
    Plan,
    PoolPlan,
    level,
)
from divvy.plan.predict.claimable import size_words

# So many pools or nodes of many are named.
NAMED = 20


@dataclass(frozen=True)
class ResourceRow:
    """One resource of a node with what each device of it is.

    ``at_most``: it is made when pods claim it, and this is how many there can be.
    """

    resource: str
    per_node: int
    device: str
    guarantees: Guarantees
    at_most: bool = False

    def count(self, nodes: int = 1) -> str:
        """Return how many there are on some nodes: ``28``, or ``≤ 28`` where pods claim them."""
        return f"{'≤ ' if self.at_most else ''}{self.per_node * nodes:,}"


@dataclass(frozen=True)
class GpuGroup:
    """GPUs of a node that are partitioned alike, and one of them as their picture."""

    label: str
    gpu: GpuPlan


@dataclass(frozen=True)
class Segment:
    """One piece of a GPU's bar, in memory slices; both labels are empty if nothing is there."""

    start: int
    size: int
    label: str
    full_label: str
    resource: str
    shares: int
    words: str


def resource_rows(node: NodePlan) -> tuple[ResourceRow, ...]:
    """List the resources of a node by name."""
    first: dict[str, Device] = {}
    for device in node.devices:
        first.setdefault(device.resource, device)
    advertised = (
        ResourceRow(name, number, device_words(first[name]), first[name].guarantees)
        for name, number in node.per_node.items()
    )
    claimed = (
        ResourceRow(kind.name, kind.at_most, kind.words, kind.guarantees, at_most=True)
        for kind in node.claimable
    )
    return (*advertised, *claimed)


def device_words(device: Device) -> str:
    """Describe what a container gets with one device."""
    if device.memory_mib is None:
        return f"device files, up to {plural(device.shares, 'holder')}"
    size = size_words(device.memory_mib, device.sms)
    if device.placement is None:
        what = "whole GPU" if device.shares == 1 else f"GPU shared by {device.shares}"
    else:
        what = f"MIG {device.placement.profile}"
        what = what if device.shares == 1 else f"{what} shared by {device.shares}"
    return f"{what}: {size}"


def _what(promise: str) -> str:
    return "nvidia-smi" if promise == "nvidiaSmi" else promise


def levels(promise: Guarantees) -> str:
    """Return the levels of all four promises in one line."""
    return ", ".join(f"{_what(key)} {level(words)}" for key, words in promise.items())


def promise_lines(promises: Iterable[Guarantees]) -> tuple[tuple[str, str, str], ...]:
    """Return every distinct promise once, as (what, level, meaning)."""
    lines: dict[tuple[str, str, str], None] = {}
    for promise in dict.fromkeys(promises):
        for key, words in promise.items():
            head, _, meaning = words.partition(": ")
            lines[(_what(key), head, meaning)] = None
    order = {"memory": 0, "compute": 1, "faults": 2, "nvidia-smi": 3}
    return tuple(sorted(lines, key=lambda line: (order[line[0]], line)))


def named_promises(changes: Iterable[Change]) -> tuple[Guarantees, ...]:
    """Return the promises that a diff names by their levels alone: of resources new or gone."""
    return tuple(
        promise
        for change in changes
        for row in change.resources
        if row.guarantees_before is None or row.guarantees_after is None
        for promise in (row.guarantees_before, row.guarantees_after)
        if promise is not None
    )


def gpu_groups(node: NodePlan) -> tuple[GpuGroup, ...]:
    """Group the GPUs of a node that are partitioned alike, in the order of their first index."""
    alike: dict[tuple[object, ...], list[GpuPlan]] = {}
    for gpu in node.gpus:
        alike.setdefault(gpu.shape, []).append(gpu)
    return tuple(
        GpuGroup(gpu_range([gpu.index for gpu in group]), group[0]) for group in alike.values()
    )


def gpu_range(indices: Iterable[int]) -> str:
    """Write GPU indices shortly: ``GPU 0–3, 5``."""
    runs: list[list[int]] = []
    for index in sorted(indices):
        if runs and runs[-1][-1] == index - 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    parts = [str(run[0]) if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in runs]
    return "GPU " + ", ".join(parts)


def segments(gpu: GpuPlan) -> tuple[Segment, ...]:
    """Cut a GPU into the pieces of its bar, free memory slices among them."""
    if gpu.claims is not None:
        kinds = claim_kinds(gpu.claims)
        words = f"as pods claim it: {kinds}"
        return (Segment(0, bar_slices(gpu), "as pods claim it", words, "", 1, words),)
    if gpu.placements is None or gpu.model.mig is None:
        offer = gpu.offers[0]
        words, replicas = device_words(gpu.devices[0]), offer.sharing.replicas
        shares = f"{replicas} replicas" if replicas > 1 else "whole"
        return (Segment(0, bar_slices(gpu), shares, shares, offer.resource, replicas, words),)
    pieces: list[Segment] = []
    position = 0
    by_placement = {device.placement: device for device in gpu.devices}
    for placement in gpu.placements:
        if placement.start > position:
            pieces.append(_free(position, placement.start - position))
        device = by_placement[placement]
        pieces.append(
            Segment(
                placement.start,
                placement.size,
                short_profile(placement),
                placement.profile,
                device.resource,
                device.shares,
                device_words(device),
            )
        )
        position = placement.start + placement.size
    if position < gpu.model.mig.memory_slices:
        pieces.append(_free(position, gpu.model.mig.memory_slices - position))
    return tuple(pieces)


def claim_kinds(claims: Claims) -> str:
    """Describe what pods can claim of a GPU: ``whole, by size, 1g.5gb``."""
    shares = ["by size"] if claims.shares is not None else []
    return ", ".join(["whole", *shares, *claims.mig])


def bar_cells(gpu: GpuPlan, width: int = 48) -> tuple[tuple[str, bool], ...]:
    """Return a GPU's bar in characters: the cells with their labels, and whether each is used."""
    slice_width = width // bar_slices(gpu)
    cells = []
    for piece in segments(gpu):
        label = piece.label or "·"
        if piece.shares > 1 and gpu.placements is not None:
            label += f"×{piece.shares}"
        room = piece.size * slice_width - 1
        cells.append((f"{label[:room]:^{room}}", bool(piece.label)))
    return tuple(cells)


def bar_slices(gpu: GpuPlan) -> int:
    """Return how many memory slices a GPU's bar has; 8 where MIG does not say."""
    return gpu.model.mig.memory_slices if gpu.model.mig else 8


def short_profile(placement: Placement) -> str:
    """Return a profile's name without its memory: ``1g+me`` for ``1g.5gb+me``."""
    slices, _, rest = placement.profile.partition(".")
    _, plus, attributes = rest.partition("+")
    return slices + plus + attributes


def _free(start: int, size: int) -> Segment:
    return Segment(start, size, "", "", "", 1, plural(size, "free memory slice"))


def pool_title(pool: PoolPlan) -> str:
    """Describe what a pool is: nodes, GPUs, profile."""
    if pool.model is None or pool.node is None or pool.count is None:
        return f"hardware unknown, profile {pool.profile}"
    gpus = len(pool.node.gpus)
    return f"{plural(pool.count, 'node')} × {gpus} × {pool.model.name}, profile {pool.profile}"


def plan_title(plan: Plan) -> str:
    """Return how large a cluster is."""
    nodes = sum(pool.count or 0 for pool in plan.pools)
    gpus = sum((pool.count or 0) * len(pool.node.gpus) for pool in plan.pools if pool.node)
    return f"{plural(len(plan.pools), 'pool')}, {plural(nodes, 'node')}, {plural(gpus, 'GPU')}"


def change_title(change: Change) -> str:
    """Describe whom a change concerns."""
    if change.node is not None:
        if change.nodes_before and change.nodes_after:
            return f"node {change.node}"
        return f"node {change.node} {'goes' if change.nodes_before else 'comes'}"
    if change.nodes_before == change.nodes_after:
        return plural(change.nodes_after, "node")
    if not change.nodes_before:
        return f"new: {plural(change.nodes_after, 'node')}"
    if not change.nodes_after:
        return f"removed: {plural(change.nodes_before, 'node')}"
    return f"{plural(change.nodes_before, 'node')} → {change.nodes_after:,}"


def profile_change(change: Change) -> str:
    """Describe which profiles a change is between."""
    before = change.before.profile if change.before and change.nodes_before else None
    after = change.after.profile if change.after and change.nodes_after else None
    if before == after or before is None or after is None:
        return f"profile {after or before}"
    return f"profile {before} → {after}"


def disruption_words(change: Change) -> str:
    """Describe what a change demands of the pods that run."""
    effect = change.disruption
    if effect.level == "none":
        return "none: nothing that runs is touched"
    where = f" ({gpu_range(effect.gpus)} of each node)" if effect.gpus else ""
    return f"{effect.level}: {effect.reason}{where}"


def promise_changes(before: Guarantees, after: Guarantees) -> tuple[tuple[str, str, str], ...]:
    """Return the promises whose words differ, as (what, before, after)."""
    return tuple(
        (_what(key), older, newer)
        for (key, older), (_, newer) in zip(before.items(), after.items(), strict=True)
        if older != newer
    )


@dataclass(frozen=True)
class AlikeChanges:
    """A change, and the pools or the single nodes of its pool that change in the same way."""

    change: Change
    pools: tuple[str, ...]
    nodes: tuple[str, ...]

    @property
    def pool_words(self) -> str:
        """Return whose change it is: ``Pool a``, ``3 pools, each so: a, b, c``."""
        if len(self.pools) == 1:
            return f"pool {self.pools[0]}"
        return f"{len(self.pools):,} pools, each so: {some(self.pools, NAMED)}"

    @property
    def title(self) -> str:
        """Describe which nodes of the pool change."""
        if len(self.nodes) < 2:
            return change_title(self.change)
        verb = ""
        if not (self.change.nodes_before and self.change.nodes_after):
            verb = " go" if self.change.nodes_before else " come"
        return f"{len(self.nodes):,} nodes{verb}, each so: {some(self.nodes, NAMED)}"


def alike_changes(changes: Iterable[Change]) -> tuple[AlikeChanges, ...]:
    """Group pools that change alike, and single nodes of a pool that do, each at its first."""
    groups: list[tuple[Change, list[Change]]] = []
    for change in changes:
        match = next((group for group in groups if _is_alike(group[0], change)), None)
        if match is None:
            groups.append((change, [change]))
        else:
            match[1].append(change)
    return tuple(
        AlikeChanges(
            first,
            tuple(dict.fromkeys(change.pool for change in alike)),
            tuple(change.node for change in alike if change.node is not None),
        )
        for first, alike in groups
    )


def _is_alike(first: Change, second: Change) -> bool:
    if (first.node is None) != (second.node is None):
        return False
    if first.node is not None:
        return replace(first, node=second.node) == second
    return replace(first, pool=second.pool) == second


def unchanged_words(difference: Difference) -> str:
    """Return in one line which pools do not change, "" if all of them do."""
    names = difference.unchanged
    return f"{plural(len(names), 'pool')} unchanged: {some(names, NAMED)}" if names else ""


def count_changes(difference: Difference) -> str:
    """Return how many changes a diff has."""
    settings = len(difference.settings) + len(difference.renamed)
    counts = [plural(len(difference.changes), "change")] if difference.changes else []
    counts += [plural(settings, "setting")] if settings else []
    return ", ".join(counts) or "objects only"


def code(text: str) -> str:
    """Return text as inert Markdown code, fit for a table; "–" for none."""
    if not text:
        return "–"
    escaped = printable(text).replace("|", "\\|")
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", escaped)), default=0))
    pad = " " if "`" in escaped else ""
    return f"{fence}{pad}{escaped}{pad}{fence}"


def signed(before: int, after: int) -> str:
    """Return a difference with its sign."""
    return f"{after - before:+,}"
