"""When a run found nothing wrong on a node, for the node's agent to serve as a metric."""

from __future__ import annotations

import sys
from collections.abc import Iterable

import httpx2
from lightkube import ApiError
from lightkube.types import PatchType

from conformance.cluster.api import Api, Node
from divvy.model.contract import CONFORMANCE_SUCCESS


def note_success(api: Api, nodes: Iterable[str], when: float) -> None:
    """Note on each node when it was found sound; a node that cannot be written keeps what it has.

    The first refusal is said and ends it: the others would be refused as well.
    """
    patch = {"metadata": {"annotations": {CONFORMANCE_SUCCESS: f"{when:.0f}"}}}
    for name in nodes:
        try:
            api.patch(Node, name, patch, patch_type=PatchType.MERGE)
        except ApiError as problem:
            if problem.status.code == 404:
                continue
            print(f"  no success is noted on nodes: {problem.status.message}", file=sys.stderr)
            return
        except httpx2.TransportError as problem:
            print(f"  no success is noted on nodes: {problem}", file=sys.stderr)
            return
