"""Ports of a lab that another program uses, and those of a component that is ending."""

from __future__ import annotations

import socket
import threading

import pytest

from lab.cluster import lifecycle
from lab.cluster.errors import LabFailed
from lab.cluster.section import parse_lab


@pytest.fixture
def listener(monkeypatch: pytest.MonkeyPatch) -> socket.socket:
    """Give what listens on the port of an API server that does not run."""
    monkeypatch.setattr(lifecycle.processes, "find", lambda _component: None)
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("0.0.0.0", 0))
    listener.listen()
    return listener


def check(listener: socket.socket) -> None:
    ports = {"apiServer": listener.getsockname()[1], "etcd": 27379, "registry": 27500}
    lifecycle._check_ports(parse_lab({"nodes": [{"name": "gpu-1"}], "ports": ports}))


def test_waits_for_a_component_that_was_just_killed(listener: socket.socket) -> None:
    end = threading.Timer(0.5, listener.close)
    end.start()
    check(listener)
    end.join()


def test_refuses_the_port_of_another_program(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle, "_ENDING_SECONDS", 0.2)
    with listener, pytest.raises(LabFailed, match=r"ports.apiServer: another program uses port"):
        check(listener)
