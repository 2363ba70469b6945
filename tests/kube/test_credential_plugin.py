"""Credential plugins: what they are given, what they print, and who waits for whom."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from base64 import b64encode
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stderr, suppress
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from divvy.kube.client import Client
from divvy.kube.credential_plugin import plugin_token
from divvy.kube.errors import KubeconfigError
from divvy.kube.kubeconfig import ClusterConfig
from lab.cluster.certificates import create_authority
from tests.kube.answering_server import Server

CREDENTIAL = """echo '{"status": {"token": "t"}}'"""


def plugin(folder: Path, script: str, **more: Any) -> dict[str, Any]:
    """Return a kubeconfig's entry of a plugin that is a shell script."""
    path = folder / "plugin"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return {"apiVersion": "client.authentication.k8s.io/v1", "command": str(path), **more}


def config(settings: dict[str, Any]) -> ClusterConfig:
    return ClusterConfig("https://127.0.0.1:1", user={"exec": settings})


def test_sends_the_token_of_a_credential_plugin(server: Server, tmp_path: Path) -> None:
    server.answers = [(200, [{}])]
    with server.client(exec=plugin(tmp_path, CREDENTIAL)) as client:
        client.get("/x")
    assert server.requests[0].headers["Authorization"] == "Bearer t"


@pytest.mark.parametrize(
    ("script", "more", "words"),
    [
        ("echo hello", {}, "printed no credential"),
        ("printf '\\377'", {}, "printed no credential"),
        ("echo null", {}, "printed no credential"),
        ("""echo '{"status": null}'""", {}, "printed no credential"),
        ("""echo '{"status": "x"}'""", {}, "printed no credential"),
        ("""echo '{"status": {}}'""", {}, "gives no token"),
        ("printf '\\377' >&2; exit 1", {}, "failed: \ufffd"),
        ("true", {"args": [1]}, "is malformed: expected str"),
        ("true", {"env": ["A"]}, "is malformed"),
        ("true", {"command": "/none", "installHint": "get it"}, r"does not run: .* \(get it\)"),
    ],
)
def test_reports_what_is_wrong_with_a_credential_plugin(
    tmp_path: Path, script: str, more: dict[str, Any], words: str
) -> None:
    with pytest.raises(KubeconfigError, match=words):
        plugin_token(config({**plugin(tmp_path, script), **more}))


def test_ends_a_credential_plugin_with_the_command_that_waits_for_it(tmp_path: Path) -> None:
    settings = plugin(tmp_path, "printf 'Enter the code: ' >&2\nexec sleep 60")
    program = (
        "from divvy.kube.credential_plugin import plugin_token\n"
        "from divvy.kube.kubeconfig import ClusterConfig\n"
        f"plugin_token(ClusterConfig('https://x', user={{'exec': {settings!r}}}))"
    )
    waiting = subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE)
    assert waiting.stderr is not None
    prompt = b"Enter the code: "
    assert waiting.stderr.read(len(prompt)) == prompt
    waiting.send_signal(signal.SIGINT)
    words = waiting.communicate(timeout=30)[1]
    assert b"KeyboardInterrupt" in words
    assert b"Exception in thread" not in words


def test_waits_for_no_program_that_a_credential_plugin_leaves_behind(tmp_path: Path) -> None:
    settings = plugin(tmp_path, f"sleep 60 >/dev/null &\necho $! >&2\n{CREDENTIAL}")
    begun = time.monotonic()
    shown = StringIO()
    with redirect_stderr(shown):
        assert plugin_token(config(settings)) == "t"
    os.kill(int(shown.getvalue()), signal.SIGKILL)
    assert time.monotonic() - begun < 30


def test_reports_what_a_credential_plugin_said_before_a_program_that_it_leaves_behind(
    tmp_path: Path,
) -> None:
    lived = tmp_path / "lived"
    left = f"(sleep 2; echo more >&2; touch {lived}) >/dev/null &"
    settings = plugin(tmp_path, f"{left}\nprintf 'login expired' >&2\nexit 1")
    with pytest.raises(KubeconfigError, match=r"failed: login expired$"):
        plugin_token(config(settings))
    until = time.monotonic() + 30
    while not lived.exists():
        assert time.monotonic() < until
        time.sleep(0.05)


@pytest.mark.parametrize("stderr", [None, "closed"])
def test_reads_a_credential_plugin_to_its_end_without_a_stderr(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stderr: str | None
) -> None:
    settings = plugin(tmp_path, f"head -c 300000 /dev/zero >&2\n{CREDENTIAL}")
    closed = StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stderr", closed if stderr else None)
    assert plugin_token(config(settings)) == "t"


def test_reads_a_credential_plugin_to_its_end_though_nobody_reads_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = plugin(tmp_path, f"head -c 300000 /dev/zero >&2\n{CREDENTIAL}")
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr(sys, "stderr", full)
        assert plugin_token(config(settings)) == "t"
        monkeypatch.undo()
        with suppress(OSError):
            full.close()


def test_gives_a_credential_plugin_an_environment(tmp_path: Path) -> None:
    environment = [{"name": "A", "value": "a"}, {"name": "B"}]
    script = """echo '{"status": {"token": "'$A-${B-none}'"}}'"""
    assert plugin_token(config(plugin(tmp_path, script, env=environment))) == "a-"


def test_asks_a_credential_plugin_once_for_all_threads(server: Server, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    settings = plugin(tmp_path, f"echo run >> {runs}; sleep 0.1; {CREDENTIAL}")
    server.answers = [(200, [{}])] * 8
    with server.client(exec=settings) as client, ThreadPoolExecutor(8) as threads:
        assert list(threads.map(client.get, ["/x"] * 8)) == [{}] * 8
    assert runs.read_text() == "run\n"


@pytest.mark.parametrize("asks", [True, False])
def test_tells_a_credential_plugin_of_the_cluster_if_it_asks(tmp_path: Path, asks: bool) -> None:
    create_authority(tmp_path)
    record = tmp_path / "record"
    script = f"""printf %s "$KUBERNETES_EXEC_INFO" > {record}\nexit 1"""
    extension = {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "a"}}
    cluster = {"certificate-authority": str(tmp_path / "ca.crt"), "extensions": [extension]}
    user = {"exec": plugin(tmp_path, script, provideClusterInfo=asks)}
    asked = ClusterConfig("https://127.0.0.1:1", cluster=cluster, user=user)
    with Client(asked) as client, pytest.raises(KubeconfigError):
        client.get("/x")
    expected = {
        "server": "https://127.0.0.1:1",
        "certificate-authority-data": b64encode((tmp_path / "ca.crt").read_bytes()).decode(),
        "config": {"audience": "a"},
    }
    assert json.loads(record.read_text()).get("spec").get("cluster") == (expected if asks else None)


def test_shows_what_a_credential_plugin_says_while_it_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = tmp_path / "seen"
    settings = plugin(
        tmp_path,
        f"""echo "open https://login.example and enter CODE" >&2
        for _ in 1 2 3 4 5 6 7 8 9 10; do
            [ -e {seen} ] && {CREDENTIAL} && exit
            sleep 0.1
        done
        echo "too late" >&2
        exit 1""",
    )
    shown = StringIO()
    monkeypatch.setattr(shown, "flush", seen.touch)
    monkeypatch.setattr("sys.stderr", shown)
    assert plugin_token(config(settings)) == "t"
    assert shown.getvalue() == "open https://login.example and enter CODE\n"


def test_shows_no_credential_of_a_plugin(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    settings = plugin(tmp_path, "echo secret\nseq 1 9 >&2\nexit 1")
    with pytest.raises(KubeconfigError) as problem:
        plugin_token(config(settings))
    assert str(problem.value).endswith("failed: 5\n6\n7\n8\n9")
    assert "secret" not in "".join(capfd.readouterr())
