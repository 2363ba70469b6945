"""The Lease of a run: it is renewed while the run is alive, and expires with it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime

from conformance.cluster.api import Api
from conformance.cluster.pod_spec import OWN
from divvy.kube.errors import NOT_FOUND, ApiError, KubeError
from divvy.kube.kind import LEASE

NAME = "run"
_RENEW = 10.0
# Three renewals may be lost; clocks of two machines are never compared.
LONGEST_SILENCE = 30.0
_PERIOD = 1.0
# A run makes its lease right after its namespace.
_BEFORE_LEASE = 3.0


class RunLease:
    """The lease of this run in one of its namespaces."""

    def __init__(self, api: Api, namespace: str) -> None:
        self._api = api
        self._namespace = namespace
        self._over = threading.Event()
        metadata = {"name": NAME, "namespace": namespace, "labels": OWN}
        spec = {"holderIdentity": namespace, "renewTime": _now()}
        api.create(LEASE, {"metadata": metadata, "spec": spec})
        threading.Thread(target=self._renew, daemon=True, name="lease").start()

    def end(self) -> None:
        """Stop renewing it."""
        self._over.set()

    def _renew(self) -> None:
        while not self._over.wait(_RENEW):
            try:
                patch = {"spec": {"renewTime": _now()}}
                self._api.patch(LEASE, NAME, patch, self._namespace)
            except KubeError:
                continue


def living(api: Api, namespaces: Iterable[str], tell: Callable[[str], None]) -> frozenset[str]:
    """Return those namespaces whose runs renew their leases; looks for half a minute."""
    first = {namespace: _renewed(api, namespace) for namespace in namespaces}
    if None in first.values():
        time.sleep(_BEFORE_LEASE)
        first |= {
            lease: _renewed(api, lease) for lease, renewed in first.items() if renewed is None
        }
    open_ = {namespace for namespace, renewed in first.items() if renewed is not None}
    if open_:
        tell(f"another run may be active ({', '.join(sorted(open_))}): checking")
    alive: set[str] = set()
    deadline = time.monotonic() + LONGEST_SILENCE
    while open_ and time.monotonic() < deadline:
        time.sleep(_PERIOD)
        moved = {lease for lease in open_ if _renewed(api, lease) not in (None, first[lease])}
        alive |= moved
        open_ -= moved
    return frozenset(alive)


def _renewed(api: Api, namespace: str) -> str | None:
    try:
        lease = api.get(LEASE, NAME, namespace)
    except ApiError as error:
        if error.code == NOT_FOUND:
            return None
        raise  # a run whose lease cannot be read may live: what it has made stays
    return str((lease.get("spec") or {}).get("renewTime"))


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
