"""Reads what `divvy init` looks at: nodes, what works on them, who serves claims."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from divvy.init.claimed_gpus import ClaimedGpus, claimed_gpus
from divvy.init.leftovers import are_labels_current, is_agents, without_leftovers
from divvy.init.other_software import Other, other_software
from divvy.kube.kubeconfig import IN_POD
from divvy.live.cluster_reader import ClusterReader, NotAllowed, reading

_WORKLOADS = {"DaemonSet": "/apis/apps/v1/daemonsets", "Deployment": "/apis/apps/v1/deployments"}
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_SLICES = "/apis/resource.k8s.io/v1/resourceslices"


@dataclass(frozen=True)
class Survey:
    """What a cluster has: Node objects, other GPU software, GPUs for claims by node.

    ``unseen`` is what this user may not read, ``context`` the kubeconfig's by which it was read,
    empty in a pod. ``unread_nodes`` are the names of nodes of which nothing else could be read.
    ``left`` are the nodes on which a Divvy that is gone left labels and a status; ``nodes`` are
    without these.
    """

    nodes: tuple[Mapping[str, Any], ...]
    others: tuple[Other, ...]
    claimed: Mapping[str, ClaimedGpus]
    unseen: tuple[str, ...]
    context: str
    unread_nodes: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


def survey(kubeconfig: str | None, context: str | None) -> Survey:
    """Look at the cluster; raises CommandError if not even its nodes can be read."""
    unseen: list[str] = []
    with reading(kubeconfig, context) as reader:
        used = "" if reader.context == IN_POD else reader.context
        nodes: tuple[Mapping[str, Any], ...] = tuple(reader.paged("/api/v1/nodes"))
        unread = reader.unread("nodes")
        workloads = [
            {"kind": kind, **item}
            for kind, path in _WORKLOADS.items()
            for item in _seen(reader, path, unseen)
        ]
        are_agents_unknown = "daemonsets" in unseen or bool(reader.unread("daemonsets"))
        definitions = [
            definition["metadata"]["name"] for definition in _seen(reader, _DEFINITIONS, unseen)
        ]
        slices = [resource_slice["spec"] for resource_slice in _seen(reader, _SLICES, unseen)]
    claimed = claimed_gpus(slices)
    others = other_software(workloads, definitions)
    left: tuple[str, ...] = ()
    # What cannot be read may be there: then the Divvy of these nodes is not known to be gone.
    if not (are_agents_unknown or any(map(is_agents, workloads))):
        are_current = are_labels_current(other.name for other in others)
        cleared = [without_leftovers(node, labels_are_current=are_current) for node in nodes]
        left = tuple(
            str(node["metadata"]["name"])
            for node, bare in zip(nodes, cleared, strict=True)
            if bare is not node
        )
        nodes = tuple(cleared)
    return Survey(nodes, others, claimed, tuple(unseen), used, unread, left)


def _seen(reader: ClusterReader, path: str, unseen: list[str]) -> Iterator[dict[str, Any]]:
    try:
        yield from reader.paged(path)
    except NotAllowed:
        unseen.append(path.rpartition("/")[2])
