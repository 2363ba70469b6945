"""Options of a run that contradict each other: each gets an error before anything is checked."""

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from conformance import conftest
from conformance.cluster.cluster_under_test import CLUSTER
from conformance.cluster.node_life import NodeLife
from conformance.implementation import DIVVY, NVIDIA_DEVICE_PLUGIN, Implementation
from conformance.report.report import Report
from conformance.skips import CheckSkipped
from divvy.cli.main import app
from divvy.kube.errors import KubeconfigError, Unreachable
from divvy.kube.kind import LEASE
from tests.conformance.fake_api import refusal
from tests.conformance.promised_nodes import CLUSTER as STACK
from tests.conformance.promised_nodes import live, promised


@pytest.mark.parametrize("selected", ["ISO-01,WOKR", "ISO-01,", ",", "ISO-1x", ""])
def test_refuses_a_selection_that_names_no_check(selected: str, tmp_path: Path) -> None:
    for name in ("report.yaml", "report.html", "junit.xml", "ctrf.json", "notes.txt"):
        (tmp_path / name).write_text("of another run")
    options = ["verify", "--bare", f"--select={selected}", f"--out={tmp_path}"]
    result = CliRunner().invoke(app, options)
    assert result.exit_code == 1
    assert "where ids of checks are expected, such as PLUG-02" in result.stderr
    # What a run before has written is not taken for what came of this one.
    assert [file.name for file in tmp_path.iterdir()] == ["notes.txt"]


def test_refuses_a_file_as_the_folder_for_reports(tmp_path: Path) -> None:
    file = tmp_path / "report"
    file.write_text("kept")
    result = CliRunner().invoke(app, ["verify", "--bare", f"--out={file}"])
    assert result.exit_code == 1
    assert f"--out={file} cannot be written to: " in result.output
    assert file.read_text() == "kept"


@pytest.mark.parametrize(
    ("status", "written"),
    [
        (pytest.ExitCode.OK, True),
        (pytest.ExitCode.TESTS_FAILED, True),
        (pytest.ExitCode.NO_TESTS_COLLECTED, True),
        (pytest.ExitCode.INTERRUPTED, False),
        (pytest.ExitCode.INTERNAL_ERROR, False),
        (pytest.ExitCode.USAGE_ERROR, False),
    ],
)
def test_writes_no_report_of_a_run_that_ended_early(
    tmp_path: Path, status: int, written: bool
) -> None:
    stash: Any = pytest.Stash()
    stash[conftest._REPORT] = Report({"stack": "s", "image": "", "nodes": []})
    options = {"--divvy-report": str(tmp_path)}
    session: Any = SimpleNamespace(config=SimpleNamespace(stash=stash, getoption=options.get))
    conftest.pytest_sessionfinish(session, status)
    assert (tmp_path / "report.yaml").exists() == written


@pytest.mark.parametrize("implementation", [DIVVY, NVIDIA_DEVICE_PLUGIN])
def test_notes_no_success_of_another_implementation(
    implementation: Implementation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Divvy's agent would serve it as its node's."""
    noted: list[Any] = []
    monkeypatch.setattr(conftest, "note_success", lambda *arguments: noted.append(arguments))
    target = {"stack": "s", "image": "", "nodes": []}
    stash: Any = pytest.Stash()
    stash[conftest._REPORT] = Report(target)
    stash[CLUSTER] = SimpleNamespace(
        api=SimpleNamespace(requests={}), implementation=implementation, describe=lambda: target
    )  # type: ignore[assignment]
    session: Any = SimpleNamespace(config=SimpleNamespace(stash=stash, getoption=lambda _: None))
    conftest.pytest_sessionfinish(session, pytest.ExitCode.OK)
    assert bool(noted) is implementation.is_divvy


def test_says_what_could_not_be_removed(capsys: pytest.CaptureFixture[str]) -> None:
    mark = SimpleNamespace(args=[conftest.CATALOGUE["DISR-03"]])
    item: Any = SimpleNamespace(get_closest_marker=lambda _: mark)
    call: Any = SimpleNamespace(excinfo=SimpleNamespace(value=refusal(403, "pods is forbidden")))
    hook = conftest.pytest_runtest_makereport(item, call)
    next(hook)
    with pytest.raises(StopIteration):
        hook.send(SimpleNamespace(when="teardown", failed=True, passed=False))
    assert capsys.readouterr().err == (
        "  what DISR-03 needed could not be removed: pods is forbidden; the next run removes it\n"
    )


def test_begins_no_check_after_the_time_limit() -> None:
    stash: Any = pytest.Stash()
    item: Any = SimpleNamespace(config=SimpleNamespace(stash=stash))
    conftest.pytest_runtest_setup(item)
    stash[conftest._DEADLINE] = 0.0
    with pytest.raises(CheckSkipped, match="the time limit of the run was over"):
        conftest.pytest_runtest_setup(item)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--changed"], "--changed needs --compare"),
        (["--seed=x"], "--seed needs --sample"),
        (["--bare", "--sample=1"], "--sample is for a cluster"),
        (["--bare", "--target=nvidia-device-plugin"], "--target is for a cluster"),
        (["--bare", "--pool=p"], "--pool is for a cluster"),
        (["--bare", "--disruptive", "--no-exec"], "--disruptive and --no-exec are for a cluster"),
        (["--bare", "--gpu-burn-image=x"], "--gpu-burn-image is for a cluster"),
    ],
)
def test_refuses_options_that_mean_nothing_alone(options: list[str], words: str) -> None:
    result = CliRunner().invoke(app, ["verify", *options])
    assert result.exit_code == 1
    assert words in result.stderr


READY = {"conditions": [{"type": "Ready", "status": "True"}]}


class Leaving:
    """An API server whose node leaves."""

    def __init__(self, node: Any) -> None:
        self.node = node

    def get(self, kind: Any, _name: str, _namespace: str | None = None) -> Any:
        if kind is LEASE:
            raise refusal(403, "no such right")
        if isinstance(self.node, Exception):
            raise self.node
        return self.node


@pytest.mark.parametrize(
    ("node", "left"),
    [
        (refusal(404, "not found"), True),
        ({"metadata": {"name": "n1", "deletionTimestamp": "now"}}, True),
        ({"metadata": {"name": "n1"}, "status": READY}, False),
        (refusal(500, "etcd"), False),
    ],
)
def test_judges_nothing_by_failures_on_a_node_that_left(node: Any, left: bool) -> None:
    (promise,) = promised(STACK, live("n1"))
    stash: Any = pytest.Stash()
    known: dict[str, str] = {}
    stash[CLUSTER] = SimpleNamespace(gone=known)
    stash[conftest._LIFE] = NodeLife(Leaving(node))  # type: ignore[arg-type]
    params = {"node": promise}
    item: Any = SimpleNamespace(
        config=SimpleNamespace(stash=stash), callspec=SimpleNamespace(params=params), stash=stash,
        get_closest_marker=lambda _: None,
    )  # fmt: skip
    outcome = SimpleNamespace(passed=False, failed=True, skipped=False)
    call: Any = SimpleNamespace(excinfo=SimpleNamespace(value=AssertionError("no pod")))
    check = next(iter(conftest.CATALOGUE.values()))
    result = conftest._what_came(item, check, outcome, call)
    gone = ("skipped", "n1 has left the cluster during the run", "not made")
    assert result == (gone if left else ("failed", "no pod", None))
    assert known == ({"n1": gone[1]} if left else {})
    # What comes after it is not tried at all.
    with pytest.raises(CheckSkipped, match="has left") if left else nullcontext():
        conftest.pytest_runtest_setup(item)


@pytest.mark.parametrize(
    ("problem", "status"),
    [
        (Unreachable("connection refused"), "skipped"),
        (refusal(503, "the server is starting"), "skipped"),
        (refusal(401, "Unauthorized"), "skipped"),
        (KubeconfigError("the credential plugin failed"), "skipped"),
        (refusal(404, "not found"), "failed"),
        (AssertionError("no GPU"), "failed"),
    ],
)
def test_judges_nothing_by_an_api_server_that_does_not_answer(
    problem: Exception, status: str
) -> None:
    item: Any = SimpleNamespace()
    outcome = SimpleNamespace(passed=False, failed=True, skipped=False)
    call: Any = SimpleNamespace(excinfo=SimpleNamespace(value=problem))
    check = next(iter(conftest.CATALOGUE.values()))
    seen = conftest._what_came(item, check, outcome, call)
    assert (seen[0], seen[2]) == (status, "not made" if status == "skipped" else None)
    assert str(problem) in seen[1]
