"""Ports for servers of tests."""

import contextlib
import random
import socket


def free_port() -> int:
    """Return a port of the loopback without a listener.

    Below those that the kernel gives to outgoing connections: it stays free until it is used.
    """
    while True:
        port = random.randrange(10240, 32768)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
