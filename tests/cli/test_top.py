"""divvy top against an API server of a test, and on the lab."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner

import divvy.cli.top
from conformance.image import build_and_push
from divvy.cli.main import app
from divvy.live.agent_metrics import samples_of
from divvy.model.api_names import CLAIMS_DRIVER
from lab.cluster.paths import REPOSITORY
from tests.agent.tenants import pod as tenant
from tests.agent.tenants import run as start
from tests.cli.cluster_api import ClusterApi
from tests.deployment import Deployment
from tests.limited_shares import limited_shares
from tests.live.used import raw_gpu, raw_node, raw_pod
from tests.plan.claimed import slices

GPU = "nvidia.com/gpu"
_CLAIMS = "/apis/resource.k8s.io/v1"
STACK = """\
config:
  divvy:cluster:
    profiles: {whole: {}}
    pools: {all: {profile: whole}}
"""
METRICS = """\
# HELP divvy_devices Devices offered, by health.
# TYPE divvy_devices gauge
divvy_devices{{healthy="true",mode="whole",node="{node}",resource="nvidia.com/gpu"}} 2.0
# TYPE divvy_gpu_state gauge
divvy_gpu_state{{gpu="0",node="{node}",state="Ready",uuid="GPU-{node}-0"}} 1.0
DCGM_FI_DEV_FB_USED{{UUID="GPU-{node}-0",gpu="0",modelName="NVIDIA A100-SXM4-40GB"}} 1500.0
DCGM_FI_DEV_GPU_UTIL{{UUID="GPU-{node}-0",gpu="0",modelName="NVIDIA A100-SXM4-40GB"}} 40.0
divvy_device_held{{container="main",device="GPU-{node}-0",gpu="GPU-{node}-0",mode="whole",\
namespace="team",node="{node}",pod="train",resource="nvidia.com/gpu",uuid="GPU-{node}-0"}} 1.0
"""


def forbidden(what: str) -> httpx2.Response:
    return httpx2.Response(403, json={"message": f"{what} is forbidden"})


def timed_out() -> httpx2.Response:
    raise httpx2.ConnectTimeout("timed out")


class Api(ClusterApi):
    """A cluster whose agents answer with their metrics."""

    def __init__(self, nodes: int = 1) -> None:
        super().__init__()
        names = [f"n{number}" for number in range(nodes)]
        offered = [raw_node(name, [raw_gpu(name, 0, GPU)], {GPU: "1"}) for name in names]
        self.lists = {
            "/api/v1/nodes": offered,
            "/api/v1/pods": [raw_pod("train", "n0", {GPU: "1"}), raw_pod("w", None, {GPU: "1"})],
            "/api/v1/namespaces/divvy-system/pods": [
                {"metadata": {"name": f"agent-{name}"}, "spec": {"nodeName": name}}
                for name in names
            ],
        }
        for name, node in zip(names, offered, strict=True):
            self.lists[f"/api/v1/nodes/{name}"] = lambda node=node: httpx2.Response(200, json=node)
            self.lists[self.metrics(name)] = lambda name=name: httpx2.Response(
                200, text=METRICS.format(node=name)
            )

    @staticmethod
    def metrics(name: str) -> str:
        return f"/api/v1/namespaces/divvy-system/pods/agent-{name}:9410/proxy/metrics"


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Api:
    """Give the API server that `divvy top` asks, in a project with one stack."""
    return serving(Api(), tmp_path, monkeypatch)


def serving(api: Api, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Api:
    (folder / "Pulumi.yaml").write_text("name: x\nruntime: python\n")
    (folder / "Pulumi.a.yaml").write_text(STACK)
    monkeypatch.chdir(folder)
    api.serve(monkeypatch, divvy.cli.top)
    return api


def top(*arguments: str, expect: int = 0) -> str:
    result = CliRunner().invoke(app, ["top", "-s", "a", *arguments])
    assert result.exit_code == expect, result.output
    return result.stdout if expect == 0 else result.stderr


def nodes_of(*arguments: str) -> list[dict[str, Any]]:
    return list(json.loads(top("-o", "json", *arguments))["nodes"])


@pytest.mark.usefixtures("api")
def test_prints_once_without_a_terminal() -> None:
    text = top()
    assert "team/train main" in text
    assert "1,500 of 40,960 MiB  util  40 %" in text
    assert "team/w" in text
    assert "team/train main" in top("--once")


@pytest.mark.usefixtures("api")
def test_writes_json_and_html_to_stdout_and_files(tmp_path: Path) -> None:
    (node,) = nodes_of()
    assert node["gpus"][0]["holders"][0]["pod"] == "train"
    assert top("-o", "html").startswith("<!doctype html>")
    top("-o", "json", "--out", "out.json")
    assert json.loads((tmp_path / "out.json").read_text())["cluster"] == "a"


@pytest.mark.usefixtures("api")
def test_adds_each_look_to_a_recording(tmp_path: Path) -> None:
    text = top("--record", "week.jsonl")
    assert "team/train main" in text
    top("--once", "--record", "week.jsonl")
    head, pod = map(json.loads, (tmp_path / "week.jsonl").read_text().splitlines())
    assert head["cluster"] == "a"
    assert list(head["waiting"]) == ["team/w"]
    assert (pod["pod"], pod["kind"], pod["peakMiB"]) == ("train", "whole", 1500)
    assert (pod["p95Cores"], sum(pod["coresSeen"]), pod["end"]) == (45, 2, None)
    words = "--record records the whole cluster: leave out --node, --pod and -n"
    assert words in top("--record", "week.jsonl", "-n", "team", expect=1)


def test_reads_only_the_selected_node(api: Api) -> None:
    assert [node["node"] for node in nodes_of("--node", "n0")] == ["n0"]
    assert any("spec.nodeName%3Dn0" in url for url in api.asked)
    assert not any(re.search(r"/nodes(\?|$)", url) for url in api.asked)


@pytest.mark.usefixtures("api")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--node", "x"), "the cluster has no node x"),
        (("--node", "../pods"), "the cluster has no node ../pods"),
        (("--pod", "x"), "no pod x holds a GPU or waits for one"),
        (("--pod", "w", "--node", "n0"), "no pod w holds a GPU or waits for one on node n0"),
        (("-o", "md"), "Invalid value for '-o' / '--output'"),
        (("--sort", "size"), "Invalid value for '--sort'"),
        (("-s", "nope"), "does not exist; known: a"),
    ],
)
def test_reports_each_mistake_in_one_sentence(arguments: tuple[str, ...], words: str) -> None:
    error = top(*arguments, expect=1)
    assert error.startswith("error: ")
    assert words in error


def test_refuses_a_node_without_gpus(api: Api) -> None:
    api.lists["/api/v1/nodes/cpu"] = lambda: httpx2.Response(200, json=raw_node("cpu"))
    assert "node cpu has no GPUs" in top("--node", "cpu", expect=1)


def test_asks_one_agent_without_the_right_to_metrics_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = serving(Api(nodes=3), tmp_path, monkeypatch)
    for name in ("n0", "n1", "n2"):
        api.lists[api.metrics(name)] = lambda: forbidden("pods/proxy")
    document = json.loads(top("-o", "json"))
    assert document["notes"] == ["GPU usage is not shown: pods/proxy is forbidden"]
    node = document["nodes"][0]
    assert node["unknown"] == "this user may not read its agent's metrics"
    assert [pod["pod"] for pod in node["unplaced"]] == ["train"]
    assert sum("/proxy/" in url for url in api.asked) == 1


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (timed_out, "does not answer: timed out"),
        (
            lambda: httpx2.Response(503, json={"message": "connection refused"}),
            "does not answer: connection refused",
        ),
        (lambda: httpx2.Response(200, text='divvy_devices{a="} x'), "not a page of metrics"),
    ],
)
def test_reports_only_the_node_of_a_silent_agent_as_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: Any, words: str
) -> None:
    api = serving(Api(nodes=2), tmp_path, monkeypatch)
    api.lists[api.metrics("n0")] = answer
    first, second = nodes_of()
    assert words in first["unknown"]
    assert (first["gpus"][0]["memoryUsedMiB"], second["gpus"][0]["memoryUsedMiB"]) == (None, 1500)
    assert second["unknown"] == ""


def test_shows_no_number_for_unknown_values_without_the_right_to_pods(api: Api) -> None:
    api.lists["/api/v1/pods"] = lambda: forbidden("pods")
    document = json.loads(top("-o", "json"))
    assert document["notes"] == ["what pods ask for is not shown without -n: pods is forbidden"]
    assert document["nodes"][0]["resources"][GPU]["requested"] is None
    # The agent still tells who holds what.
    assert document["nodes"][0]["gpus"][0]["holders"][0]["pod"] == "train"
    api.lists["/api/v1/namespaces/team/pods"] = [raw_pod("train", "n0", {GPU: "1"})]
    document = json.loads(top("-o", "json", "-n", "team"))
    assert document["notes"] == []
    assert document["nodes"][0]["gpus"][0]["holders"][0]["created"] == "2026-01-01T12:00:00Z"


def test_works_without_the_right_to_list_agents_or_claims(api: Api) -> None:
    api.lists["/api/v1/namespaces/divvy-system/pods"] = lambda: forbidden("pods")
    api.lists["/apis/resource.k8s.io/v1/resourceclaims"] = lambda: forbidden("resourceclaims")
    document = json.loads(top("-o", "json"))
    # This stack has no claims: that they may not be read is no news.
    assert document["notes"] == ["GPU usage is not shown: pods is forbidden"]
    assert document["nodes"][0]["unknown"] == "this user may not list the agents"


def test_counts_no_gpu_as_free_that_an_administrator_has_tainted(api: Api) -> None:
    api.lists[f"{_CLAIMS}/resourceslices"] = slices("n0", {}, gpus=1)
    assert nodes_of()[0]["gpus"][0]["free"] == {"whole (claims)": 1}
    taint = {"key": "example.com/repair", "effect": "NoSchedule"}
    rule = {
        "metadata": {"name": "r"},
        "spec": {"deviceSelector": {"pool": "n0/divvy"}, "taint": taint},
    }
    api.lists[f"{_CLAIMS}/devicetaintrules"] = [rule]
    assert nodes_of()[0]["gpus"][0]["free"] == {}


@pytest.mark.parametrize(
    ("driver", "resources", "notes"),
    [
        (CLAIMS_DRIVER, ["resourceslices"], []),
        ("nic.example.com", ["resourceslices", "devicetaintrules"], []),
        (
            CLAIMS_DRIVER,
            ["resourceslices", "devicetaintrules"],
            ["what DeviceTaintRules keep from pods is not shown: devicetaintrules is forbidden"],
        ),
    ],
)
def test_misses_the_right_to_taint_rules_only_where_there_are_some(
    driver: str, resources: list[str], notes: list[str], api: Api
) -> None:
    """Whoever lacks a right is refused also what the cluster does not have."""
    listed = slices("n0", {}, gpus=1)
    for resource_slice in listed:
        resource_slice["spec"]["driver"] = driver
    api.lists[f"{_CLAIMS}/resourceslices"] = listed
    api.lists[f"{_CLAIMS}/devicetaintrules"] = lambda: forbidden("devicetaintrules")
    known = {"resources": [{"name": name} for name in resources]}
    api.lists[_CLAIMS] = lambda: httpx2.Response(200, json=known)
    assert json.loads(top("-o", "json"))["notes"] == notes


def test_fails_without_the_right_to_nodes(api: Api) -> None:
    api.lists["/api/v1/nodes"] = lambda: forbidden("nodes")
    assert top(expect=1) == "error: this user may not read /api/v1/nodes: nodes is forbidden\n"


def test_reads_lists_page_by_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    api = serving(Api(nodes=501), tmp_path, monkeypatch)
    assert len(nodes_of()) == 501
    assert sum("/api/v1/nodes?" in url for url in api.asked) == 2
    assert sum("/proxy/" in url for url in api.asked) == 501


def test_exits_130_on_an_interrupt(api: Api) -> None:
    def interrupted() -> httpx2.Response:
        raise KeyboardInterrupt

    api.lists["/api/v1/nodes"] = interrupted
    assert top(expect=130) == ""


def test_reads_the_agents_page_without_dashboard_metrics() -> None:
    names = {sample.name for sample in samples_of(METRICS.format(node="n"))}
    assert "divvy_device_held" in names
    assert "divvy_gpu_state" not in names
    assert samples_of("") == ()


@pytest.mark.parametrize(
    "line",
    [
        'divvy_device_held{pod="a",uuid="GPU-1"} 1.0',
        'divvy_device_held{pod="a\\\\\\"b\\n,c=\\"d",uuid="GPU-1"} 1.0',
        'divvy_device_held{pod="}, x=",uuid="GPU-1"} 1.5e+03',
        'divvy_device_held{pod="a",uuid="GPU-1"} 1.0 1700000000000',
        'divvy_device_held{pod="a",} NaN',
        "divvy_device_held 1",
    ],
)
def test_reads_samples_like_the_prometheus_parser(line: str) -> None:
    (family,) = text_string_to_metric_families(line + "\n")
    (expected,), (sample,) = family.samples, samples_of(line)
    assert (sample.name, sample.labels) == (expected.name, expected.labels)
    assert repr(sample.value) == repr(float(expected.value))


def test_installs_as_a_kubectl_plugin() -> None:
    scripts = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts["kubectl-divvy"] == scripts["divvy"]


@pytest.mark.lab
@pytest.mark.timeout(300)
def test_shows_a_pods_memory_beside_it(deployed: Deployment) -> None:
    image = build_and_push(deployed.registry, deployed.base_image, insecure=True)

    def holders(namespace: str) -> dict[str, dict[str, Any]]:
        document = json.loads(deployed.divvy("top", "-s", "lab", "-o", "json", "-n", namespace))
        return {
            holder["pod"]: {**holder, "node": node["node"], "gpu": gpu}
            for node in document["nodes"]
            for gpu in node["gpus"]
            for holder in gpu["holders"]
        }

    with limited_shares(deployed, "notebooks"), deployed.lab.namespace() as namespace:
        for name, resource, mib, node in (
            ("own", "nvidia.com/mig-3g.20gb", 4000, "gpu-a100"),
            ("limited", "nvidia.com/gpu.shared", 2000, "gpu-t4"),
        ):
            manifest = tenant(name, resource, f"mem-hog --mib {mib} --hold 300", node)
            manifest["spec"]["containers"][0]["image"] = image
            start(deployed, namespace, manifest)

        def both_hold() -> bool:
            pods = holders(namespace)
            return all(
                (pods.get(name, {}).get("memoryUsedMiB") or 0) >= mib
                for name, mib in (("own", 4000), ("limited", 2000))
            )

        deployed.until(both_hold, 120)
        pods = holders(namespace)
        own, limited = pods["own"], pods["limited"]
        assert (own["node"], own["device"], own["container"]) == ("gpu-a100", "3g.20gb", "main")
        assert own["memoryLimitMiB"] > 19000
        assert own["gpu"]["memoryUsedMiB"] >= 4000
        assert own["gpu"]["memoryTotalMiB"] == 40960
        assert (limited["node"], limited["device"]) == ("gpu-t4", "share")
        assert limited["memoryLimitMiB"] == 3000
        assert own["state"] == "Running"
        text = deployed.divvy("top", "-s", "lab", "--node", "gpu-t4", "--pod", "limited")
        assert f"{namespace}/limited" in text
        assert "of 3,000 MiB" in text
