"""divvy top: who holds which GPU now, and how much of it is in use."""

from collections.abc import Callable
from enum import StrEnum
from time import monotonic, sleep
from typing import Annotated
from urllib.parse import quote

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from divvy.cli.options import OutFile, Stack
from divvy.cli.output import write
from divvy.cli.top_keys import Chosen, Keys, reading_keys
from divvy.errors import fail
from divvy.live.cluster_reader import ClusterReader, reading
from divvy.live.prometheus import ask_prometheus
from divvy.live.usage import Usage, matching, ordered, selected
from divvy.live.usage_over_time import (
    device_hours_query,
    is_duration,
    memory_query,
    samples,
    use_by_namespace,
)
from divvy.live.usage_reader import UsageReader
from divvy.render.views.usage import usage_text
from divvy.render.views.usage_json import usage_json
from divvy.render.views.usage_over_time import (
    over_time_csv,
    over_time_json,
    over_time_page,
    over_time_text,
)
from divvy.render.views.usage_page import usage_page
from divvy.stack.file import read_path, stack_path
from divvy.stack.sections import read_cluster

# Between two looks; a cluster that takes long to read is left alone for three times as long.
_PAUSE, _SHARE = 2.0, 3.0
_QUERY_SECONDS = 60.0


class View(StrEnum):
    """How it is shown."""

    TEXT = "text"
    JSON = "json"
    HTML = "html"
    CSV = "csv"


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
    since: Annotated[
        str | None,
        typer.Option("--since", help="What each namespace used so far: for 12h, 7d, 4w."),
    ] = None,
    prometheus: Annotated[
        str,
        typer.Option(
            "--prometheus",
            envvar="DIVVY_PROMETHEUS",
            help="What --since asks: a URL, or NAMESPACE/SERVICE:PORT.",
        ),
    ] = "",
) -> None:
    """Show nodes, their GPUs, who holds them, and what is in use; live in a terminal."""
    if since is not None and (node or pod or sort is not Sort.NODE):
        fail("--since takes no --node, --pod or --sort: it is of namespaces, the most used first")
    cluster = read_cluster(read_path(stack_path(stack)))
    with reading(cluster.kubeconfig, cluster.context) as reader:
        if since is not None:
            write(_over_time(reader, prometheus, stack, since, namespace, output), out)
            return
        if output is View.CSV:
            fail("-o csv belongs to --since")
        source = UsageReader(reader, cluster, stack, node, namespace)

        def look() -> Usage:
            return selected(source.read(), node, namespace, pod)

        console = Console(highlight=False)
        live = output is View.TEXT and out is None and not once
        usage = look()
        _check(usage, node, pod)
        if live and console.is_terminal and not console.is_dumb_terminal:
            with reading_keys() as keys:
                _watch(console, usage, look, Chosen(sort.value), keys)
        else:
            write(_usage_view(ordered(usage, sort.value), output), out)


def _over_time(
    reader: ClusterReader,
    prometheus: str,
    stack: str,
    since: str,
    namespace: str | None,
    output: View,
) -> str | RenderableType:
    if not is_duration(since):
        fail(f"--since is {since!r}: a duration of 5m or more, such as 12h, 7d or 4w, is expected")
    if not prometheus:
        fail("--since needs --prometheus: a URL or NAMESPACE/SERVICE:PORT")
    hours, memory = (
        ask_prometheus(
            reader,
            prometheus,
            f"/api/v1/query?query={quote(query(since))}",
            _QUERY_SECONDS,
            samples,
        )
        for query in (device_hours_query, memory_query)
    )
    uses = [use for use in use_by_namespace(hours, memory) if namespace in (None, use.namespace)]
    if output is View.JSON:
        return over_time_json(uses, stack, since)
    if output is View.HTML:
        return over_time_page(uses, stack, since)
    return over_time_csv(uses) if output is View.CSV else over_time_text(uses)


def _check(usage: Usage, node: str | None, pod: str | None) -> None:
    if usage.nodes or usage.waiting:
        return
    if pod is not None:
        fail(f"no pod {pod} holds a GPU or waits for one{f' on node {node}' if node else ''}")
    if node is not None:
        fail(f"node {node} has no GPUs that Divvy or a device plugin offers")


def _usage_view(usage: Usage, output: View) -> str | RenderableType:
    if output is View.JSON:
        return usage_json(usage)
    return usage_page(usage) if output is View.HTML else usage_text(usage)


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
