"""Reads which nodes move between the device plugin and claims, and which pods hold them up."""

from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from divvy.live.cluster_reader import ClusterReader
from divvy.live.node_moves import NodeMove, advertises_gpus, node_moves, pods_left
from divvy.live.pods import live_pods
from divvy.model import Cluster
from divvy.model.pod_phase import UNFINISHED
from divvy.plan.fit.live_claims import ClaimedGpu, claimed_gpus
from divvy.plan.fit.readable import key_of, readable

_RESOURCES = "/apis/resource.k8s.io/v1"


class NodeMovesReader:
    """Nodes, slices and claims, each read once when it is needed; raises NotAllowed."""

    def __init__(self, reader: ClusterReader, cluster: Cluster) -> None:
        self._reader = reader
        self._cluster = cluster

    @cached_property
    def nodes(self) -> list[dict[str, Any]]:
        """Return the nodes that can be read."""
        nodes = self._reader.paged("/api/v1/nodes")
        read = readable(nodes, lambda raw: (dict(raw), advertises_gpus(raw)), self._reader.note)
        return [raw for raw, _ in read]

    @cached_property
    def _slices(self) -> list[dict[str, Any]]:
        return list(self._reader.paged(f"{_RESOURCES}/resourceslices"))

    @cached_property
    def _claims(self) -> list[dict[str, Any]]:
        return list(self._reader.paged(f"{_RESOURCES}/resourceclaims"))

    def moves(self) -> tuple[NodeMove, ...]:
        """Return the nodes that move, in the order in which they can."""
        cluster = self._cluster
        note = self._reader.note
        if not node_moves(cluster, self.nodes, claimed_gpus(self._slices, (), note=note), ()):
            return ()
        named = {key_of(claim): claim for claim in self._claims}
        unfinished = self._reader.paged(f"/api/v1/pods?{UNFINISHED}")
        pods = live_pods(unfinished, cluster, named, datetime.now(UTC), note)
        unread = self._reader.unread("pods")
        return node_moves(cluster, self.nodes, self._gpus, pods, unread=unread)

    def pods_left(self) -> tuple[str, ...]:
        """Return the pods with claims on nodes that no pool selects."""
        nodes = self.nodes
        unread = self._reader.unread("nodes")
        return pods_left(self._cluster, nodes, self._gpus, unread=unread)

    @property
    def _gpus(self) -> tuple[ClaimedGpu, ...]:
        claims = self._claims
        unread = self._reader.unread("resourceclaims")
        return claimed_gpus(self._slices, claims, unread=unread, note=self._reader.note)
