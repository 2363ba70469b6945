"""Reads which nodes move between the device plugin and claims, and which pods hold them up."""

from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from divvy.cli.cluster_reader import ClusterReader
from divvy.model import Cluster
from divvy.plan.live import named_resources
from divvy.plan.live_claims import claimed_gpus
from divvy.plan.live_pods import live_pod
from divvy.plan.node_moves import NodeMove, node_moves, pods_left

_RESOURCES = "/apis/resource.k8s.io/v1"
_NOT_ENDED = "/api/v1/pods?fieldSelector=status.phase%21%3DSucceeded,status.phase%21%3DFailed"


class NodeMovesReader:
    """Nodes, slices and claims, each read once when it is needed; raises NotAllowed."""

    def __init__(self, reader: ClusterReader, cluster: Cluster) -> None:
        self._reader = reader
        self._cluster = cluster

    @cached_property
    def nodes(self) -> list[dict[str, Any]]:
        """Return the nodes."""
        return list(self._reader.paged("/api/v1/nodes"))

    @cached_property
    def _slices(self) -> list[dict[str, Any]]:
        return list(self._reader.paged(f"{_RESOURCES}/resourceslices"))

    @cached_property
    def _claims(self) -> list[dict[str, Any]]:
        return list(self._reader.paged(f"{_RESOURCES}/resourceclaims"))

    def moves(self) -> tuple[NodeMove, ...]:
        """Return the nodes that move, in the order in which they can."""
        cluster = self._cluster
        if not node_moves(cluster, self.nodes, claimed_gpus(self._slices, ()), ()):
            return ()
        named = {(c["metadata"]["namespace"], c["metadata"]["name"]): c for c in self._claims}
        now, resources = datetime.now(UTC), named_resources(cluster)
        readings = (
            live_pod(raw, resources, cluster.names, named, now)
            for raw in self._reader.paged(_NOT_ENDED)
        )
        pods = [pod for pod in readings if pod is not None]
        return node_moves(cluster, self.nodes, claimed_gpus(self._slices, self._claims), pods)

    def pods_left(self) -> tuple[str, ...]:
        """Return the pods with claims on nodes that no pool selects."""
        return pods_left(self._cluster, self.nodes, claimed_gpus(self._slices, self._claims))
