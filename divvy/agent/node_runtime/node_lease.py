"""One node at a time: a Lease that is held, and renewed, while a runtime is being changed.

As client-go's leader election does it: no two nodes' clocks are compared. A holder is gone when
its Lease has not changed for as long as it lasts, by the clock of the node that watches.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import httpx2
from lightkube import ApiError, Client
from lightkube.models.coordination_v1 import LeaseSpec
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.coordination_v1 import Lease

from divvy.agent.node_runtime.host_path import HostFailed

LEASE = "divvy-node-runtime"
LEASE_SECONDS = 240
# What is begun within this time after a renewal is over before another node can begin.
RENEW_DEADLINE = 60.0
_RENEW_EVERY = 10.0
_log = logging.getLogger(__name__)


class LeaseLost(HostFailed):
    """The Lease is another's, or could not be renewed: nothing may be begun any more."""


@dataclass(frozen=True)
class Observation:
    """A version of the Lease, and since when this node has seen it (own clock, seconds)."""

    version: str
    since: float


def observe(before: Observation | None, version: str, now: float) -> Observation:
    """Return the observation after having seen a version of the Lease."""
    if before is not None and before.version == version:
        return before
    return Observation(version, now)


def is_free(
    node: str, holder: str | None, lasts: float, observation: Observation, now: float
) -> bool:
    """Say whether a node may take the Lease that it has observed."""
    return holder in (None, "", node) or now - observation.since >= lasts


class HeldLease:
    """A node's hold of the Lease, renewed in the background."""

    def __init__(self, client: Any, node: str, namespace: str) -> None:
        self._client, self._node, self._namespace = client, node, namespace
        self._renewed = time.monotonic()
        self._lost = ""
        self._over = threading.Event()

    def require(self) -> None:
        """Raise LeaseLost where the Lease may be another node's before a change is over."""
        if self._lost:
            raise LeaseLost(self._lost)
        silent = time.monotonic() - self._renewed
        if silent > RENEW_DEADLINE:
            raise LeaseLost(f"the Lease {LEASE} could not be renewed for {silent:.0f} s")

    def keep(self, every: float) -> None:
        """Renew until it is over or lost."""
        while not self._over.wait(every) and not self._lost:
            began = time.monotonic()
            try:
                self._lost = self._renew()
            except (ApiError, httpx2.HTTPError) as error:
                _log.warning("the Lease %s was not renewed: %s", LEASE, error)
                continue
            if not self._lost:
                self._renewed = began

    def end(self) -> None:
        """Stop renewing."""
        self._over.set()

    def _renew(self) -> str:
        """Renew; return why it is lost, "" if it is not."""
        try:
            lease = self._client.get(Lease, LEASE, namespace=self._namespace)
        except ApiError as error:
            if error.status.code == 404:
                return f"the Lease {LEASE} was deleted"
            raise
        holder = None if lease.spec is None else lease.spec.holderIdentity
        if holder != self._node:
            return f"the Lease {LEASE} is held by {holder or 'nobody'} now"
        lease.spec = _spec(self._node)
        self._client.replace(lease)
        return ""


@contextmanager
def hold_lease(
    client: Client, node: str, namespace: str, retry: float = 2.0, renew: float = _RENEW_EVERY
) -> Iterator[HeldLease]:
    """Hold the lease; wait while another node does."""
    observation: Observation | None = None
    while True:
        taken, observation = _take(client, node, namespace, observation)
        if taken:
            break
        time.sleep(retry)
    held = HeldLease(client, node, namespace)
    keeper = threading.Thread(target=held.keep, args=(renew,), daemon=True)
    keeper.start()
    try:
        yield held
    finally:
        held.end()
        keeper.join()
        _give_back(client, node, namespace)


def _take(
    client: Client, node: str, namespace: str, observation: Observation | None
) -> tuple[bool, Observation | None]:
    try:
        lease = client.get(Lease, LEASE, namespace=namespace)
    except ApiError as error:
        if error.status.code != 404:
            raise
        metadata = ObjectMeta(name=LEASE, namespace=namespace)
        return _accepted(lambda: client.create(Lease(metadata=metadata, spec=_spec(node)))), None
    held = lease.spec or LeaseSpec()
    version = (lease.metadata.resourceVersion if lease.metadata else None) or ""
    now = time.monotonic()
    observation = observe(observation, version, now)
    lasts = held.leaseDurationSeconds or LEASE_SECONDS
    if not is_free(node, held.holderIdentity, lasts, observation, now):
        return False, observation
    lease.spec = _spec(node)
    # The resource version makes one of two takers lose.
    return _accepted(lambda: client.replace(lease)), observation


def _spec(node: str) -> LeaseSpec:
    now = datetime.now(UTC)
    return LeaseSpec(holderIdentity=node, leaseDurationSeconds=LEASE_SECONDS, renewTime=now)


def _accepted(write: Callable[[], object]) -> bool:
    try:
        write()
    except ApiError as error:
        if error.status.code == 409:
            return False
        raise
    return True


def _give_back(client: Client, node: str, namespace: str) -> None:
    """Let the next node begin at once; where that fails, it waits until the Lease is old."""
    try:
        lease = client.get(Lease, LEASE, namespace=namespace)
        if lease.spec is not None and lease.spec.holderIdentity == node:
            lease.spec.holderIdentity = ""
            _accepted(lambda: client.replace(lease))
    except (ApiError, httpx2.HTTPError) as error:
        _log.warning("the Lease %s was not given back: %s", LEASE, error)
