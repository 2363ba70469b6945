"""Reads which nodes move between the device plugin and claims, and which pods hold them up."""

from datetime import UTC, datetime

from divvy.cli.cluster_reader import ClusterReader
from divvy.model import Cluster
from divvy.plan.live import named_resources
from divvy.plan.live_claims import claimed_gpus
from divvy.plan.live_pods import live_pod
from divvy.plan.node_moves import NodeMove, node_moves, pods_left

_RESOURCES = "/apis/resource.k8s.io/v1"
_NOT_ENDED = "/api/v1/pods?fieldSelector=status.phase%21%3DSucceeded,status.phase%21%3DFailed"


def read_node_moves(reader: ClusterReader, cluster: Cluster) -> tuple[NodeMove, ...]:
    """Return the nodes that move, in the order in which they can; raises NotAllowed."""
    nodes = list(reader.paged("/api/v1/nodes"))
    slices = list(reader.paged(f"{_RESOURCES}/resourceslices"))
    if not node_moves(cluster, nodes, claimed_gpus(slices, ()), ()):
        return ()
    claims = list(reader.paged(f"{_RESOURCES}/resourceclaims"))
    named = {(claim["metadata"]["namespace"], claim["metadata"]["name"]): claim for claim in claims}
    now, resources = datetime.now(UTC), named_resources(cluster)
    readings = (
        live_pod(raw, resources, cluster.names, named, now) for raw in reader.paged(_NOT_ENDED)
    )
    pods = [pod for pod in readings if pod is not None]
    return node_moves(cluster, nodes, claimed_gpus(slices, claims), pods)


def read_pods_left(reader: ClusterReader, cluster: Cluster) -> tuple[str, ...]:
    """Return the pods with claims on nodes that no pool selects; raises NotAllowed."""
    slices = reader.paged(f"{_RESOURCES}/resourceslices")
    gpus = claimed_gpus(slices, reader.paged(f"{_RESOURCES}/resourceclaims"))
    return pods_left(cluster, reader.paged("/api/v1/nodes"), gpus)
