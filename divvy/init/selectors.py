"""Labels that tell pools apart: every node of a pool has them, and no other node of the cluster."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from itertools import combinations

HOSTNAME = "kubernetes.io/hostname"
# What clouds and cluster managers call a group of equal machines, the most telling first.
_PREFERRED = (
    "node.kubernetes.io/instance-type",
    "cloud.google.com/gke-nodepool",
    "eks.amazonaws.com/nodegroup",
    "kubernetes.azure.com/agentpool",
    "karpenter.sh/nodepool",
)
# They change with what serves the GPUs, or say where a node is, or what every node is.
_UNSTABLE = (
    "nvidia.com/",
    "divvy.gpu/",
    "feature.node.kubernetes.io/",
    "beta.kubernetes.io/",
    "topology.kubernetes.io/",
    "failure-domain.beta.kubernetes.io/",
    "hami.io/",
    "kubernetes.io/arch",
    "kubernetes.io/os",
    "node-role.kubernetes.io/",
    HOSTNAME,
)


def telling_keys(
    labels: Mapping[str, Mapping[str, str]], groups: Mapping[str, Hashable]
) -> tuple[str, ...] | None:
    """Return one or two label keys whose values tell the groups apart, None if none do.

    ``labels`` are those of all nodes by name, ``groups`` the group of each node that is in one.
    Keys with the fewest values win, and the well-known ones among them.
    """
    shared = set.intersection(*(set(labels[name]) for name in groups))
    keys = [key for key in _ordered(shared) if not key.startswith(_UNSTABLE)]
    for number in (1, 2):
        telling = [
            chosen for chosen in combinations(keys, number) if _tells(chosen, labels, groups)
        ]
        if telling:
            return min(telling, key=lambda chosen: len({values(labels[n], chosen) for n in groups}))
    return None


def values(labels: Mapping[str, str], keys: Sequence[str]) -> tuple[str | None, ...]:
    """Return what a node has under these keys."""
    return tuple(labels.get(key) for key in keys)


def _tells(
    keys: Sequence[str],
    labels: Mapping[str, Mapping[str, str]],
    groups: Mapping[str, Hashable],
) -> bool:
    meaning: dict[tuple[str | None, ...], Hashable] = {}
    for name, own in labels.items():
        own_values = values(own, keys)
        group = groups.get(name, "of no group")
        if meaning.setdefault(own_values, group) != group:
            return False
    return True


def _ordered(keys: set[str]) -> list[str]:
    known = [key for key in _PREFERRED if key in keys]
    return [*known, *sorted(keys - set(known))]
