"""What the agent says where it cannot start."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lab.fakes.ports import free_port


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"DIVVY_PORT": "99999"}, "divvy agent: DIVVY_PORT is '99999': a port number"),
        ({"KUBECONFIG": "/nowhere"}, "divvy agent: KUBECONFIG=/nowhere: no such file"),
    ],
)
def test_exits_with_one_sentence_on_wrong_settings(
    tmp_path: Path, given: dict[str, str], message: str
) -> None:
    named = {
        "NODE_NAME": "n1",
        "NAMESPACE": "divvy-system",
        "POD_NAME": "divvy",
        "DIVVY_LISTEN": "127.0.0.1",
    }
    environment = {
        **os.environ,
        **named,
        "DIVVY_STATE_FOLDER": str(tmp_path),
        "DIVVY_PORT": str(free_port()),
        **given,
    }
    done = subprocess.run(
        [sys.executable, "-m", "divvy.agent"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(message)
    assert "Traceback" not in done.stderr
