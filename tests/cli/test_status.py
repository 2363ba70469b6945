"""divvy status with an API server of a test: faults on call, each found by the first command."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml
from typer.testing import CliRunner

import divvy.cli.status
import divvy.live.advertised
import divvy.live.prometheus
from divvy.cli.main import app
from tests.cli.cluster_api import READY, ClusterApi, write_project

AGENTS = "/api/v1/namespaces/divvy-system/pods"
LONG_AGO = "2026-11-23T03:00:00Z"


class StatusApi(ClusterApi):
    """Two nodes as the stack file says, with their agents."""

    def __init__(self) -> None:
        super().__init__()
        (first,) = self.lists["/api/v1/nodes"]
        second = json.loads(json.dumps(first).replace('"n1"', '"n2"'))
        self.nodes = {"n1": first, "n2": second}
        self.lists["/api/v1/nodes"].append(second)
        for node in self.nodes.values():
            self.say(node, "Ready")
        self.agents = {
            name: {
                "metadata": {"name": f"divvy-agent-{name}"},
                "spec": {"nodeName": name},
                "status": {"phase": "Running", "conditions": [READY]},
            }
            for name in self.nodes
        }

    @staticmethod
    def say(node: dict[str, Any], state: str, reason: str = "", gpu: str = "") -> None:
        """Have a node's agent report a state; ``gpu`` is the reason of GPU 1."""
        gpus = [{"index": index, "uuid": f"GPU-{index}", "state": "Ready"} for index in range(4)]
        if gpu:
            gpus[1] |= {"state": state, "reason": gpu}
        status = {"state": state, "reason": reason, "gpus": gpus, "time": LONG_AGO}
        node["metadata"]["annotations"] = {"divvy.gpu/status": json.dumps(status)}

    def answer(self, request: httpx2.Request) -> httpx2.Response:
        self.lists[AGENTS] = list(self.agents.values())
        return super().answer(request)


@pytest.fixture(autouse=True)
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StatusApi:
    write_project(tmp_path, monkeypatch)
    server = StatusApi()
    server.serve(monkeypatch, divvy.cli.status)
    return server


def status(*arguments: str, expect: int = 2) -> str:
    result = CliRunner().invoke(app, ["status", "-s", "prod", *arguments])
    assert result.exit_code == expect, result.output
    return result.output


def words(text: str) -> str:
    return " ".join(text.split())


def test_reports_in_one_line_that_nothing_is_wrong() -> None:
    assert status(expect=0) == "prod: 2 nodes (2 Ready); nothing to look at\n"


def test_says_once_what_it_has_waited_for(api: StatusApi, monkeypatch: pytest.MonkeyPatch) -> None:
    api.serve(monkeypatch, divvy.live.advertised)
    lose_node(api)
    shown = status("--wait")
    assert shown.startswith("prod and its live nodes: ")
    assert shown.count("the file says 2") == 1


def kill_node(api: StatusApi) -> None:
    condition = {
        "type": "Ready",
        "status": "Unknown",
        "lastTransitionTime": LONG_AGO,
        "reason": "NodeStatusUnknown",
        "message": "Kubelet stopped posting node status.",
    }
    api.nodes["n2"]["status"]["conditions"] = [condition]


def cordon(api: StatusApi) -> None:
    api.nodes["n2"]["spec"]["unschedulable"] = True


def break_image(api: StatusApi) -> None:
    waiting = {"reason": "ImagePullBackOff", "message": "not found"}
    api.agents["n2"]["status"] = {
        "phase": "Pending",
        "containerStatuses": [{"state": {"waiting": waiting}}],
    }


def lose_agent(api: StatusApi) -> None:
    del api.agents["n2"]


def hold(api: StatusApi) -> None:
    reason = "held by team/notebook since 03:00"
    api.say(api.nodes["n2"], "Waiting", "GPU 1 waits", gpu=reason)


def relabel(api: StatusApi) -> None:
    api.nodes["n2"]["metadata"]["labels"]["divvy.gpu/profile"] = "slices"


def take_devices(api: StatusApi) -> None:
    api.nodes["n2"]["status"]["allocatable"]["nvidia.com/gpu"] = "3"


def lose_node(api: StatusApi) -> None:
    api.lists["/api/v1/nodes"].pop()


def starve(api: StatusApi) -> None:
    api.pod("train", 8, None)
    message = "0/2 nodes are available: 2 Insufficient nvidia.com/gpu. preemption: not helpful."
    api.lists["/api/v1/pods"][-1]["status"] = {
        "phase": "Pending",
        "conditions": [
            {
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "message": message,
            }
        ],
    }


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        (kill_node, f"NotReady since {LONG_AGO}: NodeStatusUnknown: Kubelet stopped posting"),
        (cordon, "cordoned: the scheduler puts no pods on it"),
        (break_image, "agent: ImagePullBackOff: not found"),
        (lose_agent, "agent: no pod of it is on this node"),
        (hold, "GPU 1 Waiting: held by team/notebook since 03:00"),
        (relabel, "bypasses the file: label divvy.gpu/profile=slices"),
        (take_devices, "nvidia.com/gpu: offers 3, the file says 4"),
        (lose_node, "pool training has 1 node, the file says 2"),
        (starve, "team/train (nvidia.com/gpu ×8): 0/2 nodes are available: 2 Insufficient"),
    ],
)
def test_reports_a_fault(api: StatusApi, fault: Callable[[StatusApi], None], sentence: str) -> None:
    fault(api)
    assert sentence in words(status())


def test_lists_no_pod_that_has_its_gpu_as_one_that_waits_for_one(api: StatusApi) -> None:
    api.pod("starting", 1, "n1")
    waiting = {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}}}
    pod = api.lists["/api/v1/pods"][-1]
    pod["status"] = {"phase": "Pending", "containerStatuses": [waiting]}
    assert "nothing to look at" in status(expect=0)


def test_reports_an_override_without_its_node(tmp_path: Path) -> None:
    path = tmp_path / "Pulumi.prod.yaml"
    stack = yaml.safe_load(path.read_text())
    stack["config"]["divvy:cluster"]["pools"]["training"]["overrides"] = {"n22": "slices"}
    path.write_text(yaml.safe_dump(stack))
    assert "node n22 of pool training: `overrides` names it, and" in words(status())


def test_reports_the_age_of_a_stale_status(api: StatusApi) -> None:
    hold(api)
    assert "status is" not in status()
    lose_agent(api)
    text = words(status())
    assert "node n2: pool training; its status is" in text
    assert text.index("d old") < text.index("agent: no pod")


def test_shows_dead_nodes_first_and_counts_what_exceeds_a_page(api: StatusApi) -> None:
    cordon(api)
    for number in range(30):
        text = json.dumps(api.nodes["n1"]).replace('"n1"', f'"m{number:02}"')
        api.lists["/api/v1/nodes"].append(json.loads(text))
    text = status()
    assert text.count("agent: no pod of it is on this node") == 20
    assert "and 11 more nodes (-o json has all)" in text
    assert len(json.loads(status("-o", "json"))["lines"]) == 31


def test_reports_what_a_user_may_not_read(api: StatusApi) -> None:
    api.forbidden.add(AGENTS)
    text = words(status(expect=2))
    assert f"note: not shown: this user may not read {AGENTS}: forbidden" in text
    assert "nothing to look at in what this user may read" in text


def test_shows_firing_alerts_of_divvy(monkeypatch: pytest.MonkeyPatch) -> None:
    alerts = [
        {
            "state": state,
            "labels": {"alertname": name},
            "annotations": {"summary": "GPU 1 of n1 is unhealthy"},
            "activeAt": LONG_AGO,
        }
        for name, state in (
            ("DivvyGpuUnhealthy", "firing"), ("DivvyOther", "pending"), ("Watchdog", "firing"),
        )
    ]  # fmt: skip

    def get(url: str, timeout: float) -> httpx2.Response:
        assert (url, timeout) == ("http://prometheus/api/v1/alerts", 5.0)
        body = {"data": {"alerts": alerts}}
        return httpx2.Response(200, json=body, request=httpx2.Request("GET", url))

    monkeypatch.setattr(divvy.live.prometheus.httpx2, "get", get)
    text = words(status("--prometheus", "http://prometheus/"))
    assert "1 alert firing" in text
    assert f"DivvyGpuUnhealthy since {LONG_AGO}: GPU 1 of n1 is unhealthy" in text
    assert "DivvyOther" not in text
    assert "Watchdog" not in text


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "http://here:port"])
def test_reports_a_url_that_is_no_prometheus(url: str) -> None:
    text = status("--prometheus", url, expect=1)
    assert "is it a Prometheus?" in text


def test_shows_no_password_of_prometheus(monkeypatch: pytest.MonkeyPatch) -> None:
    def get(url: str, **_: float) -> httpx2.Response:
        return httpx2.Response(401, request=httpx2.Request("GET", url))

    monkeypatch.setattr(divvy.live.prometheus.httpx2, "get", get)
    text = words(status("--prometheus", "https://me:hunter2@prometheus/", expect=1))
    assert "https://…@prometheus/ gives no answer" in text
    assert "401" in text
    assert "hunter2" not in text


@pytest.mark.parametrize("data", [[], {"alerts": None}, {"alerts": [5]}, {"alerts": [{}]}])
def test_reports_alerts_that_are_none(monkeypatch: pytest.MonkeyPatch, data: object) -> None:
    def get(url: str, **_: float) -> httpx2.Response:
        return httpx2.Response(200, json={"data": data}, request=httpx2.Request("GET", url))

    monkeypatch.setattr(divvy.live.prometheus.httpx2, "get", get)
    text = status("--prometheus", "http://prometheus/", expect=1)
    assert "is it a Prometheus?" in text


def test_names_an_unreachable_server(api: StatusApi, monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(request: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("Connection refused", request=request)

    monkeypatch.setattr(api, "answer", answer)
    text = words(status(expect=1))
    assert "the cluster cannot be reached: http://api: Connection refused" in text


def test_takes_a_pod_or_slice_that_cannot_be_read_for_something_to_look_at(api: StatusApi) -> None:
    assert "nothing to look at" in status(expect=0)
    odd = {"metadata": {"name": "odd", "namespace": "team", "labels": 5}}
    api.lists["/api/v1/pods"].append(odd)
    assert "team/odd" in status()
    api.lists["/api/v1/pods"].clear()
    unread = {"metadata": {"name": "n2-divvy.gpu-shares", "labels": 5}}
    foreign = {"metadata": {"name": "n1-nic.example-x", "labels": 5}}
    api.lists["/apis/resource.k8s.io/v1/resourceslices"] = [foreign, unread]
    text = words(status())
    assert "node n2: pool training" in text
    assert "its ResourceSlice n2-divvy.gpu-shares cannot be read" in text
    assert "node n1" not in text
