"""The agent itself, between this host's driver and a made-up kubelet and API server."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from conformance.bare.findings import Findings
from conformance.bare.gpus import idle_gpu
from conformance.bare.host import BareHost
from conformance.bare.kit import AGENT_SCENE, Kit
from conformance.check import BARE, check
from conformance.skips import not_made


@check(
    "BARE-11",
    "the agent registers, lists, allocates and watches health",
    "MUST",
    BARE,
    "its evidence has the agent's log",
)
@pytest.mark.kit
@pytest.mark.limit(90)
def test_the_agent_serves_this_host(
    host: BareHost, kit: Kit, pytestconfig: pytest.Config, tmp_path: Path, findings: Findings
) -> None:
    if not _has_loopback():
        not_made(
            "the loopback interface is down, and the agent asks an API server: ip link set lo up"
        )
    gpu = idle_gpu(host.gpus) if pytestconfig.getoption("--exclusive") else None
    breakable_gpu = gpu.uuid if gpu else None
    play = pytestconfig.stash[AGENT_SCENE]
    asyncio.run(play(host, kit, tmp_path, breakable_gpu, findings))
    findings.judge()


def _has_loopback() -> bool:
    with socket.socket() as listening, socket.socket() as asking:
        try:
            listening.bind(("127.0.0.1", 0))
            listening.listen()
            asking.connect(listening.getsockname())
        except OSError:
            return False
        return True
