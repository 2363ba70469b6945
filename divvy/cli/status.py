"""divvy status: the first look on call, one page on everything that is wrong."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any

import typer

from divvy.cli.exit_codes import CHANGES
from divvy.cli.node_wait import wait_advertised
from divvy.cli.options import OutFile, Stack
from divvy.cli.output import TextOrJson, write
from divvy.live.advertised import live_node_of, with_claims
from divvy.live.cluster_reader import ClusterReader, NotAllowed, reading
from divvy.live.cluster_status import Alert, ClusterStatus, PendingPod, cluster_status
from divvy.live.live_diff import unread_node
from divvy.live.pods import live_pods
from divvy.live.prometheus import ask_prometheus
from divvy.model import Cluster
from divvy.model.api_names import Component, component_labels
from divvy.model.problems import printable
from divvy.plan.fit.live_claims import claimed_gpus
from divvy.plan.fit.readable import Note, key_of, readable
from divvy.render.views.cluster_status import status_json, status_text
from divvy.stack.file import read_path, stack_path
from divvy.stack.sections import read_cluster

_RESOURCES = "/apis/resource.k8s.io/v1"
_PENDING = "/api/v1/pods?fieldSelector=status.phase%3DPending"
_SECONDS = 5.0
_ALERTS = "/api/v1/alerts"
_UNREAD = "its object in the API cannot be read: it may wait for a GPU"


def status(
    stack: Stack,
    *,
    prometheus: Annotated[
        str | None,
        typer.Option(
            envvar="DIVVY_PROMETHEUS",
            help="Show the firing alerts of a Prometheus: a URL, or NAMESPACE/SERVICE:PORT.",
        ),
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="First wait until the nodes advertise the plan.")
    ] = False,
    output: TextOrJson = "text",
    out: OutFile = None,
) -> None:
    """Show what is wrong; exit code 0: nothing, 2: something or not known, 1: an error."""
    cluster = read_cluster(read_path(stack_path(stack)))
    if wait:
        waited = wait_advertised(cluster, stack, partial(typer.echo, err=True)).words
        # What follows its first line is what the status says.
        typer.echo(waited.partition("\n")[0], err=True)
    with reading(cluster.kubeconfig, cluster.context) as reader:
        result = _read(reader, cluster, stack)
        if prometheus is not None:
            alerts = ask_prometheus(reader, prometheus, _ALERTS, _SECONDS, _firing)
            result = replace(result, alerts=alerts)
    write(status_json(result) if output == "json" else status_text(result), out)
    raise typer.Exit(CHANGES if result else 0)


def _read(reader: ClusterReader, cluster: Cluster, name: str) -> ClusterStatus:
    """Read a cluster; notes say what this user may not see."""
    now = datetime.now(UTC)
    notes: list[str] = []
    read = readable(
        reader.paged("/api/v1/nodes"), lambda raw: (raw, live_node_of(raw)), reader.note
    )
    pairs = list(read)
    pairs += [({"metadata": {"name": name}}, unread_node(name)) for name in reader.unread("nodes")]
    nodes = [raw for raw, _ in pairs]
    slices = _allowed(reader, f"{_RESOURCES}/resourceslices", notes)
    gpus = claimed_gpus(slices or (), (), note=reader.note)
    unread_slices = reader.unread("resourceslices")
    live = with_claims((node for _, node in pairs), gpus, cluster, unread_slices)
    labels = component_labels(Component.AGENT).items()
    selector = ",".join(f"{key}%3D{value}" for key, value in labels)
    path = f"/api/v1/namespaces/{cluster.namespace}/pods?labelSelector={selector}"
    agents = _allowed(reader, path, notes)
    result = cluster_status(cluster, name, nodes, live, agents, now)
    pods = _allowed(reader, _PENDING, notes) or []
    claims = _allowed(reader, f"{_RESOURCES}/resourceclaims", notes) or []
    pending = (
        *_pending(cluster, pods, claims, now, reader.note),
        *(PendingPod(printable(name), (), _UNREAD) for name in reader.unread("pods")),
    )
    return replace(
        result,
        pending=pending,
        notes=(*notes, *reader.taken_notes()),
        is_whole=not notes,
    )


def _allowed(reader: ClusterReader, path: str, notes: list[str]) -> list[dict[str, Any]] | None:
    try:
        return list(reader.paged(path))
    except NotAllowed as refused:
        notes.append(f"not shown: {refused}")
        return None


def _pending(
    cluster: Cluster,
    pods: list[dict[str, Any]],
    claims: list[dict[str, Any]],
    now: datetime,
    note: Note,
) -> Iterator[PendingPod]:
    named = {key_of(claim): claim for claim in claims}
    for pod in live_pods(pods, cluster, named, now, note):
        # One that has a node has its GPU: `top` shows it, and why it does not run.
        if pod.node is None:
            yield PendingPod(pod.pod.full_name, pod.pod.requests, _reason(pod.pod.reason))


def _reason(reason: str) -> str:
    """Return the scheduler's first sentence: what follows is of preemption."""
    return reason.partition(". ")[0] or "the scheduler has not looked at it yet"


def _firing(data: Any) -> tuple[Alert, ...]:
    return tuple(
        _alert(alert)
        for alert in data["alerts"]
        if alert["state"] == "firing" and alert["labels"]["alertname"].startswith("Divvy")
    )


def _alert(raw: Mapping[str, Any]) -> Alert:
    summary = printable(raw.get("annotations", {}).get("summary", ""))
    return Alert(printable(raw["labels"]["alertname"]), summary, printable(raw["activeAt"]))
