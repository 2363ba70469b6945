"""Prepare this node's runtime, then wait: the pod shows by being ready that the node is."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from divvy.agent.host_path import HostFailed
from divvy.agent.node_runtime.containerd import CannotConfigure
from divvy.agent.node_runtime.host import Host
from divvy.agent.node_runtime.prepare import prepare_containerd, prepare_crio
from divvy.kube.client import Client
from divvy.kube.errors import KubeError
from divvy.kube.kubeconfig import cluster_config
from divvy.kube.lease import Lease, LeaseLost, hold_lease

# Not Docker: its shim passes no CDI names on, and the agent grants without them.
_PREPARE: dict[str, Callable[..., tuple[str, ...]]] = {
    "containerd": prepare_containerd,
    "cri-o": prepare_crio,
}
LEASE = "divvy-node-runtime"
# Longer than a change may take that began just before its deadline.
LEASE_SECONDS, RENEW_DEADLINE = 240, 60.0
_READY = Path("/tmp/ready")  # noqa: S108 (the pod's own scratch volume)


def main() -> None:
    """Run for the node and namespace that the environment names."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    node, namespace = os.environ["NODE_NAME"], os.environ["NAMESPACE"]
    prepare = _PREPARE.get(os.environ["RUNTIME"])
    host = Host()
    # The pod's volume outlives its container: one that was killed, or a boot, has left the file,
    # and the probe would find this node prepared before it is looked at again.
    _READY.unlink(missing_ok=True)
    try:
        if prepare is not None and prepare(host, change=False):
            client = Client(cluster_config(None, None), seconds=10)
            lease = Lease(LEASE, namespace, LEASE_SECONDS, RENEW_DEADLINE)
            with client, hold_lease(client, lease, node, _waiting) as held, uninterrupted():
                done = prepare(host, require_turn=held.require)
            logging.info("CDI is on now; before: %s", "; ".join(done) or "it was on meanwhile")
        else:
            logging.info("nothing to do")
    except (CannotConfigure, HostFailed, LeaseLost) as problem:
        sys.exit(f"divvy node runtime: {problem}")
    except KubeError as problem:
        sys.exit(f"divvy node runtime: the Kubernetes API: {problem}")
    _READY.touch()
    signal.sigwait({signal.SIGTERM, signal.SIGINT})


def _waiting(node: str) -> None:
    logging.info("waiting for node %s, which holds the Lease %s: one node at a time", node, LEASE)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Put SIGTERM off: a change ends with the runtime restarted, or with its old files."""
    signals: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _frame: signals.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
        if signals:
            logging.info("terminated while preparing")
            sys.exit(0)


if __name__ == "__main__":
    main()
