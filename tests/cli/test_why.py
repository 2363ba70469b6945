"""divvy why with an API server of a test: what fit says of one pod, and what is known beside."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx2
import pytest
from typer.testing import CliRunner

import divvy.cli.why
from divvy.cli.main import app
from tests.cli.cluster_api import GPU, STACK, ClusterApi, write_project
from tests.plan.claimed import claim, slices

_CLAIMS = "/apis/resource.k8s.io/v1"


class PodsApi(ClusterApi):
    """Also answers for one pod, and which resources there are of claims."""

    resources: Sequence[str] = ()

    def answer(self, request: httpx2.Request) -> httpx2.Response:
        if request.url.path == _CLAIMS:
            known = [{"name": name} for name in self.resources]
            return httpx2.Response(200, json={"resources": known})
        name = request.url.path.removeprefix("/api/v1/namespaces/team/pods/")
        pods = self.lists["/api/v1/pods"]
        matches = [pod for pod in pods if pod["metadata"]["name"] == name]
        return httpx2.Response(200, json=matches[0]) if matches else super().answer(request)

    def waiting(self, name: str, gpus: int, **status: Any) -> dict[str, Any]:
        """Add a pod that waits for a node."""
        self.pod(name, gpus, None)
        pod: dict[str, Any] = self.lists["/api/v1/pods"][-1]
        pod["metadata"]["uid"] = name
        pod["status"] = {"phase": "Pending", **status}
        return pod


@pytest.fixture(autouse=True)
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PodsApi:
    write_project(tmp_path, monkeypatch)
    server = PodsApi()
    server.serve(monkeypatch, divvy.cli.why)
    return server


def why(name: str) -> str:
    result = CliRunner().invoke(app, ["why", name, "-n", "team", "-s", "prod"])
    assert result.exit_code == 0, result.output
    return " ".join(result.output.split())


def test_names_the_pods_that_hold_what_the_device_plugin_serves(api: PodsApi) -> None:
    api.pod("holder", 3, "n1")
    api.waiting("train", 2)
    assert why("train") == (
        "team/train: does not fit node n1 (training) offers 4 nvidia.com/gpu, 1 is free, it needs "
        "2; held by team/holder the scheduler has not looked at it yet"
    )


def test_reports_first_what_keeps_a_pod_that_would_fit(api: PodsApi) -> None:
    message = "0/1 nodes are available: 1 node(s) had something else"
    condition = {"type": "PodScheduled", "status": "False", "message": message}
    api.waiting("train", 2, conditions=[condition])
    assert why("train").startswith(f"the scheduler says: {message} team/train: fits node n1")


def test_omits_what_the_pod_already_holds(api: PodsApi) -> None:
    """A claim of the pod's own is not in its way; another pod's is."""
    _gives_claims(api)
    held = claim("mine", "n1", "gpu-n1-0", None, None)
    api.lists[f"{_CLAIMS}/resourceclaims"] = [held]
    pod = api.waiting("train", 1)
    assert "held by team/mine" in why("train")
    held["metadata"]["ownerReferences"] = [{"uid": pod["metadata"]["uid"]}]
    assert "team/train: fits" in why("train")


def test_names_the_taints_of_devices(api: PodsApi) -> None:
    """An administrator's too, which stand in no slice."""
    _gives_claims(api)
    api.waiting("train", 1)
    assert "team/train: fits" in why("train")
    taint = {"key": "example.com/repair", "value": "fan", "effect": "NoExecute"}
    rule = {"deviceSelector": {"pool": "n1/divvy"}, "taint": taint}
    path = f"{_CLAIMS}/devicetaintrules"
    api.lists[path] = [{"metadata": {"name": "r"}, "spec": rule}]
    words = "offers no whole GPU to claims: its devices have taints (example.com/repair=fan)"
    assert words in why("train")
    # Who may not read them is told so, where there may be some.
    api.forbidden.add(path)
    assert "DeviceTaintRules" not in why("train")
    api.resources = ["devicetaintrules"]
    assert "DeviceTaintRules are left out: this user may not read" in why("train")


def test_reports_on_which_node_a_pod_waits(api: PodsApi) -> None:
    pod = api.waiting("train", 1)
    pod["spec"]["nodeName"] = "n1"
    assert why("train") == "team/train it is scheduled on n1, which has not started it yet"


def test_refuses_to_explain_a_running_pod(api: PodsApi) -> None:
    api.waiting("train", 1, phase="Running")
    assert why("train") == "team/train it is not waiting: its phase is Running"


def test_fails_for_a_missing_pod() -> None:
    result = CliRunner().invoke(app, ["why", "none", "-n", "team", "-s", "prod"])
    assert result.exit_code == 1
    assert "pod none does not exist in namespace team" in result.output


def _gives_claims(api: PodsApi) -> None:
    stack = STACK.replace("{whole: {},", "{whole: {claims: {}},")
    Path("Pulumi.prod.yaml").write_text(stack)
    api.lists["/api/v1/nodes"][0]["status"]["allocatable"].pop(GPU)
    api.lists[f"{_CLAIMS}/resourceslices"] = [
        {"metadata": {"name": "s"}, **resource_slice} for resource_slice in slices("n1", {}, gpus=1)
    ]
