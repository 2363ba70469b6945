"""The process of dynamic providers."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

import grpc

from divvy.engine.dynamic import DynamicProvider
from tests.simulator.driver_root import eventually


def test_keeps_the_terminals_interrupts_from_what_a_provider_has_begun(tmp_path: Path) -> None:
    """Ctrl-C, and a terminal that closes, reach all processes of the foreground group."""
    provider = DynamicProvider(sys.executable, tmp_path, "p", {}, lambda _: None)
    try:
        provider.warm()
        assert provider._process is not None
        assert os.getpgid(provider._process.pid) != os.getpgrp()
    finally:
        provider.close()


def test_passes_on_what_a_provider_prints_however_much(tmp_path: Path) -> None:
    python, done = tmp_path / "python", tmp_path / "done"
    python.write_text(
        "#!/bin/sh\necho 1\nyes 'a line that a provider prints while it creates' | head -3000\n"
        f"touch {done}\nexec sleep 60\n"
    )
    python.chmod(0o755)
    printed: list[str] = []
    provider = DynamicProvider(str(python), tmp_path, "p", {}, printed.append)
    with contextlib.suppress(grpc.RpcError):  # it serves nothing
        provider.warm()
    assert eventually(done.exists, 30)
    assert eventually(lambda: len(printed) == 3000)
    provider.close()
