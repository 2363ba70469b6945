"""Prepare this node's runtime, then wait: the pod shows by being ready that the node is."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from lightkube import Client

from divvy.agent.node_runtime.containerd import CannotConfigure
from divvy.agent.node_runtime.host import Host, HostFailed
from divvy.agent.node_runtime.prepare import prepare_containerd, prepare_crio
from divvy.agent.node_runtime.turns import turn

# Not Docker: its shim passes no CDI names on, and the agent grants without them.
_PREPARE: dict[str, Callable[..., tuple[str, ...]]] = {
    "containerd": prepare_containerd,
    "cri-o": prepare_crio,
}
_READY = Path("/tmp/ready")  # noqa: S108 (the pod's own scratch volume)


def main() -> None:
    """Run for the node and namespace that the environment names."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    node, namespace = os.environ["NODE_NAME"], os.environ["NAMESPACE"]
    prepare = _PREPARE.get(os.environ["RUNTIME"])
    host = Host()
    try:
        if prepare is not None and prepare(host, change=False):
            with turn(Client(namespace=namespace), node, namespace):
                done = prepare(host)
            logging.info("CDI is on now: %s", "; ".join(done) or "it was meanwhile")
        else:
            logging.info("nothing to do")
    except (CannotConfigure, HostFailed) as problem:
        sys.exit(f"divvy node runtime: {problem}")
    _READY.touch()
    signal.sigwait({signal.SIGTERM, signal.SIGINT})


if __name__ == "__main__":
    main()
