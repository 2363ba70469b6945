"""One node at a time: a Lease that is held, and renewed, while a runtime is being changed.

As client-go's leader election does it: no two nodes' clocks are compared. A holder is gone when
its Lease has not changed for as long as it lasts, by the clock of the node that watches.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from divvy.agent.node_runtime.host_path import HostFailed
from divvy.kube import kind
from divvy.kube.client import Client
from divvy.kube.errors import CONFLICT, ApiError, KubeError

LEASE = "divvy-node-runtime"
LEASE_SECONDS = 240
# What is begun within this time after a renewal is over before another node can begin.
RENEW_DEADLINE = 60.0
_RENEW_EVERY = 10.0
_log = logging.getLogger(__name__)


class LeaseLost(HostFailed):
    """The Lease is another's, or could not be renewed: nothing more may begin."""


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


def is_free(node: str, holder: str, lasts: float, observation: Observation, now: float) -> bool:
    """Return whether a node may take the Lease that it has observed."""
    return holder in ("", node) or now - observation.since >= lasts


class HeldLease:
    """A node's hold of the Lease, renewed in the background."""

    def __init__(self, client: Client, node: str, namespace: str) -> None:
        self._client, self._node, self._namespace = client, node, namespace
        self._renewed = time.monotonic()
        self._lost = ""
        self._over = threading.Event()

    def require(self) -> None:
        """Raise LeaseLost if the Lease may be another node's before a change is over."""
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
            except KubeError as error:
                _log.warning("the Lease %s was not renewed: %s", LEASE, error)
                continue
            if not self._lost:
                self._renewed = began

    def end(self) -> None:
        """Stop renewing."""
        self._over.set()

    def _renew(self) -> str:
        """Renew; return why it is lost, "" if it is not."""
        lease = self._client.find(_path(self._namespace))
        if lease is None:
            return f"the Lease {LEASE} was deleted"
        holder = _held(lease).get("holderIdentity")
        if holder != self._node:
            return f"the Lease {LEASE} is held by {holder or 'no node'} now"
        _replace(self._client, lease, _spec(self._node))
        return ""


@contextmanager
def hold_lease(
    client: Client, node: str, namespace: str, retry: float = 2.0, renew: float = _RENEW_EVERY
) -> Iterator[HeldLease]:
    """Hold the lease; wait while another node does."""
    observation: Observation | None = None
    logged = ""
    while True:
        acquired, observation, holder = _take(client, node, namespace, observation)
        if acquired:
            break
        if holder and holder != logged:
            logged = holder
            _log.info(
                "waiting for node %s, which holds the Lease %s: one node at a time", holder, LEASE
            )
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
) -> tuple[bool, Observation | None, str]:
    """Try to take the Lease; return whether that is done, what was seen, and who holds it."""
    lease = client.find(_path(namespace))
    if lease is None:
        return _accepted(lambda: _create(client, namespace, node)), None, ""
    held = _held(lease)
    version = str(lease["metadata"].get("resourceVersion") or "")
    now = time.monotonic()
    observation = observe(observation, version, now)
    lasts = held.get("leaseDurationSeconds") or LEASE_SECONDS
    holder = held.get("holderIdentity") or ""
    if not is_free(node, holder, lasts, observation, now):
        return False, observation, holder
    # The resource version makes one of two takers lose.
    return _accepted(lambda: _replace(client, lease, _spec(node))), observation, ""


def _path(namespace: str, name: str = LEASE) -> str:
    return kind.LEASE.path(namespace, name)


def _held(lease: Mapping[str, Any]) -> Mapping[str, Any]:
    return lease.get("spec") or {}


def _create(client: Client, namespace: str, node: str) -> None:
    metadata = {"name": LEASE, "namespace": namespace}
    lease = {"apiVersion": kind.LEASE.api_version, "kind": "Lease", "metadata": metadata}
    client.request("POST", _path(namespace, ""), {**lease, "spec": _spec(node)})


def _replace(client: Client, lease: Mapping[str, Any], spec: Mapping[str, Any]) -> None:
    path = _path(lease["metadata"]["namespace"])
    client.request("PUT", path, {**lease, "spec": {**_held(lease), **spec}})


def _spec(node: str) -> dict[str, Any]:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return {"holderIdentity": node, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": now}


def _accepted(write: Callable[[], None]) -> bool:
    try:
        write()
    except ApiError as error:
        if error.code == CONFLICT:
            return False
        raise
    return True


def _give_back(client: Client, node: str, namespace: str) -> None:
    """Let the next node begin at once; where that fails, it waits until the Lease is old."""
    try:
        lease = client.find(_path(namespace))
        if lease is not None and _held(lease).get("holderIdentity") == node:
            _accepted(lambda: _replace(client, lease, {"holderIdentity": ""}))
    except KubeError as error:
        _log.warning("the Lease %s was not given back: %s", LEASE, error)
