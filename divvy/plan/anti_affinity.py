"""Which pods a running pod keeps away from its node, by the anti-affinity that it requires."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from divvy.plan.node_selection import selects


@dataclass(frozen=True)
class Repulsion:
    """Pods that a running one keeps away from nodes whose label ``key`` has a value.

    ``namespaces`` are those of the pods, None for any.
    """

    key: str
    value: str
    selector: Mapping[str, Any] | None
    namespaces: frozenset[str] | None

    def covers(self, pod: Mapping[str, Any]) -> bool:
        """Return whether a pod is one of them."""
        meta = pod["metadata"]
        is_there = self.namespaces is None or meta["namespace"] in self.namespaces
        return is_there and selects(self.selector, meta.get("labels") or {})


def repulsions(pod: Mapping[str, Any], labels: Mapping[str, str]) -> Iterator[Repulsion]:
    """Yield what the required anti-affinity of a pod keeps away; ``labels`` are its node's."""
    affinity = (pod["spec"].get("affinity") or {}).get("podAntiAffinity") or {}
    for term in affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or ():
        key = term["topologyKey"]
        if key not in labels:
            continue
        namespaces = frozenset(term.get("namespaces") or (pod["metadata"]["namespace"],))
        # Which namespaces a selector selects is not looked at: it may be any.
        in_any = term.get("namespaceSelector") is not None
        yield Repulsion(key, labels[key], term.get("labelSelector"), None if in_any else namespaces)
