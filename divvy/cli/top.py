"""divvy top: who holds which GPU now, and how much of it is in use."""

from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep
from typing import Annotated, Literal

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from divvy.cli.options import OutFile, Stack
from divvy.cli.output import write
from divvy.cli.top_keys import Chosen, Keys, reading_keys
from divvy.errors import fail
from divvy.live.cluster_reader import reading
from divvy.live.recorder import Recorder
from divvy.live.usage import Order, Usage, matching, ordered, selected
from divvy.live.usage_reader import UsageReader
from divvy.render.views.usage import usage_text
from divvy.render.views.usage_json import usage_json
from divvy.render.views.usage_page import usage_page
from divvy.stack.file import read_path, stack_path
from divvy.stack.sections import read_cluster

# Between two looks; a cluster that takes long to read is left alone for three times as long.
_PAUSE, _SHARE = 2.0, 3.0


View = Literal["text", "json", "html"]


def top(
    stack: Stack,
    once: Annotated[bool, typer.Option("--once", help="Show it once, also in a terminal.")] = False,
    output: Annotated[View, typer.Option("-o", "--output", help="The format.")] = "text",
    out: OutFile = None,
    node: Annotated[str | None, typer.Option("--node", help="Only this node.")] = None,
    pod: Annotated[
        str | None, typer.Option("--pod", help="Only what this pod holds: NAME or NAMESPACE/NAME.")
    ] = None,
    namespace: Annotated[
        str | None, typer.Option("--namespace", "-n", help="Only pods of this namespace.")
    ] = None,
    sort: Annotated[
        Order, typer.Option("--sort", help="By name, or the most used or the oldest first.")
    ] = "node",
    record: Annotated[
        Path | None,
        typer.Option(
            "--record", help="Add each look to this recording, for `divvy advise --from`."
        ),
    ] = None,
) -> None:
    """Show nodes, their GPUs, who holds them, and what is in use; live in a terminal."""
    if record is not None and (node or pod or namespace):
        fail("--record records the whole cluster: leave out --node, --pod and -n")
    cluster = read_cluster(read_path(stack_path(stack)))
    recorder = None if record is None else Recorder(record)
    with reading(cluster.kubeconfig, cluster.context) as reader:
        source = UsageReader(reader, cluster, stack, node, namespace)

        def look() -> Usage:
            usage = source.read()
            if recorder is not None:
                recorder.add(usage)
            return selected(usage, node, namespace, pod)

        console = Console(highlight=False)
        live = output == "text" and out is None and not once
        usage = look()
        _check(usage, node, pod)
        if live and console.is_terminal and not console.is_dumb_terminal:
            try:
                with reading_keys() as keys:
                    _watch(console, usage, look, Chosen(sort), keys)
            finally:
                if recorder is not None:
                    recorder.write()
        else:
            write(_usage_view(ordered(usage, sort), output), out)


def _check(usage: Usage, node: str | None, pod: str | None) -> None:
    if usage.nodes or usage.waiting:
        return
    if pod is not None:
        fail(f"no pod {pod} holds a GPU or waits for one{f' on node {node}' if node else ''}")
    if node is not None:
        fail(f"node {node} has no GPUs that Divvy or a device plugin offers")


def _usage_view(usage: Usage, output: View) -> str | RenderableType:
    if output == "json":
        return usage_json(usage)
    return usage_page(usage) if output == "html" else usage_text(usage)


def _watch(
    console: Console, usage: Usage, look: Callable[[], Usage], chosen: Chosen, keys: Keys | None
) -> None:
    """Show it until somebody interrupts, or quits by a key."""
    with Live(console=console, screen=True, auto_refresh=False) as live:
        took = 0.0
        while True:
            again = monotonic() + max(_PAUSE, took * _SHARE)
            while (left := again - monotonic()) > 0:
                view = usage_text(ordered(matching(usage, chosen.text), chosen.order))
                line = Text("" if keys is None else chosen.words(), style="dim")
                live.update(Group(line, view), refresh=True)
                if keys is None:
                    sleep(left)
                    continue
                for key in keys.within(left):
                    chosen = chosen.pressed(key)
                if chosen.done:
                    return
            began = monotonic()
            usage = look()
            took = monotonic() - began
