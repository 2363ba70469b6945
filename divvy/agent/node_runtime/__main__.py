"""Prepare this node's runtime, then wait: the pod shows by being ready that the node is."""

from __future__ import annotations

import logging
import os
import signal
import sys
from pathlib import Path

from lightkube import Client

from divvy.agent.node_runtime.containerd import CannotConfigure
from divvy.agent.node_runtime.host import Host, HostFailed
from divvy.agent.node_runtime.prepare import prepare_containerd
from divvy.agent.node_runtime.turns import turn

_READY = Path("/tmp/ready")  # noqa: S108 (the pod's own scratch volume)


def main() -> None:
    """Run for the node and namespace that the environment names."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    node, namespace = os.environ["NODE_NAME"], os.environ["NAMESPACE"]
    runtime = os.environ.get("RUNTIME", "containerd")
    if runtime != "containerd":
        sys.exit(
            f"divvy node runtime: {runtime} is not changed by this version: switch CDI on by hand, "
            "and set the pool's runtime.configure to false"
        )
    host = Host()
    try:
        if prepare_containerd(host, change=False):
            with turn(Client(namespace=namespace), node, namespace):
                done = prepare_containerd(host)
            logging.info("CDI is on now: %s", "; ".join(done) or "it was meanwhile")
        else:
            logging.info("CDI is on: nothing to do")
    except (CannotConfigure, HostFailed) as problem:
        sys.exit(f"divvy node runtime: {problem}")
    _READY.touch()
    signal.sigwait({signal.SIGTERM, signal.SIGINT})


if __name__ == "__main__":
    main()
