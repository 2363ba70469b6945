"""The time when a run found nothing wrong on a node, which the agent serves as a metric."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from conformance.cluster.api import Api
from divvy.kube.errors import NOT_FOUND, ApiError, Unreachable
from divvy.kube.kind import NODE
from divvy.model.api_names import CONFORMANCE_SUCCESS


def note_success(api: Api, nodes: Iterable[str], when: float) -> None:
    """Note on each node when it was found sound; a node that cannot be written keeps what it has.

    The first refusal is said and ends it: the others would be refused as well.
    """
    patch = {"metadata": {"annotations": {CONFORMANCE_SUCCESS: f"{when:.0f}"}}}
    for name in nodes:
        try:
            api.patch(NODE, name, patch)
        except (ApiError, Unreachable) as problem:
            if isinstance(problem, ApiError) and problem.code == NOT_FOUND:
                continue
            print(f"  no success is noted on nodes: {problem}", file=sys.stderr)
            return
