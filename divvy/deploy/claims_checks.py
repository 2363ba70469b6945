"""Checks of claims against the cluster, before anything is changed."""

import contextlib
from collections.abc import Iterable, Sequence

import typer

from divvy.deploy.changes import ObjectName
from divvy.errors import fail
from divvy.live.cluster_reader import ClusterReader, NotAllowed, reading
from divvy.live.node_moves_reader import NodeMovesReader
from divvy.model import Cluster
from divvy.model.kubernetes_support import floor_problems, floor_warnings
from divvy.model.nvidia_claims import CLASSES, nvidias_nodes
from divvy.model.phrases import some
from divvy.plan.fit.live_claims import pods_with_claims
from divvy.plan.quota.share_quota import quota_warning, size_quota_warning, uncovered_quotas
from divvy.plan.review.lost_priorities import priorities_warning
from divvy.render.objects.claims.device_classes import rival_classes
from divvy.render.views.node_moves import node_move_lines

_CLAIMS = "/apis/resource.k8s.io/v1/resourceclaims"
_CLASSES = "/apis/resource.k8s.io/v1/deviceclasses"
_SLICES = "/apis/resource.k8s.io/v1/resourceslices"
_MAX_PODS = 5
_MAX_NODES = 5


def check_claims(cluster: Cluster, *, preview: bool) -> None:
    """End with an error where a run would do what a cluster cannot do for claims.

    Raises CommandError.
    """
    if not cluster.claims:
        check_held(cluster, preview=preview)
        return
    with reading(cluster.kubeconfig, cluster.context) as reader:
        moves_reader = NodeMovesReader(reader, cluster)
        _check_floor(cluster, reader, moves_reader)
        with contextlib.suppress(NotAllowed):  # `_check_floor` has reported it
            remedy = "give the nodes a pool or its label, or end the pods before the pool goes"
            _refuse(moves_reader.pods_left(), "on a node without a pool", remedy, preview=preview)


def check_held(cluster: Cluster, *, preview: bool) -> None:
    """End with an error if pods hold claims, which then stay prepared; a preview only warns.

    Raises CommandError.
    """
    with reading(cluster.kubeconfig, cluster.context) as reader:
        claims = reader.listed(_CLAIMS)
        unread = reader.unread("resourceclaims")
        pods = pods_with_claims(claims, unread=unread, note=reader.note)
    where = "without a profile with `claims`"
    _refuse(pods, where, "end them first", preview=preview)


def warn_of_lost_classes(cluster: Cluster, deleted: Iterable[ObjectName]) -> None:
    """Warn where a run deletes classes of NVIDIA's driver while that may still serve nodes."""
    classes = sorted({name.name for name in deleted if name.kind == "DeviceClass"} & {*CLASSES})
    if not classes:
        return
    with reading(cluster.kubeconfig, cluster.context) as reader:
        driver = _nvidias_nodes(reader)
    if driver:
        typer.echo(
            f"warning: {driver}: the run deletes the DeviceClasses {', '.join(classes)}, and new "
            "claims of its pods wait until `helm upgrade` of its release has made them again",
            err=True,
        )


def _nvidias_nodes(reader: ClusterReader) -> str:
    """Return in words what NVIDIA's driver still serves, "" if it is nothing."""
    try:
        nodes = nvidias_nodes(reader.paged(_SLICES))
    except NotAllowed as refusal:
        return f"whether NVIDIA's driver still serves nodes is not known ({refusal})"
    if nodes:
        return f"NVIDIA's driver still serves {some(nodes, _MAX_NODES)}"
    if unread := reader.unread("resourceslices"):
        return (
            "whether NVIDIA's driver still serves nodes is not known (cannot be read: "
            f"{some(unread, _MAX_NODES)})"
        )
    return ""


def _refuse(pods: Sequence[str], where: str, remedy: str, *, preview: bool) -> None:
    if not pods:
        return
    text = (
        f"pods hold claims: {some(pods, _MAX_PODS)}; {where} nothing returns their "
        f"devices, and they stay Terminating: {remedy}"
    )
    if not preview:
        fail(text)
    typer.echo(f"warning: {text}", err=True)


def check_floor(cluster: Cluster) -> None:
    """End with an error where a cluster is too old for its claims; warn of what is slow there.

    Then tell which nodes move between the device plugin and claims.
    """
    if cluster.claims:
        with reading(cluster.kubeconfig, cluster.context) as reader:
            _check_floor(cluster, reader, NodeMovesReader(reader, cluster))


def _check_floor(cluster: Cluster, reader: ClusterReader, moves_reader: NodeMovesReader) -> None:
    answer = reader.find("/version") or {}
    warnings = (
        *_quota_warnings(cluster, reader),
        _priorities_warning(cluster, moves_reader),
        *_class_warnings(cluster, reader),
    )
    moves = _moves(moves_reader)
    version = str(answer.get("gitVersion", ""))
    for problem in floor_problems(cluster, version):
        fail(problem)
    for warning in (*floor_warnings(cluster, version), *filter(None, warnings)):
        typer.echo(f"warning: {warning}", err=True)
    for line in moves:
        typer.echo(line, err=True)


def _moves(moves_reader: NodeMovesReader) -> list[str]:
    """Return which nodes move and after which pods, in lines."""
    try:
        return list(node_move_lines(moves_reader.moves()))
    except NotAllowed as refusal:
        return [f"it is not known which pods hold up nodes that move to or from claims: {refusal}"]


def _priorities_warning(cluster: Cluster, moves_reader: NodeMovesReader) -> str | None:
    """Warn of nodes whose pods can no longer preempt others; None if there are none."""
    try:
        return priorities_warning(cluster, moves_reader.nodes)
    except NotAllowed as refusal:
        return f"it is not known which nodes move from the device plugin to claims: {refusal}"


def _class_warnings(cluster: Cluster, reader: ClusterReader) -> list[str]:
    """Warn of other drivers' classes that stand for the same resources."""
    try:
        rivals = rival_classes(cluster, reader.paged(_CLASSES))
    except NotAllowed as refusal:
        return [f"it is not known whether other DeviceClasses name the same resources: {refusal}"]
    return [
        f"pods that request {resource} get devices of one DeviceClass alone, the one that was "
        f"created last, and it is also the resource of {', '.join(names)}: leave "
        "extendedResourceName out there"
        + (", or give `names.gpu` another name" if resource == cluster.names.gpu else "")
        for resource, names in sorted(rivals.items())
    ]


def _quota_warnings(cluster: Cluster, reader: ClusterReader) -> list[str | None]:
    """Return what the quotas of namespaces leave out of claims, None if it is nothing."""
    sized = any(claims.shares for claims in cluster.claims)
    if not sized and cluster.names.classes is None:
        return []
    try:
        quotas = list(reader.paged("/api/v1/resourcequotas"))
        uncovered = uncovered_quotas(cluster, quotas, reader.paged("/api/v1/namespaces"))
    except NotAllowed as refusal:
        return [f"it is not known whether ResourceQuotas limit claims: {refusal}"]
    return [quota_warning(uncovered), size_quota_warning(cluster, quotas if sized else ())]
