"""What `divvy verify --compare` compares with, and the archive that it leaves."""

from __future__ import annotations

import base64
import json
import shlex
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from conformance.report.report import Record
from divvy.cli import verify
from divvy.cli.main import app
from divvy.reports.archive import REPORT, SUMS, checksums, pack, report_json, unpack
from lab.fakes.kubeconfig import write_kubeconfig
from tests.reports.documents import document, record

PATH = "/api/v1/namespaces/divvy-system/configmaps/divvy-conformance"
STACK = """\
config:
  divvy:cluster:
    kubeconfig: {kubeconfig}
    profiles: {{whole: {{}}}}
    pools: {{training: {{profile: whole}}}}
"""


class Cluster:
    """An API server that keeps one ConfigMap, or refuses."""

    def __init__(self) -> None:
        self.kept: dict[str, Any] | None = None
        self.refusal: int | None = None
        self.written = 0


@pytest.fixture(name="cluster")
def _cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Give an API server, and the stack file of its cluster in the folder of the test."""
    cluster = Cluster()

    class Server(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.endswith("/daemonsets/divvy-agent"):
                self._answer(200, {"metadata": {"name": "divvy-agent"}})
                return
            assert self.path == PATH
            self._answer(404 if cluster.kept is None else 200, cluster.kept)

        def do_PATCH(self) -> None:
            assert self.path.startswith(f"{PATH}?fieldManager=")
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if cluster.refusal is None:
                cluster.kept = body
                cluster.written += 1
            self._answer(cluster.refusal or 200, body)

        def _answer(self, code: int, body: Any) -> None:
            value = body if code == 200 else {"message": "configmaps is forbidden", "code": code}
            text = json.dumps(value).encode()
            self.send_response(code)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        port = server.server_address[1]
        write_kubeconfig(tmp_path / "kubeconfig", f"http://127.0.0.1:{port}")
        stack = STACK.format(kubeconfig=tmp_path / "kubeconfig")
        (tmp_path / "Pulumi.s.yaml").write_text(stack)
        yield cluster
        server.shutdown()
        thread.join()


def run(
    folder: Path, monkeypatch: pytest.MonkeyPatch, report: dict[str, Any], *options: str
) -> Result:
    """Run the command with a suite that writes this report."""

    def suite(arguments: list[str]) -> tuple[int, str]:
        out = Path(
            next(argument for argument in arguments if "report=" in argument).partition("=")[2]
        )
        (out / "report.yaml").write_text(yaml.safe_dump(report))
        (out / "junit.xml").write_text("<testsuite/>")
        (out / "ctrf.json").write_text("{}")
        return 0, ""

    monkeypatch.setattr(verify, "_run_suite", suite)
    file = folder / "Pulumi.s.yaml"
    return CliRunner().invoke(
        app, ["verify", f"--file={file}", f"--out={folder / 'out'}", *options]
    )


PASSED = document(record("passed", "n1:a"), record("passed", "n1:b"))
FAILED = document(record("failed", "n1:a", reason="saw two GPUs"), record("passed", "n1:b"))
OF_ANOTHER = {**PASSED, "environment": {**PASSED["environment"], "stack": "other"}}
LOST = document(
    record("skipped", "n1:a", reason="held", missed="not made"), record("passed", "n1:b")
)


def of_changed(*records: Record, nodes: tuple[str, ...], others: list[str]) -> dict[str, Any]:
    """Return what a run with --changed writes: other nodes are as they were."""
    report = document(*records, nodes=nodes)
    report["environment"]["otherNodes"] = others
    return {**report, "only": ["--changed"]}


def test_keeps_the_last_report_in_the_cluster(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = run(tmp_path, monkeypatch, PASSED, "--compare=last")
    assert first.exit_code == 0
    assert "the cluster keeps no report yet" in first.output
    assert "kept in the cluster: ConfigMap divvy-system/divvy-conformance" in first.output
    assert cluster.kept is not None
    files = unpack(base64.b64decode(cluster.kept["binaryData"]["conformance.tar.gz"]))
    assert sorted(files) == [
        "Pulumi.s.yaml", SUMS, "ctrf.json", "junit.xml", REPORT, "versions.json"
    ]  # fmt: skip
    assert files["Pulumi.s.yaml"] == (tmp_path / "Pulumi.s.yaml").read_bytes()
    second = run(tmp_path, monkeypatch, PASSED, "--compare=last")
    assert second.exit_code == 0
    assert "every check came out as before" in second.output
    assert (tmp_path / "out/conformance.tar.gz").read_bytes() == base64.b64decode(
        cluster.kept["binaryData"]["conformance.tar.gz"]
    )


@pytest.mark.parametrize(
    ("report", "code", "words"),
    [
        (PASSED, 0, "every check came out as before"),
        # What fails is a failure of the run only if it must hold: of a comparison, always.
        ({**FAILED, "result": "warning"}, 1, "a: saw two GPUs"),
        (LOST, 3, "a: held"),
    ],
)
@pytest.mark.parametrize("form", ["report.yaml", "archive"])
@pytest.mark.usefixtures("cluster")
def test_exits_by_the_outcome_of_a_comparison(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, report: dict[str, Any],
    code: int, words: str, form: str,
) -> None:  # fmt: skip
    earlier = tmp_path / "earlier"
    files = {REPORT: report_json(PASSED)}
    archive = pack({**files, SUMS: checksums(files)})
    earlier.write_bytes(archive if form == "archive" else yaml.safe_dump(PASSED).encode())
    result = run(tmp_path, monkeypatch, report, f"--compare={earlier}")
    assert (result.exit_code, words in result.output) == (code, True), result.output
    assert words in (tmp_path / "out/comparison.md").read_text()
    # Without a comparison, nothing of that is an error, and no old comparison is left.
    assert run(tmp_path, monkeypatch, report).exit_code == 0
    assert not (tmp_path / "out/comparison.md").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "the earlier report cannot be read"),
        ("a: [", "the earlier report cannot be read"),
        ("kind: Pod", "is neither a report.yaml nor the archive of an earlier run"),
        ("kind: GpuConformanceReport\nchecks: []\n", "is neither a report.yaml nor the archive"),
        ("\x1f", "the earlier report cannot be read"),
        ("began: 2026-13-45", "the earlier report cannot be read"),
        (100_000 * "[", "the earlier report cannot be read"),
        (yaml.safe_dump({**PASSED, "checks": [{}]}), "is neither a report.yaml nor the archive"),
        (yaml.safe_dump(OF_ANOTHER), "a report of other cannot be compared with one of s"),
    ],
)
@pytest.mark.usefixtures("cluster")
def test_refuses_what_is_no_earlier_report_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None, message: str
) -> None:
    earlier = tmp_path / "old"
    if text == "\x1f":
        earlier.write_bytes(pack({REPORT: b"{}"}))
    elif text is not None:
        earlier.write_text(text)
    result = run(tmp_path, monkeypatch, PASSED, f"--compare={earlier}")
    assert (result.exit_code, message in result.output) == (1, True), result.output
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("cluster")
def test_archives_the_stack_file_as_it_was_when_the_run_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "Pulumi.s.yaml"
    before = file.read_bytes()
    monkeypatch.setattr(verify, "_show", lambda *_, **__: file.write_text("edited: meanwhile"))
    assert run(tmp_path, monkeypatch, PASSED).exit_code == 0
    assert unpack((tmp_path / "out/conformance.tar.gz").read_bytes())[file.name] == before


def test_keeps_no_report_of_a_partial_run(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = {**PASSED, "only": ["--select=ISO"]}
    assert run(tmp_path, monkeypatch, part).exit_code == 0
    assert cluster.written == 0


def test_updates_the_kept_report_by_a_run_of_changed_nodes(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path, monkeypatch, PASSED)
    part = of_changed(record("failed", "n2:gpu"), nodes=("n2",), others=["n1"])
    result = run(tmp_path, monkeypatch, part, "--changed", "--compare=last")
    assert (result.exit_code, cluster.written) == (1, 2), result.output
    assert "new nodes: n2" in result.output
    no_nodes = of_changed(nodes=(), others=["n1", "n2"])
    result = run(tmp_path, monkeypatch, no_nodes, "--changed", "--compare=last")
    assert (result.exit_code, cluster.written) == (1, 3), result.output
    assert "have not changed: failure: 2 passed, 1 failed, 0 skipped" in result.output
    assert "every check came out as before" in result.output
    smaller = of_changed(nodes=(), others=["n1"])
    result = run(tmp_path, monkeypatch, smaller, "--changed", "--compare=last")
    assert (result.exit_code, cluster.written) == (0, 4), result.output
    assert "gone nodes: n2" in result.output


def test_repeats_the_last_result_when_no_node_changed(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path, monkeypatch, PASSED)
    options = ("--changed", "--compare=last")
    no_nodes = of_changed(nodes=(), others=["n1"])
    assert run(tmp_path, monkeypatch, no_nodes, *options).exit_code == 0
    broken = of_changed(record("failed", "cluster"), nodes=(), others=["n1"])
    for _ in range(2):
        assert run(tmp_path, monkeypatch, broken, *options).exit_code == 1
    repaired = of_changed(record("passed", "cluster"), nodes=(), others=["n1"])
    assert run(tmp_path, monkeypatch, repaired, *options).exit_code == 0
    assert cluster.written == 5
    # A part of the checks replaces nothing.
    selected = {**no_nodes, "only": ["--changed", "--select=ISO"], "options": ["--select=ISO"]}
    assert run(tmp_path, monkeypatch, selected, *options).exit_code == 0
    assert cluster.written == 5


def test_loses_only_the_kept_report_without_the_right_to_write(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.refusal = 403
    result = run(tmp_path, monkeypatch, PASSED)
    assert result.exit_code == 0
    assert "not kept in the cluster: configmaps is forbidden" in result.output
    assert (tmp_path / "out/conformance.tar.gz").exists()


def test_keeps_a_large_report_without_its_evidence(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("divvy.live.kept_report._MOST_BYTES", 1500)
    noise = "".join(chr(33 + (number * number * 7919) % 90) for number in range(40_000))
    large = json.loads(json.dumps(PASSED))
    large["checks"][0]["evidence"] = [noise]
    result = run(tmp_path, monkeypatch, large)
    assert "ConfigMap divvy-system/divvy-conformance, without its evidence" in result.output
    assert cluster.kept is not None
    assert (
        "every check came out as before"
        in run(tmp_path, monkeypatch, large, "--compare=last").output
    )
    monkeypatch.setattr("divvy.live.kept_report._MOST_BYTES", 10)
    result = run(tmp_path, monkeypatch, large)
    assert "not kept in the cluster: the report is too large for a ConfigMap" in result.output
    assert result.exit_code == 0


@pytest.mark.usefixtures("cluster")
def test_writes_the_product_file_of_the_run_into_its_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = run(tmp_path, monkeypatch, PASSED, "--product")
    assert "gpu_sharing: unknown, the cluster has nothing of which ISO-04 or" in result.output
    written = (tmp_path / "out/PRODUCT.yaml").read_bytes()
    assert yaml.safe_load(written)["spec"]["security"][0]["id"] == "secure_accelerator_access"
    assert unpack((tmp_path / "out/conformance.tar.gz").read_bytes())["PRODUCT.yaml"] == written
    run(tmp_path, monkeypatch, PASSED)
    assert not (tmp_path / "out/PRODUCT.yaml").exists()


@pytest.mark.usefixtures("cluster")
def test_runs_a_job_with_the_options_of_the_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = [f"--runner-image=r/v@sha256:{'0' * 64}", f"--workload-image=r/w@sha256:{'1' * 64}"]
    options = ["--compare=last", "--sample=5%", "--seed=a b", "--exclusive", "--time-limit=30"]
    result = run(tmp_path, monkeypatch, PASSED, "--in-cluster", *images, *options)
    assert result.exit_code == 0, result.output
    assert f"kubectl apply -f {tmp_path / 'out/verify-job.yaml'}" in result.output
    objects = list(yaml.safe_load_all((tmp_path / "out/verify-job.yaml").read_text()))
    (container,) = objects[-1]["spec"]["template"]["spec"]["containers"]
    assert sorted(container["args"]) == sorted([*options, images[1]])
    # Nothing was run, and no report is one of it.
    assert not (tmp_path / "out/report.yaml").exists()


@pytest.mark.parametrize(
    ("overrides", "written", "words"),
    [
        (3500, ["verify-job.yaml"], "kubectl apply"),
        (5000, [], "the stack file is too long for a variable of a pod"),
    ],
)
@pytest.mark.usefixtures("cluster")
def test_writes_no_pod_whose_variables_no_kernel_takes(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    overrides: int,
    written: list[str],
    words: str,
) -> None:
    images = [f"--runner-image=r/v@sha256:{'0' * 64}", f"--workload-image=r/w@sha256:{'1' * 64}"]
    stack = yaml.safe_load((tmp_path / "Pulumi.s.yaml").read_text())
    cluster = stack["config"]["divvy:cluster"]
    (pool,) = cluster["pools"].values()
    pool["overrides"] = {f"gpu-node-{number:05}": pool["profile"] for number in range(overrides)}
    pool.pop("hardware", None)
    (tmp_path / "Pulumi.s.yaml").write_text(yaml.safe_dump(stack))
    result = run(tmp_path, monkeypatch, PASSED, "--in-cluster", *images)
    assert (result.exit_code, words in result.output) == (0 if written else 1, True), result.output
    out = tmp_path / "out"
    assert sorted(file.name for file in out.glob("*")) == written


@pytest.mark.usefixtures("cluster")
def test_prints_commands_that_a_shell_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = [f"--runner-image=r/v@sha256:{'0' * 64}", f"--workload-image=r/w@sha256:{'1' * 64}"]
    out = tmp_path / "a job; true"
    result = run(tmp_path, monkeypatch, PASSED, "--in-cluster", *images, f"--out={out}")
    assert shlex.split(result.output)[-1] == str(out / "verify-job.yaml")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--in-cluster", "--compare=old.yaml"], "--in-cluster takes no file"),
        (["--runner-image=x"], "--runner-image needs --in-cluster"),
        (["--in-cluster"], "--runner-image is needed: the stack file has no plugin.image"),
    ],
)
@pytest.mark.usefixtures("cluster")
def test_refuses_what_a_job_cannot_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], words: str
) -> None:
    result = run(tmp_path, monkeypatch, PASSED, *options)
    assert (result.exit_code, words in result.output) == (1, True), result.output
