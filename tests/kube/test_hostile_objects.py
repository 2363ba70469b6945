"""Every read of lists and watches, with objects among them that cannot be read."""

from __future__ import annotations

import ast
import json
import os
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import aclosing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from conformance.cluster.api import Api as SuiteApi
from divvy.agent.api_server.claims_api import ClaimsApi
from divvy.agent.api_server.client import ApiServer
from divvy.claim_templates.client import Api as MakerApi
from divvy.cli.cluster_survey import survey
from divvy.cli.deploy import _Run
from divvy.cli.main import app
from divvy.cli.node_wait import wait_advertised
from divvy.deploy.changes import ObjectName
from divvy.deploy.claims_checks import check_claims, check_held, warn_of_lost_classes
from divvy.deploy.clean_up import CleanUp, clean_nodes
from divvy.deploy.enforcement_check import warn_of_weaker_rungs
from divvy.deploy.namespace import ReleaseNamespace
from divvy.deploy.platform_check import check_platforms
from divvy.deploy.waiting import Waiting
from divvy.errors import CommandError
from divvy.kube import kind
from divvy.kube.client import Client
from divvy.kube.errors import Unreachable
from divvy.kube.kubeconfig import cluster_config
from divvy.live.cluster_reader import reading
from divvy.stack.file import read_path
from divvy.stack.sections import read_cluster
from lab.fakes.scene import running, until
from tests.kube.hostile_server import DEEP, KINDS, LARGE, ODD, HostileServer, hostile_server
from tests.plan.claimed import claim, slices

ROOT = Path(__file__).parents[2]
STACK = """\
config:
  divvy:cluster:
    profiles:
      whole: {}
      shared: {claims: {shares: {}}}
      limited:
        timeSlicing: {replicas: 4, memoryLimit: {limit: auto, action: prevent, enforcement: auto}}
    pools:
      training:
        select: {pool: training}
        hardware: {model: A100-SXM4-40GB, gpus: 2, count: 1}
        profile: shared
      old:
        select: {pool: old}
        hardware: {model: A100-SXM4-40GB, gpus: 2, count: 1}
        profile: whole
"""
GPU = "nvidia.com/gpu"


def node(name: str, pool: str) -> dict[str, Any]:
    status = {"state": "Ready", "reason": "", "gpus": [], "time": "2026-11-23T03:00:00Z"}
    return {
        "metadata": {
            "name": name,
            "labels": {"pool": pool},
            "annotations": {"divvy.gpu/status": json.dumps(status)},
            "resourceVersion": "5",
        },
        "spec": {"taints": []},
        "status": {
            "allocatable": {
                GPU: "2" if pool == "old" else "0",
                "cpu": "8",
                "memory": "9Gi",
                "pods": "9",
            },
            "capacity": {GPU: "2"},
            "conditions": [{"type": "Ready", "status": "True"}],
            "nodeInfo": {"architecture": "amd64"},
        },
    }


def sound() -> dict[str, list[dict[str, Any]]]:
    """Return what a small cluster has."""

    def named(name: str, namespace: str = "", **rest: Any) -> dict[str, Any]:
        metadata = {"name": name, "resourceVersion": "5", "uid": f"uid-{name}", "labels": {}}
        return {"metadata": {**metadata, **({"namespace": namespace} if namespace else {})}, **rest}

    limits = {"limits": {GPU: "1"}, "requests": {GPU: "1"}}
    waiting = {"containers": [{"name": "main", "resources": limits}], "priority": 0}
    template = {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"count": 1}}]}}}
    by_size = [{"name": "g", "resourceClaimTemplateName": "divvy-1x10m"}]
    workload = {"template": {"spec": {"containers": [{"name": "c", "image": "i", "args": ["a"]}]}}}
    held = claim("a", "n1", "gpu-n1-0-share", "3000Mi", "30", pod="train")
    held["metadata"]["resourceVersion"] = "5"
    return {
        "nodes": [node("n1", "training"), node("n2", "old")],
        "pods": [
            named("waits", "team", spec=waiting, status={"phase": "Pending", "conditions": []}),
            named(
                "by-size",
                "team",
                spec={"containers": [], "resourceClaims": by_size},
                status={"phase": "Pending"},
            ),
        ],
        "resourceclaims": [held],
        "resourceclaimtemplates": [named("divvy-1x10m", "team", spec=template)],
        "resourceslices": [
            {**item, "metadata": {**item["metadata"], "resourceVersion": "5"}}
            for item in slices("n1", {"shares": {}})
        ],
        "devicetaintrules": [],
        "deviceclasses": [named("divvy-share", spec={"extendedResourceName": "a/b"})],
        "namespaces": [named("team")],
        "priorityclasses": [named("high", value=100, globalDefault=False)],
        "resourcequotas": [named("q", "team", spec={"hard": {"pods": "5"}})],
        "events": [named("e", "team", reason="R", message="m", involvedObject={"name": "waits"})],
        "daemonsets": [named("ds", "team", spec=workload)],
        "deployments": [named("d", "team", spec=workload)],
        "customresourcedefinitions": [named("x.example.com", spec={})],
        "configmaps": [named("cfg", "divvy-system", data={"cluster.json": "{}"})],
        "endpointslices": [named("es", "team", endpoints=[{"addresses": ["10.0.0.1"]}])],
        "leases": [named("l", "team", spec={"holderIdentity": "a"})],
    }  # fmt: skip


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HostileServer]:
    with hostile_server(sound()) as api:
        monkeypatch.setenv("KUBECONFIG", str(api.kubeconfig(tmp_path)))
        (tmp_path / "Pulumi.yaml").write_text("name: x\nruntime: python\n")
        (tmp_path / "Pulumi.prod.yaml").write_text(STACK)
        monkeypatch.chdir(tmp_path)
        yield api


def run(*arguments: str, codes: tuple[int, ...] = (0, 2)) -> tuple[str, str]:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code in codes, (result.output, result.stderr, result.exception)
    assert "cannot be reached" not in result.stderr
    return result.stdout, result.stderr


COMMANDS = {
    "status": ("status", "-s", "prod", "-o", "json"),
    "top": ("top", "-s", "prod", "-o", "json"),
    "why": ("why", "waits", "-n", "team", "-s", "prod"),
    "fit": ("fit", "-s", "prod", "--pending", "--live", "-o", "json"),
    "diff": ("diff", "-s", "prod", "--live", "-o", "json"),
}


def _named(text: str) -> set[str]:
    """Return the nodes and pods that `divvy status -o json` names."""
    lists = [value for value in json.loads(text).values() if isinstance(value, list)]
    lines = [line for lines in lists for line in lines if isinstance(line, dict)]
    return {str(line.get("node") or line.get("pod") or line.get("name")) for line in lines}


@pytest.mark.parametrize("hostility", KINDS)
@pytest.mark.parametrize("command", COMMANDS)
def test_commands_read_the_others(server: HostileServer, command: str, hostility: str) -> None:
    arguments = COMMANDS[command]
    if command == "diff":
        arguments = ("diff", "prod", "--live", "-o", "json")
    before, _ = run(*arguments)
    server.kind = hostility
    after, errors = run(*arguments)
    notes = errors + "".join(json.loads(after).get("notes", ()) if after.startswith("{") else ())
    if hostility == DEEP:
        assert "mallory/deep" in notes, (after, errors)
    elif hostility == ODD:
        assert "odd" in notes
    assert {"nodes", "resourceslices"} <= server.asked
    if command == "status":
        assert _named(after) >= _named(before) > set()


def test_nodes_that_cannot_be_read_differ(server: HostileServer) -> None:
    """A node of a shape to come is not what the plan says, however many others are."""
    cluster = read_cluster(read_path(Path("Pulumi.prod.yaml")))
    for item in server.sound["nodes"]:
        item["status"]["conditions"] = "odd"
    after, _ = run("status", "-s", "prod", "-o", "json", codes=(2,))
    assert {"n1", "n2"} <= _named(after)
    run("diff", "prod", "--live", codes=(2,))
    ended = wait_advertised(cluster, "prod", print)
    assert ended.differs
    assert "n1" in ended.words


@pytest.mark.parametrize("hostility", KINDS)
def test_checks_before_a_run_read_the_others(
    server: HostileServer, hostility: str, capsys: pytest.CaptureFixture[str]
) -> None:
    server.kind = hostility
    cluster = read_cluster(read_path(Path("Pulumi.prod.yaml")))
    check_claims(cluster, preview=True)
    check_held(cluster, preview=True)
    nvidias = ObjectName("DeviceClass", "", "gpu.nvidia.com", "resource.k8s.io/v1")
    warn_of_lost_classes(cluster, [nvidias])
    warn_of_weaker_rungs(cluster)
    with Client(cluster_config(None, None, os.environ)) as client:
        check_platforms(client, cluster)
    calls = survey(None, None)
    assert {item["metadata"]["name"] for item in calls.nodes} >= {"n1", "n2"}
    errors = capsys.readouterr().err
    # What an unreadable claim holds is not nothing.
    assert ("of what cannot be read" in errors) == (hostility == ODD)


def test_agents_that_cannot_be_read_may_be_of_another_divvy(
    server: HostileServer, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = read_cluster(read_path(Path("Pulumi.prod.yaml")))
    with Client(cluster_config(None, None, os.environ)) as client:
        run: Any = SimpleNamespace(_client=client, _stack=SimpleNamespace(cluster=cluster))
        server.sound["pods"] = []
        _Run._refuse_nodes_of_others(run)
        assert not capsys.readouterr().err
        server.sound["pods"] = [{"metadata": {"name": "agent", "namespace": "other", "labels": 5}}]
        _Run._refuse_nodes_of_others(run)
    warning = "it is not known whether another Divvy serves these nodes: other/agent cannot be read"
    assert warning in capsys.readouterr().err


@pytest.mark.parametrize("hostility", KINDS)
def test_a_deployment_reads_the_others(server: HostileServer, hostility: str) -> None:
    """The agents of another Divvy are calls beside pods that nobody can read."""
    server.kind = hostility
    agent = {"metadata": {"name": "agent", "namespace": "other"}, "spec": {"nodeName": "n1"}}
    server.sound["pods"].append(agent)
    cluster = read_cluster(read_path(Path("Pulumi.prod.yaml")))
    notes: list[str] = []
    with Client(cluster_config(None, None, os.environ), note=notes.append) as client:
        run: Any = SimpleNamespace(_client=client, _stack=SimpleNamespace(cluster=cluster))
        with pytest.raises(CommandError, match="namespace other"):
            _Run._refuse_nodes_of_others(run)
        waiting: Any = SimpleNamespace(_client=client)
        listed = Waiting._list(waiting, "/api/v1/pods", "a=b")
        assert {"waits", "agent"} <= {pod["metadata"]["name"] for pod in listed}
        clean_up: Any = SimpleNamespace(_client=client, _namespace="team", _unread={})
        assert {"waits"} <= {pod["metadata"]["name"] for pod in CleanUp._pods(clean_up, "a=b")}
        assert bool(clean_up._unread) == (hostility == ODD)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("divvy.deploy.clean_up._clean_node", lambda _, name: name)
            assert {"n1", "n2"} <= set(clean_nodes(client))
        namespace: Any = SimpleNamespace(
            _client=client,
            _name="n",
            await_gone=lambda: None,
            live=lambda: {"metadata": {"labels": {"app.kubernetes.io/name": "divvy"}}},
        )
        if hostility == ODD:
            server.sound["pods"] = []
            # What cannot be read may be anybody's: the namespace stays.
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("divvy.deploy.namespace.is_divvys", lambda _: True)
                assert "stays" in ReleaseNamespace.remove(namespace)
    assert bool(notes) == (hostility != LARGE)


@pytest.mark.parametrize("hostility", KINDS)
def test_the_suite_reads_the_others(server: HostileServer, hostility: str) -> None:
    server.kind = hostility
    notes: list[str] = []
    with Client(cluster_config(None, None, os.environ), note=notes.append) as client:
        api = SuiteApi(client)
        for listed_kind in (
            kind.NODE,
            kind.POD,
            kind.RESOURCE_CLAIM,
            kind.RESOURCE_SLICE,
            kind.LEASE,
        ):
            names = {item["metadata"]["name"] for item in api.find(listed_kind)}
            plural = listed_kind.path("").rpartition("/")[2]
            assert names >= {item["metadata"]["name"] for item in server.sound[plural]}
        seen = [item["metadata"]["name"] for _, item in api.watch(kind.POD, "", "1", 5)]
        assert "by-size" in seen
    assert bool(notes) == (hostility != LARGE)


@pytest.mark.parametrize("hostility", KINDS)
async def test_the_agent_reads_the_others(server: HostileServer, hostility: str) -> None:
    server.kind = hostility
    api = ClaimsApi("n1")
    unread: list[str] = []
    claims = [item["metadata"]["name"] async for item in api.claims(unread.append, 10.0)]
    assert "a" in claims
    assert bool(unread) == (hostility == ODD)
    listed, version = await api.slices(10.0)
    assert {"n1-0"} <= listed.keys()
    assert version == "7"
    events: list[str] = []
    async with aclosing(api.watch_slices("7", lambda: None)) as watch:
        async for _, item in watch:
            events.append(item["metadata"]["name"])
            if events[-1] == "n1-0":
                break
    await api.close()
    link = ApiServer("n1", "divvy-system", "cfg")
    views: list[Any] = []
    configs: list[Any] = []
    async with running(link.watch_node(views.append)), running(link.watch_config(configs.append)):
        await until(lambda: any(view.labels.get("pool") == "old" for view in views))
        await until(lambda: "{}" in configs)
    await link.close()


@pytest.mark.parametrize("hostility", KINDS)
async def test_the_template_maker_reads_the_others(server: HostileServer, hostility: str) -> None:
    server.kind = hostility
    api = MakerApi()
    got: dict[str, Any] = {}

    async def is_unneeded(_: object) -> bool:
        return False

    def keep(what: str) -> Callable[[Any], None]:
        return lambda entries: got.update({what: entries})

    def change(*_: object) -> None:
        pass

    async with (
        running(api.watch_pods(keep("pods"), change)),
        running(api.watch_templates(keep("templates"), change, is_unneeded)),
        running(api.watch_slices(keep("slices"), change)),
    ):
        await until(lambda: api.in_touch, 20)
        assert {item.name for keys in got["pods"].values() for item in keys} == {"divvy-1x10m"}
        assert "divvy-1x10m" in {item.name for item in got["templates"]}
        assert got["slices"]["n1-0"]
    assert [uid async for uid, named in api.pods_of("team") if named][-1:]
    await api.close()


def _large(resource: str) -> dict[str, Any]:
    """Return an object of a tenant's as large as etcd takes, in what no decision reads."""
    small = [{"name": "a", "value": "b"}] * 10_000
    large = json.loads(json.dumps(sound()[resource][0]))
    large["metadata"]["managedFields"] = small
    if resource == "pods":
        large["spec"]["containers"] = [{"name": "c", "env": small, "args": ["x"] * 10_000}]
        large["spec"]["hostAliases"] = small
    large["metadata"]["annotations"] = {"example.com/x": "x" * 200_000}
    return large


@pytest.mark.parametrize("resource", ["pods", "resourceclaims", "events", "namespaces"])
def test_commands_keep_little_of_large_objects(server: HostileServer, resource: str) -> None:
    large = _large(resource)
    size = len(json.dumps(large))
    server.made[resource] = [json.dumps(large).encode()] * 20
    with reading(None, None) as reader:
        tracemalloc.start()
        kept = list(reader.paged(f"/api/v1/{resource}"))
        now, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert len(kept) == 20
    assert now < 20 * size / 10
    assert peak < 300 << 20


# Each call of a reader, by file: who adds one runs it above against hostile objects.
READS = {
    "conformance/cluster/api.py": {"pages", "watch"},
    "conformance/cluster/pod_watch.py": {"watch"},
    "divvy/agent/api_server/claims_api.py": {"pages", "watch"},
    "divvy/agent/api_server/client.py": {"watch"},
    "divvy/claim_templates/client.py": {"pages", "watch"},
    "divvy/deploy/claims_checks.py": {"listed", "paged"},
    "divvy/live/cluster_reader.py": {"pages", "paged"},
    "divvy/cli/cluster_survey.py": {"paged"},
    "divvy/cli/deploy.py": {"pages"},
    "divvy/live/fit_reader.py": {"listed", "paged"},
    "divvy/live/advertised.py": {"paged"},
    "divvy/live/node_moves_reader.py": {"paged"},
    "divvy/deploy/platform_check.py": {"pages"},
    "divvy/deploy/enforcement_check.py": {"paged"},
    "divvy/cli/status.py": {"paged"},
    "divvy/live/taint_rules.py": {"paged"},
    "divvy/live/usage_reader.py": {"paged"},
    "divvy/cli/why.py": {"listed"},
    "divvy/deploy/clean_up.py": {"pages"},
    "divvy/deploy/namespace.py": {"pages"},
    "divvy/deploy/release_records.py": {"pages"},
    "divvy/deploy/waiting.py": {"pages"},
}
_READERS = {"pages", "watch", "paged", "listed"}


def _calls(path: Path) -> Iterator[str]:
    for call in ast.walk(ast.parse(path.read_text())):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
            yield call.func.attr


def test_every_read_is_in_the_list() -> None:
    reads: dict[str, set[str]] = {}
    for root in ("divvy", "conformance", "components"):
        for path in (ROOT / root).rglob("*.py"):
            name = str(path.relative_to(ROOT))
            # Other things are listed elsewhere, too.
            rooms = ("divvy/cli", "divvy/deploy", "divvy/live")
            names = _READERS if name.startswith(rooms) else _READERS - {"listed"}
            if calls := names & set(_calls(path)):
                reads[name] = calls
    assert reads == READS


def test_one_place_decodes_what_the_api_server_answers() -> None:
    for name in ("client.py", "async_client.py"):
        assert "loads" not in set(_calls(ROOT / "divvy/kube" / name))


async def test_a_list_that_begins_again_and_again_ends(server: HostileServer) -> None:
    server.same_page = True
    client = Client(cluster_config(None, None, os.environ))
    with client, pytest.raises(Unreachable, match="again and again"):
        list(client.pages("/api/v1/nodes"))
    api = ClaimsApi("n1")
    with pytest.raises(Unreachable, match="again and again"):
        await api.slices(10.0)
    await api.close()
