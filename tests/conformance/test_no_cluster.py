"""Where divvy verify cannot begin: each time one sentence that says why."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml
from typer.testing import CliRunner

from conformance.cluster import api, run_lease
from conformance.cluster.open_cluster import open_cluster
from conformance.image import compile_workloads
from divvy.cli.main import app
from divvy.image.build import BuildFailed
from divvy.kube.client import Client
from divvy.kube.kubeconfig import ClusterConfig
from divvy.version_info import install_command
from lab.cluster.paths import REPOSITORY
from lab.fakes.kubeconfig import write_kubeconfig

FORBIDDEN = {
    "kind": "Status",
    "apiVersion": "v1",
    "status": "Failure",
    "reason": "Forbidden",
    "code": 403,
    "message": "nodes is forbidden: User viewer cannot list resource nodes",
}
# Nothing listens there.
BUILT = {"image": {"registry": "127.0.0.1:1", "base": "127.0.0.1:1/base", "insecure": True}}
EMPTY = {"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": []}


@pytest.fixture(name="answers")
def _answers() -> Iterator[tuple[dict[str, Any], int]]:
    """Give what an API server answers to everything, and its port."""
    answers: dict[str, Any] = {}

    class Server(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            text = json.dumps(answers).encode()
            self.send_response(answers.get("code", 200))
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield answers, server.server_address[1]
        server.shutdown()
        thread.join()


def stack_file(folder: Path, kubeconfig: Path, **more: Any) -> Path:
    pools = {"training": {"profile": "whole"}}
    cluster = {"kubeconfig": str(kubeconfig), "profiles": {"whole": {}}, "pools": pools, **more}
    path = folder / "Pulumi.c.yaml"
    path.write_text(yaml.safe_dump({"config": {"divvy:cluster": cluster}}))
    return path


def kubeconfig(folder: Path, port: int) -> Path:
    return write_kubeconfig(folder / "kubeconfig", f"http://127.0.0.1:{port}")


class Options:
    """Pytest's configuration with the options of a run."""

    def __init__(self, **given: Any) -> None:
        self.given = given

    def getoption(self, name: str) -> Any:
        options = {"target": "divvy", **self.given}
        return options.get(name.removeprefix("--divvy-").replace("-", "_"))


def refused(file: Path, **options: Any) -> str:
    with pytest.raises(pytest.UsageError) as refusal:
        open_cluster(Options(file=str(file), stack="c", **options))  # type: ignore[arg-type]
    return str(refusal.value)


@pytest.mark.parametrize(
    ("kind", "setting"),
    [
        ("cluster", {"proxy-url": "http://127.0.0.1:1"}),
        ("cluster", {"tls-server-name": "another"}),
        ("user", {"as": "somebody-with-less-rights"}),
    ],
)
def test_refuses_a_kubeconfig_that_means_another_cluster_or_user(
    tmp_path: Path, kind: str, setting: dict[str, str]
) -> None:
    path = kubeconfig(tmp_path, 1)
    document = yaml.safe_load(path.read_text())
    document[f"{kind}s"][0][kind].update(setting)
    path.write_text(yaml.safe_dump(document))
    (name,) = setting
    assert refused(stack_file(tmp_path, path)).endswith(f": {name} is not supported")


def test_reports_a_missing_kubeconfig(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    message = refused(stack_file(tmp_path, missing))
    assert message.startswith("no usable kubeconfig: ")
    assert str(missing) in message


def test_reports_an_account_without_rights(
    tmp_path: Path, answers: tuple[dict[str, Any], int]
) -> None:
    answers[0].update(FORBIDDEN)
    message = refused(stack_file(tmp_path, kubeconfig(tmp_path, answers[1])))
    assert message == f"the cluster refuses: {FORBIDDEN['message']}"


def test_reports_an_unreachable_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "_PAUSES", ())
    with socket.socket() as listener:
        # Bound and not listening: connections are refused, and no other process gets the port.
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        message = refused(stack_file(tmp_path, kubeconfig(tmp_path, port)))
    assert message.startswith(f"the cluster cannot be reached: http://127.0.0.1:{port}: ")


def test_reports_a_pool_missing_from_the_stack_file(
    tmp_path: Path, answers: tuple[dict[str, Any], int]
) -> None:
    answers[0].update(EMPTY)
    file = stack_file(tmp_path, kubeconfig(tmp_path, answers[1]))
    message = refused(file, pool="trainig")
    assert message == "the stack file has no pool trainig; it has: training"


def test_reports_a_suite_that_cannot_begin_in_one_error(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Nor is an image built before: its registry would be a second one."""
    file = stack_file(tmp_path, tmp_path / "missing", plugin=BUILT)
    result = CliRunner().invoke(app, ["verify", f"--file={file}", f"--out={tmp_path / 'out'}"])
    assert result.exit_code == 1
    assert result.stderr.startswith("error: no usable kubeconfig: ")
    assert len(result.stderr.splitlines()) == 1
    assert capfd.readouterr().err == ""


def test_says_what_to_install_without_its_packages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("divvy.cli.verify.find_spec", lambda _name: None)
    result = CliRunner().invoke(app, ["verify", "--bare"])
    assert result.exit_code == 1
    needed = "error: the conformance suite needs pytest and testinfra"
    assert f"{needed}: {install_command('cli,verify')}" in result.output


def test_reports_a_host_that_does_not_answer(tmp_path: Path) -> None:
    options = ["verify", "--bare", "--host=ssh://nobody@127.0.0.1:1", f"--out={tmp_path}"]
    result = CliRunner().invoke(app, options)
    assert result.exit_code == 1
    assert result.stderr.startswith("error: ssh://nobody@127.0.0.1:1 does not answer: ")


def test_makes_the_other_checks_without_the_workloads(
    tmp_path: Path, answers: tuple[dict[str, Any], int], capsys: pytest.CaptureFixture[str]
) -> None:
    answers[0].update(EMPTY)
    file = stack_file(tmp_path, kubeconfig(tmp_path, answers[1]), plugin=BUILT)
    opened = open_cluster(Options(file=str(file), stack="c"))  # type: ignore[arg-type]
    assert opened.image is None
    assert opened.no_image.startswith("the workloads' image cannot be built and pushed: ")
    assert capsys.readouterr().err == f"{opened.no_image}\n"


def test_checks_a_stack_file_that_builds_no_image(
    tmp_path: Path, answers: tuple[dict[str, Any], int], capsys: pytest.CaptureFixture[str]
) -> None:
    answers[0].update(EMPTY)
    published = {"image": {"reference": f"registry.example/agent@sha256:{'0' * 64}"}}
    file = stack_file(tmp_path, kubeconfig(tmp_path, answers[1]), plugin=published)
    opened = open_cluster(Options(file=str(file), stack="c"))  # type: ignore[arg-type]
    assert opened.image is None
    assert opened.no_image.startswith("no workload image: ")
    assert capsys.readouterr().err == ""


def test_refuses_an_image_without_a_name(
    tmp_path: Path, answers: tuple[dict[str, Any], int]
) -> None:
    answers[0].update(EMPTY)
    file = stack_file(tmp_path, kubeconfig(tmp_path, answers[1]), plugin=BUILT)
    message = refused(file, **{"__workload_image": ""})
    assert message == "--workload-image is empty: leave it out, and an image is built"


def test_shortens_compiler_output_to_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The suite's own errors begin a line, and are the command's."""
    compiler = tmp_path / "make"
    compiler.write_text("#!/bin/sh\nprintf 'a\\377b\\nERROR: no space\\nthird\\n' >&2\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(BuildFailed) as problem:
        compile_workloads(tmp_path)
    message = str(problem.value)
    assert message.startswith("the workloads do not compile: make ")
    assert message.endswith("a\ufffdb / ERROR: no space / third")


def test_reports_workloads_that_cannot_be_built() -> None:
    command = [sys.executable, "-m", "conformance.image", "r:5000", "r:5000/base"]
    ended = subprocess.run(
        command, cwd=REPOSITORY, env={"PATH": ""}, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1
    assert ended.stderr.startswith("the workloads' image cannot be built and pushed: ")


def test_gives_up_a_dropped_connection_before_its_run_counts_as_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds: list[float] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        seconds.extend(request.extensions["timeout"].values())
        raise httpx2.ReadTimeout("dropped", request=request)

    def client(config: ClusterConfig, *more: Any, **options: Any) -> Client:
        return Client(config, *more, transport=httpx2.MockTransport(answer), **options)

    monkeypatch.setattr("conformance.cluster.open_cluster.Client", client)
    monkeypatch.setattr(api, "_PAUSES", ())
    assert "dropped" in refused(stack_file(tmp_path, kubeconfig(tmp_path, 1)))
    assert run_lease._RENEW + max(seconds) < run_lease.LONGEST_SILENCE
