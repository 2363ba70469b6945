"""One at a time: a Lease that is held, and renewed, while its holder changes something.

As client-go's leader election does it: no two machines' clocks are compared. A holder is gone when
its Lease has not changed for as long as it lasts, by the clock of the one that watches.
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

from divvy.kube import kind
from divvy.kube.client import Client
from divvy.kube.errors import CONFLICT, ApiError, KubeError

_log = logging.getLogger(__name__)
# Nobody's change takes an hour. Whoever writes a longer time keeps the next one waiting for as long
# as he renews it, and not for years after.
_LONGEST_SECONDS = 3600


class LeaseLost(KubeError):
    """The Lease is another's, or could not be renewed: nothing more may begin."""


@dataclass(frozen=True)
class Lease:
    """A Lease by name, and its times in seconds.

    Others may take it once it has not been renewed for ``lasts``. What its holder begins within
    ``deadline`` after a renewal must be over before that.
    """

    name: str
    namespace: str
    lasts: int
    deadline: float
    renew: float = 10.0
    retry: float = 2.0

    @property
    def path(self) -> str:
        """Return the path of the Lease in the API."""
        return kind.LEASE.path(self.namespace, self.name)


@dataclass(frozen=True)
class Observation:
    """A version of the Lease, and since when this process has seen it (own clock, seconds)."""

    version: str
    since: float


def observe(before: Observation | None, version: str, now: float) -> Observation:
    """Return the observation after a look at a version of the Lease."""
    if before is not None and before.version == version:
        return before
    return Observation(version, now)


def is_free(own: str, holder: str, lasts: float, observation: Observation, now: float) -> bool:
    """Return whether the Lease that was observed may be taken."""
    return holder in ("", own) or now - observation.since >= lasts


class HeldLease:
    """The hold of a Lease, renewed in the background."""

    def __init__(self, client: Client, lease: Lease, holder: str) -> None:
        self._client, self._lease, self._holder = client, lease, holder
        self._renewed = time.monotonic()
        self._lost = ""
        self._over = threading.Event()

    def require(self) -> None:
        """Raise LeaseLost if the Lease may be another's before a change is over."""
        if self._lost:
            raise LeaseLost(self._lost)
        silent = time.monotonic() - self._renewed
        if silent > self._lease.deadline:
            raise LeaseLost(f"the Lease {self._lease.name} could not be renewed for {silent:.0f} s")

    def keep(self) -> None:
        """Renew until it is over or lost."""
        while not self._over.wait(self._lease.renew) and not self._lost:
            began = time.monotonic()
            try:
                self._lost = self._renew()
            except KubeError as error:
                _log.warning("the Lease %s was not renewed: %s", self._lease.name, error)
                continue
            if not self._lost:
                self._renewed = began

    def end(self) -> None:
        """Stop renewing."""
        self._over.set()

    def _renew(self) -> str:
        """Renew; return why it is lost, "" if it is not."""
        live = self._client.find(self._lease.path)
        if live is None:
            return f"the Lease {self._lease.name} was deleted"
        holder = _held(live).get("holderIdentity")
        if holder != self._holder:
            return f"the Lease {self._lease.name} is held by {holder or 'nobody'} now"
        _replace(self._client, self._lease, live, _spec(self._lease, self._holder))
        return ""


@contextmanager
def hold_lease(
    client: Client, lease: Lease, holder: str, waiting: Callable[[str], None]
) -> Iterator[HeldLease]:
    """Hold a Lease; while another holds it wait, and report once who that is."""
    observation: Observation | None = None
    reported = ""
    while True:
        acquired, observation, other = _take(client, lease, holder, observation)
        if acquired:
            break
        if other and other != reported:
            reported = other
            waiting(other)
        time.sleep(lease.retry)
    held = HeldLease(client, lease, holder)
    keeper = threading.Thread(target=held.keep, daemon=True)
    keeper.start()
    try:
        yield held
    finally:
        held.end()
        keeper.join()
        _give_back(client, lease, holder)


def _take(
    client: Client, lease: Lease, own: str, observation: Observation | None
) -> tuple[bool, Observation | None, str]:
    """Try to take the Lease; return whether that is done, what was seen, and who holds it."""
    live = client.find(lease.path)
    if live is None:
        return _accepted(lambda: _create(client, lease, own)), None, ""
    held = _held(live)
    version = str(live["metadata"].get("resourceVersion") or "")
    now = time.monotonic()
    observation = observe(observation, version, now)
    lasts = min(held.get("leaseDurationSeconds") or lease.lasts, _LONGEST_SECONDS)
    holder = held.get("holderIdentity") or ""
    if not is_free(own, holder, lasts, observation, now):
        return False, observation, holder
    # The resource version makes one of two takers lose.
    taken = _accepted(lambda: _replace(client, lease, live, _spec(lease, own)))
    return taken, observation, holder


def _held(live: Mapping[str, Any]) -> Mapping[str, Any]:
    return live.get("spec") or {}


def _create(client: Client, lease: Lease, holder: str) -> None:
    metadata = {"name": lease.name, "namespace": lease.namespace}
    new = {"apiVersion": kind.LEASE.api_version, "kind": "Lease", "metadata": metadata}
    path = kind.LEASE.path(lease.namespace)
    client.request("POST", path, {**new, "spec": _spec(lease, holder)})


def _replace(
    client: Client, lease: Lease, live: Mapping[str, Any], spec: Mapping[str, Any]
) -> None:
    client.request("PUT", lease.path, {**live, "spec": {**_held(live), **spec}})


def _spec(lease: Lease, holder: str) -> dict[str, Any]:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return {"holderIdentity": holder, "leaseDurationSeconds": lease.lasts, "renewTime": now}


def _accepted(write: Callable[[], None]) -> bool:
    try:
        write()
    except ApiError as error:
        if error.code == CONFLICT:
            return False
        raise
    return True


def _give_back(client: Client, lease: Lease, holder: str) -> None:
    """Let the next one begin at once; where that fails, it waits until the Lease is old."""
    try:
        live = client.find(lease.path)
        if live is not None and _held(live).get("holderIdentity") == holder:
            _accepted(lambda: _replace(client, lease, live, {"holderIdentity": ""}))
    except KubeError as error:
        _log.warning("the Lease %s was not given back: %s", lease.name, error)
