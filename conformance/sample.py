"""The nodes of a run: a sample of a fleet, and those that changed."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from conformance.promise import NodePromise

_SIZE = re.compile(r"([1-9]\d{0,8})|(\d{1,9}(?:\.\d{1,9})?)%", re.ASCII)
# Of a node's entry in a report: what is no property of the node.
_NOT_OF_THE_NODE = ("simulated",)


@dataclass(frozen=True)
class Sample:
    """How many nodes of each pool and profile: a number, or a part of them; ``seed`` says which."""

    count: int | None
    part: Fraction
    seed: str

    def size(self, nodes: int) -> int:
        """Return how many of so many nodes: one at least."""
        return self.count or max(1, math.ceil(nodes * self.part))


def parse_sample(text: str, seed: str) -> Sample:
    """Read ``3`` or ``5%``; raises ValueError."""
    match = _SIZE.fullmatch(text.strip())
    # Not as a float: 7 % of 100 nodes would be more than 7.
    part = Fraction(match[2]) / 100 if match and match[2] else Fraction(1)
    if match is None or not 0 < part <= 1:
        raise ValueError(f"--sample={text}: a number of nodes such as 3, or a part such as 5%")
    return Sample(int(match[1]) if match[1] else None, part, seed)


def sampled(promises: Sequence[NodePromise], sample: Sample | None) -> list[NodePromise]:
    """Return a sample of each pool and profile, all nodes by default; ready ones first.

    Which nodes these are depends on their names and the seed alone: the same ones whenever
    others come or go.
    """
    if sample is None:
        return list(promises)
    groups: dict[tuple[str, str], list[NodePromise]] = {}
    for promise in promises:
        groups.setdefault((promise.pool, promise.profile), []).append(promise)
    chosen = [
        node_name
        for group in groups.values()
        for node_name in sorted(
            group, key=lambda node: (bool(node.unready), _rank(node, sample.seed))
        )[: sample.size(len(group))]
    ]
    return sorted(chosen, key=lambda node: node.name)


def _rank(node: NodePromise, seed: str) -> bytes:
    return hashlib.sha256(f"{seed}\0{node.name}".encode()).digest()


def changed(
    promises: Sequence[NodePromise],
    entry: Callable[[NodePromise], Mapping[str, Any]],
    earlier: Mapping[str, Any],
    generation: str,
) -> list[NodePromise]:
    """Return the nodes that an earlier report does not show as they are now.

    Those whose ``entry`` in a report is another one, and those on which a check failed or
    something prevented it. All of them where the stack file is another one.
    """
    environment = earlier["environment"]
    if (environment.get("stackFile") or {}).get("generation") != generation:
        return list(promises)
    known = {node["name"]: node for node in environment["nodes"]}
    open_nodes = {
        check["case"].partition(":")[0]
        for check in earlier["checks"]
        if check["status"] == "failed" or check.get("missed") == "not made"
    }

    def is_known(node: NodePromise) -> bool:
        before = known.get(node.name)
        return before is not None and _compared(before) == _compared(entry(node))

    return [node for node in promises if node.name in open_nodes or not is_known(node)]


def _compared(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if key not in _NOT_OF_THE_NODE}
