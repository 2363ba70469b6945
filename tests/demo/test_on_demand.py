"""The demonstration of GPUs on demand leaves no pod behind, however it ends."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "demo/on-demand.sh"
# Waits for pods as kubectl does, and is ended by Ctrl-C, too.
KUBECTL = """#!/bin/sh
echo "$*" >> "$LOG"
case "$*" in "wait pod share"*) exec sleep 20 ;; esac
"""


@pytest.mark.parametrize("how", [signal.SIGHUP, signal.SIGINT, signal.SIGTERM])
def test_removes_its_pods_when_it_is_stopped(how: signal.Signals, tmp_path: Path) -> None:
    kubectl, log = tmp_path / "kubectl", tmp_path / "log"
    kubectl.write_text(KUBECTL)
    kubectl.chmod(0o755)
    environment = {
        **os.environ, "KUBECTL": str(kubectl), "DIVVY": "true", "STACK": "lab", "IMAGE": "i",
        "LOG": str(log),
    }  # fmt: skip
    with subprocess.Popen(["sh", SCRIPT], env=environment, start_new_session=True) as run:
        deadline = time.monotonic() + 10
        while "wait pod share" not in (log.read_text() if log.exists() else ""):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        os.killpg(run.pid, how)
        assert run.wait(10) == 128 + how
    last = log.read_text().splitlines()[-1]
    assert last.startswith("delete --ignore-not-found --wait=false pod/share-3000")
