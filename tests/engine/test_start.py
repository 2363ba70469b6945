"""What a run does early, late or not at all, so that it is over soon."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import yaml

from divvy.engine.errors import EngineError, StateProblem, StepFailed
from divvy.engine.goal import Goal
from divvy.engine.operations import Target, preview
from divvy.engine.packages import DynamicPackage, KubernetesPackage
from divvy.engine.program import Program
from divvy.engine.providers import ProviderPackage, Providers
from divvy.engine.state.resource import ResourceState
from divvy.engine.urn import PROVIDER_PREFIX, make_urn
from divvy.engine.watcher import Summary, Watcher
from divvy.stack.project import find_project

PROJECT = "name: trial\nruntime: python\n"


class Listener(Watcher):
    """A watcher that keeps what is said."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, str]] = []

    def message(self, severity: str, text: str, urn: str) -> None:
        self.heard.append((severity, text))


def previewed(folder: Path, program: str) -> tuple[Summary, list[tuple[str, str]]]:
    """Preview a program; return how it ended and what it said."""
    (folder / "Pulumi.yaml").write_text(PROJECT)
    (folder / "Pulumi.dev.yaml").write_text("config: {}\n")
    (folder / "__main__.py").write_text(program)
    project = find_project(folder)
    listener = Listener()
    process = Program(project)
    try:
        summary = preview(Target(project, "dev"), listener, process)
    finally:
        process.close()
    return summary, listener.heard


@pytest.mark.parametrize(
    ("loaded", "unwanted"),
    [
        ("divvy.cli.main", {"pydantic", "grpc", "yaml", "httpx2", "pulumi", "rich.console"}),
        ("divvy.engine.operations", {"pulumi", "pulumi.runtime", "httpx2", "pydantic"}),
        ("divvy.engine.program", {"grpc", "google.protobuf", "pulumi"}),
    ],
)
def test_loads_only_what_a_module_needs_at_once(loaded: str, unwanted: set[str]) -> None:
    look = f"import sys, {loaded}; print(*sys.modules)"
    modules = subprocess.run(
        [sys.executable, "-c", look], capture_output=True, text=True, check=True
    ).stdout.split()
    assert loaded in modules
    assert not unwanted & set(modules)


def test_passes_on_all_messages_but_debug(tmp_path: Path) -> None:
    summary, heard = previewed(
        tmp_path,
        "import pulumi\n"
        "pulumi.log.debug('quiet')\n"
        "pulumi.log.info('news')\n"
        "pulumi.log.warn('careful')\n"
        "print('plain')\n",
    )
    assert not summary.failures
    assert {("info", "news"), ("warning", "careful"), ("info", "plain")} <= set(heard)
    assert not [text for severity, text in heard if severity == "debug" or "quiet" in text]


def test_does_not_call_an_interrupt_a_failure_of_the_program(tmp_path: Path) -> None:
    summary, heard = previewed(tmp_path, "print('begun')\nraise KeyboardInterrupt\n")
    assert summary.failures == {"program": "the program ended with exit code 1"}
    assert [text for _, text in heard if text] == ["begun"]


@pytest.fixture
def api_server() -> Iterator[tuple[str, list[str], threading.Event]]:
    """Serve as an API server that notes what it is asked."""
    paths: list[str] = []
    greeted = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            paths.append(self.path)
            self.send_response(200)
            body = b'{"metadata": {"uid": "1"}}'
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            greeted.set()

        def log_message(self, *arguments: object) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", paths, greeted
    server.shutdown()
    thread.join()
    server.server_close()


def providers_knowing(folder: Path, kind: str, inputs: dict[str, object]) -> tuple[Providers, str]:
    """Return providers that know one of the state, and its reference."""
    packages: dict[str, ProviderPackage] = {
        "kubernetes": KubernetesPackage("divvy", lambda _urn, _text: None),
        "pulumi-python": DynamicPackage(sys.executable, folder, "trial", lambda _: None),
    }
    providers = Providers("trial", "dev", packages, {})
    urn = make_urn("dev", "trial", "", f"{PROVIDER_PREFIX}{kind}", "p")
    state = ResourceState(urn, f"{PROVIDER_PREFIX}{kind}", custom=True, id="1", inputs=inputs)
    providers.known(state)
    return providers, f"{urn}::1"


def kubeconfig(folder: Path, server: str) -> str:
    """Write a kubeconfig for a server and return its path."""
    path = folder / "kubeconfig"
    names = {"cluster": "c", "user": "u"}
    path.write_text(
        yaml.safe_dump(
            {
                "current-context": "x",
                "contexts": [{"name": "x", "context": names}],
                "clusters": [{"name": "c", "cluster": {"server": server}}],
                "users": [{"name": "u", "user": {}}],
            }
        )
    )
    return str(path)


def test_connects_to_the_states_cluster_before_the_first_step(
    tmp_path: Path, api_server: tuple[str, list[str], threading.Event]
) -> None:
    server, paths, greeted = api_server
    inputs: dict[str, object] = {"kubeconfig": kubeconfig(tmp_path, server)}
    providers, _ = providers_knowing(tmp_path, "kubernetes", inputs)
    providers.warm()
    assert greeted.wait(20)
    providers.close()
    assert paths == ["/api/v1/namespaces/kube-system"]


def test_reports_an_unreachable_cluster_to_the_step_that_needs_it(tmp_path: Path) -> None:
    providers, reference = providers_knowing(
        tmp_path, "kubernetes", {"kubeconfig": str(tmp_path / "absent")}
    )
    providers.warm()
    resource = ResourceState("urn:pulumi:dev::trial::kubernetes:core/v1:ConfigMap::c", "k", True)
    with pytest.raises(EngineError, match="kubeconfig"):
        providers.of(reference).read(resource)
    providers.close()


@pytest.mark.parametrize("seconds", [0.3, 30])
def test_waits_a_moment_for_what_warms_up_when_a_run_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    """A thread in OpenSSL while the process ends would crash it; a silent server holds nobody."""
    monkeypatch.setattr("divvy.engine.providers._WARMING_SECONDS", 1.0)
    providers, reference = providers_knowing(tmp_path, "pulumi-python", {})
    warming, warmed, closed = (threading.Event() for _ in range(3))

    def warm() -> None:
        warming.set()
        if not closed.wait(seconds):
            warmed.set()

    monkeypatch.setattr(providers.of(reference), "warm", warm)
    providers.warm()
    assert warming.wait(20)
    providers.close()
    assert warmed.is_set() is (seconds < 1)
    closed.set()


def test_starts_no_process_of_a_closed_dynamic_provider(tmp_path: Path) -> None:
    providers, reference = providers_knowing(tmp_path, "pulumi-python", {})
    provider = providers.of(reference)
    providers.close()
    with pytest.raises(StepFailed, match="closed"):
        provider.warm()


def test_creates_no_provider_that_comes_too_late(tmp_path: Path) -> None:
    providers, reference = providers_knowing(tmp_path, "pulumi-python", {})
    providers.close()
    with pytest.raises(StepFailed, match="the run is over"):
        providers.of(reference)


def test_records_a_provider_as_the_official_engine_does(tmp_path: Path) -> None:
    # What the program does not give is not taken away: else each engine would update the other's.
    providers, reference = providers_knowing(tmp_path, "pulumi-python", {})
    urn = reference.rpartition("::")[0]
    kind = f"{PROVIDER_PREFIX}pulumi-python"
    internal: dict[str, object] = {"__internal": {"x": "1"}, "version": "1.2.3", "p:a": "b"}
    old = ResourceState(urn, kind, custom=True, id="1", inputs=internal)
    goal = Goal(urn, kind, "p", custom=True, inputs={"p:a": "b"}, version="1.2.3")
    operation, new = providers.registered(goal, old)
    assert (operation, new.inputs, new.id) == ("same", internal, "1")
    providers.close()


@pytest.mark.parametrize("text", ["x", "0", "-1"])
def test_refuses_a_wrong_number_of_parallel_steps_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("PULUMI_PARALLEL", text)
    with pytest.raises(StateProblem, match=f"PULUMI_PARALLEL={text}: write a number of 1 or more"):
        previewed(tmp_path, "")
