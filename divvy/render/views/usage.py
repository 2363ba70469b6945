"""`divvy top` in the terminal: right at 80 columns and without colour."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from divvy.live.usage import Usage, UsedGpu, UsedNode, UsingPod, sums
from divvy.model.api_names import State
from divvy.render.views.usage_words import (
    MAX_NODES_IN_FULL,
    SIMULATED,
    age,
    first_sentence,
    free_words,
    gib,
    gpu_memory,
    holding_memory,
    holding_state,
    node_title,
    percent,
    resource_title,
    resource_words,
    state_words,
    unplaced_title,
    usage_title,
)

_BAR, _SHORT_BAR = 26, 12
_EIGHTHS = " ▏▎▍▌▋▊▉"


@dataclass(frozen=True)
class _Widths:
    """So many characters have the columns that are alike on all nodes."""

    index: int
    memory: int
    device: int


def usage_text(usage: Usage) -> RenderableType:
    """Return every node with its GPUs and who holds them; of many nodes one line each."""
    parts: list[RenderableType] = [
        Text.assemble((usage.cluster, "bold"), f": {usage_title(usage)} at ", (usage.read, "dim"))
    ]
    if any(node.simulated for node in usage.nodes):
        parts.append(Text(SIMULATED, style="dim"))
    parts += [Text(f"note: {note}", style="yellow") for note in usage.notes]
    if not usage.nodes:
        parts.append(Text("no node offers a device or has an agent of Divvy: is it deployed?"))
    if len(usage.nodes) > MAX_NODES_IN_FULL:
        parts += ["", *_overview(usage.nodes)]
    else:
        widths = _widths(usage.nodes)
        for node in usage.nodes:
            parts += ["", *_node(node, widths)]
    if usage.waiting:
        parts += ["", Text("waiting for a node", style="bold"), *_pods(usage.waiting)]
    return Group(*parts)


def _widths(nodes: Iterable[UsedNode]) -> _Widths:
    gpus = [gpu for node in nodes for gpu in node.gpus]
    return _Widths(
        index=max((len(str(gpu.index)) for gpu in gpus), default=0),
        memory=max((len(gpu_memory(gpu)) for gpu in gpus), default=0),
        device=max(
            (cell_len(holding.device) for gpu in gpus for holding in gpu.holdings), default=0
        ),
    )


def _node(node: UsedNode, widths: _Widths) -> Iterator[RenderableType]:
    yield Text.assemble((node.name, "bold"), f": {node_title(node)}")
    lines: list[RenderableType] = []
    if node.unknown:
        lines.append(Text(f"use is not known: {node.unknown}", style="yellow"))
    gpus_tell = any(gpu.state not in ("", State.READY) for gpu in node.gpus)
    problem = "" if gpus_tell else state_words(node.state, node.reason)
    if problem:
        lines.append(Text(problem, style="red"))
    for gpu in node.gpus:
        lines += _gpu(gpu, widths)
    if node.unplaced:
        lines += [Text(unplaced_title(node), style="italic"), *_pods(node.unplaced)]
    if node.resources:
        lines.append(Text(f"{resource_title(node)}: {resource_words(node)}", style="dim"))
    yield Padding(Group(*lines), (0, 0, 0, 2))


def _gpu(gpu: UsedGpu, widths: _Widths) -> Iterator[RenderableType]:
    yield Text.assemble(
        f"GPU {gpu.index:>{widths.index}} ",
        _bar(gpu.used_mib, gpu.total_mib, _BAR),
        f" {gpu_memory(gpu):>{widths.memory}}",
        f"  util {percent(gpu.utilisation):>5}",
    )
    problem = state_words(gpu.state, gpu.reason)
    if problem:
        yield Padding(Text(problem, style="red"), (0, 0, 0, 4))
    if gpu.holdings:
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(min_width=widths.device, overflow="fold")
        table.add_column(overflow="fold")
        table.add_column(justify="right", no_wrap=True)
        table.add_column(justify="right", no_wrap=True)
        for holding in gpu.holdings:
            table.add_row(
                Text(holding.device),
                Text.assemble(
                    holding.holder, (f" {holding.container}" if holding.container else "", "dim")
                ),
                Text(holding_memory(holding)),
                Text(age(holding.pod.age_seconds)),
            )
            attention = holding_state(holding)
            if attention:
                table.add_row("", Text(attention, style="yellow"))
        yield Padding(table, (0, 0, 0, 4))
    if gpu.free:
        yield Padding(Text(f"free: {free_words(gpu)}", style="green"), (0, 0, 0, 4))


def _pods(pods: Iterable[UsingPod]) -> Iterator[RenderableType]:
    for pod in pods:
        line = Text.assemble(pod.full_name, (f"  {age(pod.age_seconds)}", "dim"))
        line.append(f"  {', '.join(pod.requests)}")
        yield Padding(line, (0, 0, 0, 2))
        words = state_words(pod.state, first_sentence(pod.reason))
        if words:
            yield Padding(Text(words, style="yellow"), (0, 0, 0, 4))


def _overview(nodes: Iterable[UsedNode]) -> Iterator[RenderableType]:
    """Yield a line for each node: of thousands, a table would take seconds to lay out."""
    rows = [(node, sums((node,))) for node in nodes]
    name = max((cell_len(node.name) for node, _ in rows), default=0)
    heading = f"{'GPUs':>4}  {'memory':<{_SHORT_BAR + 2}} {'GiB':>14}  {'util':>5}  {'pods':>4}"
    yield Text(f"{'node':<{name}}  {heading}  state", style="underline")
    for node, whole in rows:
        is_known = whole.unknown < whole.gpus
        used, total = (whole.used_mib, whole.total_mib) if is_known else (None, None)
        memory = f"{gib(whole.used_mib)} of {gib(whole.total_mib)}" if is_known else "–"
        state = state_words(node.state, "") or ("use is not known" if node.unknown else "")
        yield Text.assemble(
            f"{node.name}{' ' * (name - cell_len(node.name))}  {whole.gpus:>4}  ",
            _bar(used, total, _SHORT_BAR),
            f" {memory:>14}  {percent(whole.utilisation):>5}  {whole.pods:>4}  ",
            (state, "yellow"),
        )


def _bar(used: int | None, total: int | None, width: int) -> Text:
    """Return a bar that is filled by what is used of a total; dots where that is not known."""
    if used is None or not total:
        return Text.assemble("▕", ("·" * width, "dim"), "▏")
    eighths = min(-(-used * width * 8 // total), width * 8)
    part = _EIGHTHS[eighths % 8] if eighths % 8 else ""
    filled = "█" * (eighths // 8) + part
    return Text.assemble("▕", (f"{filled:<{width}}", "cyan"), "▏")
