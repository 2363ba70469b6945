"""Nodes with the same GPUs as pools, chosen by labels."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from divvy.init.gpu_node import GpuNode
from divvy.init.selectors import HOSTNAME, telling_keys, values
from divvy.model import GpuModel
from divvy.model.checks import MAX_POOL_CHARACTERS


@dataclass(frozen=True)
class Member:
    """A node with what a pool says of it; without a model nothing is predicted for it."""

    node: GpuNode
    model: GpuModel | None
    gpus: int
    profile: str

    @property
    def hardware(self) -> Hashable:
        """Return what has to be equal in a pool."""
        node = self.node
        model = self.model.name if self.model else node.product
        return (model, self.gpus, node.runtime)


class NodesAlike(Exception):
    """Nodes that no label tells from others, not even that of their names."""

    def __init__(self, nodes: Sequence[str]) -> None:
        super().__init__(", ".join(nodes))
        self.nodes = nodes


def pools_of(
    members: Sequence[Member],
    labels: Mapping[str, Mapping[str, str]],
    *,
    complete: bool,
    apart: bool = False,
) -> dict[str, dict[str, Any]]:
    """Return the pools of a stack file; ``labels`` are those of all nodes of the cluster.

    ``complete``: no other node has GPUs, so that one pool may be the default for all that have.
    If no label tells nodes with other profiles apart, they are overrides; with other taints, their
    pool tolerates all of them. If none tells other hardware apart, or with ``apart``, every node
    is a pool. Raises NodesAlike.
    """
    by_hardware = {member.node.name: member.hardware for member in members}
    by_taints = {m.node.name: (m.hardware, m.node.taints) for m in members}
    by_profile = {m.node.name: (m.hardware, m.node.taints, m.profile) for m in members}
    keys = None
    if not apart:
        for distinction in (by_profile, by_taints, by_hardware):
            keys = keys or telling_keys(labels, distinction)
        if keys is None and len(set(by_hardware.values())) == 1 and complete:
            return {"gpus": _pool(members, None)}
    if keys is None:
        keys = (HOSTNAME,)
        _require_hostnames(by_hardware, labels)
    groups: dict[tuple[str | None, ...], list[Member]] = {}
    for member in members:
        groups.setdefault(values(labels[member.node.name], keys), []).append(member)
    pools: dict[str, dict[str, Any]] = {}
    for chosen, group in groups.items():
        select = {key: value for key, value in zip(keys, chosen, strict=True) if value is not None}
        pools[_name(chosen, pools)] = _pool(group, select)
    return pools


def _require_hostnames(nodes: Iterable[str], labels: Mapping[str, Mapping[str, str]]) -> None:
    known = Counter(own.get(HOSTNAME) for own in labels.values())
    hostnames = {name: labels[name].get(HOSTNAME) for name in nodes}
    alike = [name for name, hostname in hostnames.items() if not hostname or known[hostname] > 1]
    if alike:
        raise NodesAlike(alike)


def _pool(members: Sequence[Member], select: Mapping[str, str] | None) -> dict[str, Any]:
    pool: dict[str, Any] = {} if select is None else {"select": dict(select)}
    first = members[0]
    if first.model is not None:
        hardware: dict[str, Any] = {"model": first.model.name, "gpus": first.gpus}
        hardware["count"] = len(members)
        systems = {member.node.os for member in members}
        if len(systems) == 1 and first.node.os is not None:
            hardware["os"] = first.node.os
        pool["hardware"] = hardware
    counts = Counter(member.profile for member in members)
    pool["profile"] = max(counts, key=lambda name: counts[name])
    others = {
        member.node.name: member.profile for member in members if member.profile != pool["profile"]
    }
    if others:
        pool["overrides"] = others
    if first.node.runtime != "containerd":
        pool["runtime"] = {"name": first.node.runtime}
    taints = sorted({taint for member in members for taint in member.node.taints}, key=str)
    if taints:
        pool["tolerations"] = [_toleration(*taint) for taint in taints]
    return pool


def _toleration(key: str, value: str | None, effect: str) -> dict[str, str]:
    if value is None:
        return {"key": key, "operator": "Exists", "effect": effect}
    return {"key": key, "operator": "Equal", "value": value, "effect": effect}


def _name(chosen: Sequence[str | None], used_names: Mapping[str, object]) -> str:
    text = "-".join(value for value in chosen if value)
    name = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:MAX_POOL_CHARACTERS].strip("-")
    name = name or "gpus"
    number = 1
    while (
        free := name if number == 1 else f"{name[: MAX_POOL_CHARACTERS - 4]}-{number}"
    ) in used_names:
        number += 1
    return free
