"""The engine meets an API server that restarts in the middle of a run."""

import os
import signal
import time
from pathlib import Path

import pytest

from tests.engine.programs import Program
from tests.lab.conftest import SmallLab

pytestmark = [pytest.mark.lab, pytest.mark.timeout(180)]
COUNT = 150


def api_server(small_lab: SmallLab) -> int:
    """Return the process of the small lab's API server."""
    lines = small_lab.divvy("status").stdout.splitlines()
    (line,) = [line for line in lines if line.startswith("kube-apiserver")]
    return int(line.rsplit(" ", 1)[1])


def test_continues_up_when_the_api_server_is_back(small_lab: SmallLab, tmp_path: Path) -> None:
    small_lab.up()
    kubeconfig = Path(small_lab.divvy("kubeconfig").stdout.strip())
    small_lab.kubectl("create", "namespace", "restart")
    program = Program(tmp_path, kubeconfig, "restart")
    program.resources = {f"r{n}": {"data": {"n": str(n)}, "called": f"r{n}"} for n in range(COUNT)}
    running = program.start("up", "--yes")
    journal = tmp_path / ".pulumi/divvy/trial/dev.journal"
    while not (journal.exists() and journal.read_text().count("done") > COUNT // 5):
        assert running.poll() is None
        time.sleep(0.01)
    os.kill(api_server(small_lab), signal.SIGKILL)
    small_lab.up()
    output, _ = running.communicate(timeout=120)
    assert running.returncode == 0, output
    names = small_lab.kubectl("get", "configmaps", "-n=restart", "-l=trial=yes", "-o=name")
    assert len(names.split()) == COUNT
    assert f"{COUNT + 2} unchanged" in program.up()
