"""One node at a time: a Lease that is held while a runtime is being changed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from lightkube import ApiError, Client
from lightkube.models.coordination_v1 import LeaseSpec
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.coordination_v1 import Lease

LEASE = "divvy-node-runtime"
_SECONDS = 120


@contextmanager
def turn(client: Client, node: str, namespace: str, retry: float = 2.0) -> Iterator[None]:
    """Hold the lease; wait while another node does. A dead holder loses it after two minutes."""
    while not _take(client, node, namespace):
        time.sleep(retry)
    try:
        yield
    finally:
        _give_back(client, node, namespace)


def _take(client: Client, node: str, namespace: str) -> bool:
    now = datetime.now(UTC)
    spec = LeaseSpec(holderIdentity=node, leaseDurationSeconds=_SECONDS, renewTime=now)
    try:
        lease = client.get(Lease, LEASE, namespace=namespace)
    except ApiError as error:
        if error.status.code != 404:
            raise
        lease = Lease(metadata=ObjectMeta(name=LEASE, namespace=namespace), spec=spec)
        return _accepted(lambda: client.create(lease))
    held = lease.spec
    if held is not None and held.holderIdentity not in ("", None, node):
        renewed = held.renewTime or now
        if now - renewed < timedelta(seconds=held.leaseDurationSeconds or _SECONDS):
            return False
    lease.spec = spec
    # The resource version makes one of two takers lose.
    return _accepted(lambda: client.replace(lease))


def _accepted(write: object) -> bool:
    assert callable(write)
    try:
        write()
    except ApiError as error:
        if error.status.code == 409:
            return False
        raise
    return True


def _give_back(client: Client, node: str, namespace: str) -> None:
    lease = client.get(Lease, LEASE, namespace=namespace)
    if lease.spec is not None and lease.spec.holderIdentity == node:
        lease.spec.holderIdentity = ""
        _accepted(lambda: client.replace(lease))
