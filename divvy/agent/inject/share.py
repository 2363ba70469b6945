"""A share of a GPU as its container is told of it: memory, and its part of the compute time."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from divvy.agent.gpu.holders import Holder

MAX_DEVICES = 16
"""Devices that the limiter knows of one share (plugin_image/limiter/share/share.h)."""


def share_name(device_ids: Iterable[str]) -> str:
    """Name what a container holds by its replicas: the same ones have the same account again."""
    return hashlib.sha256("\0".join(sorted(device_ids)).encode()).hexdigest()[:16]


def share_holders(holders: Iterable[Holder]) -> dict[frozenset[str], Holder]:
    """Return who has each share, by all the replicas, or the claim, that the share is of.

    The files of a share stay a while after its container: one of its replicas may be another
    container's by then, and what the files tell is not that one's.
    """
    containers: dict[tuple[str, ...], list[Holder]] = {}
    # Of several pods that share a claim the first by name has it, as where claims are charged.
    for holder in sorted(holders, reverse=True):
        # Of a claim there is no resource: each is a share of its own.
        of = holder.resource or holder.device_id
        key = (holder.pod, holder.pod_uid, holder.container, of)
        containers.setdefault(key, []).append(holder)
    return {frozenset(holder.device_id for holder in held): held[0] for held in containers.values()}
