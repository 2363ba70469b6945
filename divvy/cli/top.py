"""divvy top: who holds which GPU now, and how much of it is in use."""

from collections.abc import Callable
from enum import StrEnum
from time import monotonic, sleep
from typing import Annotated

import typer
from rich.console import Console, RenderableType
from rich.live import Live

from divvy.cli.cluster_reader import reading
from divvy.cli.errors import fail
from divvy.cli.options import OutFile, Stack
from divvy.cli.output import write
from divvy.cli.usage_reader import UsageReader
from divvy.plan.usage import Usage, ordered, selected
from divvy.render.usage import usage_text
from divvy.render.usage_json import usage_json
from divvy.render.usage_page import usage_page
from divvy.stack.file import stack_path
from divvy.stack.revisions import read_side
from divvy.stack.sections import read_cluster

# Between two looks; a cluster that takes long to read is left alone for three times as long.
_PAUSE, _SHARE = 2.0, 3.0


class View(StrEnum):
    """How it is shown."""

    TEXT = "text"
    JSON = "json"
    HTML = "html"


class Sort(StrEnum):
    """What nodes, and the GPUs of each, are sorted by."""

    NODE = "node"
    MEMORY = "memory"
    UTILISATION = "utilisation"
    AGE = "age"


def top(
    stack: Stack,
    once: Annotated[bool, typer.Option("--once", help="Show it once, also in a terminal.")] = False,
    output: Annotated[View, typer.Option("-o", "--output", help="The format.")] = View.TEXT,
    out: OutFile = None,
    node: Annotated[str | None, typer.Option("--node", help="Only this node.")] = None,
    pod: Annotated[
        str | None, typer.Option("--pod", help="Only what this pod holds: NAME or NAMESPACE/NAME.")
    ] = None,
    namespace: Annotated[
        str | None, typer.Option("--namespace", "-n", help="Only pods of this namespace.")
    ] = None,
    sort: Annotated[
        Sort, typer.Option("--sort", help="By name, or the most used or the oldest first.")
    ] = Sort.NODE,
) -> None:
    """Show nodes, their GPUs, who holds them, and what is in use; live in a terminal."""
    cluster = read_cluster(read_side(str(stack_path(stack)), None))
    with reading(cluster.kubeconfig, cluster.context) as reader:
        source = UsageReader(reader, cluster, stack, node, namespace)

        def look() -> Usage:
            return ordered(selected(source.read(), node, namespace, pod), sort.value)

        console = Console(highlight=False)
        live = output is View.TEXT and out is None and not once
        usage = look()
        _check(usage, node, pod)
        if live and console.is_terminal and not console.is_dumb_terminal:
            _watch(console, usage, look)
        else:
            write(_shown(usage, output), out)


def _check(usage: Usage, node: str | None, pod: str | None) -> None:
    if usage.nodes or usage.waiting:
        return
    if pod is not None:
        fail(f"no pod {pod} holds a GPU or waits for one{f' on node {node}' if node else ''}")
    if node is not None:
        fail(f"node {node} has no GPUs that Divvy or a device plugin offers")


def _shown(usage: Usage, output: View) -> str | RenderableType:
    if output is View.JSON:
        return usage_json(usage)
    return usage_page(usage) if output is View.HTML else usage_text(usage)


def _watch(console: Console, usage: Usage, look: Callable[[], Usage]) -> None:
    """Show it until somebody interrupts."""
    with Live(console=console, screen=True, auto_refresh=False) as live:
        took = 0.0
        while True:
            live.update(usage_text(usage), refresh=True)
            sleep(max(_PAUSE, took * _SHARE))
            began = monotonic()
            usage = look()
            took = monotonic() - began
