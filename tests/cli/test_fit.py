"""divvy fit with files, with an API server of a test, and on the lab."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import divvy.cli.fit
from divvy.cli.main import app
from tests.cli.cluster_api import GPU, STACK, ClusterApi, write_project
from tests.plan.claimed import slices

PODS = """\
kind: Pod
metadata: {name: train}
spec: {containers: [{resources: {limits: {nvidia.com/gpu: 3}}}]}
---
kind: Pod
metadata: {name: odd}
spec: {containers: [{resources: {limits: {nvidia.com/gpus: 1}}}]}
"""


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_project(tmp_path, monkeypatch)
    (tmp_path / "pods.yaml").write_text(PODS)


def run(*arguments: str, stdin: str | None = None) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["fit", *arguments], input=stdin)
    return result.exit_code, "\n".join(
        splitline.rstrip() for splitline in result.output.splitlines()
    )


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> ClusterApi:
    server = ClusterApi()
    server.serve(monkeypatch, divvy.cli.fit)
    return server


def test_reports_what_fits_in_text_and_exit_code() -> None:
    assert run("pods.yaml", "-s", "prod") == (
        2,
        """\
prod: 1 of 2 pods fit where nothing is held

default/train: fits
  pool training: nvidia.com/gpu ×3

default/odd: does not fit
  no pool offers nvidia.com/gpus; did you mean nvidia.com/gpu?
note: pool unknown is left out: the stack file does not say which hardware it
has""",
    )
    first = PODS.partition("---")[0]
    code, text = run("-", "-s", "prod", stdin=first)
    assert (code, text.splitlines()[0]) == (0, "prod: 1 of 1 pods fit where nothing is held")


CLAIM = """\
kind: ResourceClaimTemplate
metadata: {name: mine}
spec:
  spec:
    devices:
      requests:
      - name: gpu
        exactly:
          deviceClassName: divvy-gpu
          selectors: [{cel: {expression: "true"}}]
---
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  template:
    spec:
      containers: [{name: main}]
      resourceClaims: [{name: gpu, resourceClaimTemplateName: mine}]
"""


@pytest.mark.parametrize(
    ("gpus", "message"),
    [
        (
            4,
            """\
prod: 0 of 3 pods fit where nothing is held, 3 are unknown

default/web (Deployment, 3 pods): unknown
  2 on pool training: GPU 0: whole
  1 on pool training: GPU 1: whole
  not looked at in claim mine: conditions (CEL)""",
        ),
        (
            1,
            """\
prod: 0 of 3 pods fit where nothing is held, 2 are unknown

default/web (Deployment, 3 pods): 2 unknown, 1 does not fit
  2 on pool training: GPU 0: whole
  pool training has no room left for 1 whole GPU; held by default/web; not
  looked at in claim mine: conditions (CEL)""",
        ),
    ],
)
def test_reports_unread_parts_of_claims_as_unknown(tmp_path: Path, gpus: int, message: str) -> None:
    stack = STACK.replace("whole: {}", "whole: {claims: {}}").replace("gpus: 4", f"gpus: {gpus}")
    (tmp_path / "Pulumi.prod.yaml").write_text(stack.partition("      unknown:")[0])
    code, text = run("-", "-s", "prod", stdin=CLAIM)
    assert code == 2
    assert text == message


def test_prints_everything_in_json(tmp_path: Path) -> None:
    code, text = run("pods.yaml", "-s", "prod", "-o", "json")
    assert code == 2
    report = json.loads(text)
    assert (report["cluster"], report["live"], report["fits"]) == ("prod", False, False)
    assert list(report) == ["cluster", "live", "fits", "pods", "notes"]
    train, odd = report["pods"]
    of_pods = ["kind", "namespace", "name", "priority", "pods", "fit", "unknown"]
    assert list(train) == [*of_pods, "places", "reason", "obstacles", "notes"]
    assert list(odd["obstacles"][0]) == ["pool", "where", "nodes", "reason"]
    place = {"pool": "training", "node": None, "pods": 1, "devices": ["nvidia.com/gpu ×3"]}
    assert train["places"] == [{**place, "if": []}]
    assert (odd["fit"], odd["reason"][:14]) == (0, "no pool offers")
    assert [obstacle["nodes"] for obstacle in odd["obstacles"]] == [2]
    run("pods.yaml", "-s", "prod", "-o", "json", "--out", "fit.json")
    assert json.loads((tmp_path / "fit.json").read_text()) == report


def test_counts_what_is_held_on_live_nodes(api: ClusterApi) -> None:
    api.pod("old", 2, "n1")
    code, text = run("pods.yaml", "-s", "prod", "--live")
    assert code == 2
    assert "prod: 0 of 2 pods fit alongside what is held now" in text
    assert (
        "node n1 (training) offers 4 nvidia.com/gpu, 2 are free, it needs 3; held by team/old"
        in " ".join(text.split())
    )
    api.lists["/api/v1/pods"].clear()
    _, text = run("pods.yaml", "-s", "prod", "--live")
    assert "node n1 (training): nvidia.com/gpu ×3" in text


def test_notes_a_node_that_differs_from_the_file(api: ClusterApi) -> None:
    assert "divvy diff --live" not in run("pods.yaml", "-s", "prod", "--live")[1]
    api.lists["/api/v1/nodes"][0]["status"]["allocatable"][GPU] = "3"
    code, text = run("pods.yaml", "-s", "prod", "--live")
    assert "note: n1: the nodes differ from the stack file" in text
    assert code == 2


def test_checks_the_clusters_pods_without_a_node(api: ClusterApi) -> None:
    api.pod("waits", 3, None)
    api.pod("waits-longer", 1, None)
    api.pod("runs", 2, "n1")
    code, text = run("--pending", "-s", "prod")
    assert (code, text.splitlines()[0]) == (0, "prod: 2 of 2 pods fit where nothing is held")
    assert text.index("waits-longer") < text.index("waits:")
    code, text = run("--pending", "--live", "-s", "prod")
    assert (code, text.splitlines()[0]) == (2, "prod: 1 of 2 pods fit alongside what is held now")


_BY_CLAIMS = STACK.replace("{whole: {},", "{whole: {claims: {}},")
_DEVICE_API = "/apis/resource.k8s.io/v1"


@pytest.fixture
def by_claims(api: ClusterApi) -> ClusterApi:
    """Have claims serve the only GPU of the cluster."""
    Path("Pulumi.prod.yaml").write_text(_BY_CLAIMS)
    api.lists["/api/v1/nodes"][0]["status"]["allocatable"].pop(GPU)
    api.lists[f"{_DEVICE_API}/resourceslices"] = [
        {"metadata": {"name": "s"}, **resource_slice} for resource_slice in slices("n1", {}, gpus=1)
    ]
    return api


def test_reports_a_quota_that_refuses_the_claim_of_a_pod(by_claims: ClusterApi) -> None:
    """The scheduler makes the claim when it has found a node."""
    by_claims.pod("waits", 1, None)
    assert run("--pending", "--live", "-s", "prod")[0] == 0
    name = "divvy-gpu.deviceclass.resource.k8s.io/devices"
    status = {"hard": {name: "1"}, "used": {name: "1"}}
    meta = {"namespace": "team", "name": "gpus"}
    quotas = [{"metadata": meta, "spec": {}, "status": status}]
    by_claims.lists["/api/v1/resourcequotas"] = quotas
    code, text = run("--pending", "--live", "-s", "prod")
    assert code == 2
    words = f"node n1 (training) cannot serve it: the ResourceQuota gpus has no {name} left"
    assert words in " ".join(text.split())
    assert run("--pending", "-s", "prod")[0] == 0  # where nothing is held


@pytest.mark.usefixtures("api")
def test_accepts_a_cluster_without_pending_pods() -> None:
    code, text = run("--pending", "-s", "prod")
    assert (code, text.splitlines()[0]) == (0, "prod: 0 of 0 pods fit where nothing is held")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("-s", "prod"), "name files with pods, or use --pending"),
        (("pods.yaml", "--pending", "-s", "prod"), "not both"),
        (("none.yaml", "-s", "prod"), "cannot read none.yaml: No such file or directory"),
        (("Pulumi.prod.yaml", "-s", "prod"), "document 1: kind: is empty; a kind such as Pod"),
        (("bad.yaml", "-s", "prod"), "bad.yaml is not YAML"),
        (("wrong.yaml", "-s", "prod"), "wrong.yaml: document 2: spec.containers: is empty"),
    ],
)
def test_refuses_wrong_calls_and_files_with_one_error(
    arguments: tuple[str, ...], words: str
) -> None:
    Path("bad.yaml").write_text("a: [")
    Path("wrong.yaml").write_text("{kind: Service}\n---\n{kind: Pod, spec: {}}")
    code, text = run(*arguments)
    assert code == 1
    assert text.startswith("error: ")
    assert words in text


def _odd(name: str, **fields: Any) -> dict[str, Any]:
    """Return an object of a shape to come: nothing of it can be read but its name."""
    return {"metadata": {"name": name, "namespace": "team", "labels": ["odd"]}, **fields}


def _verdicts(*arguments: str) -> tuple[int, dict[str, tuple[int, int, str]]]:
    code, text = run(*arguments, "-s", "prod", "-o", "json")
    pods = json.loads(text[text.index("{\n") :])["pods"]
    return code, {pod["name"]: (pod["fit"], pod["unknown"], pod["reason"]) for pod in pods}


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/api/v1/pods", "pod team/odd cannot be read, and may hold what it would get"),
        ("/api/v1/resourcequotas", "ResourceQuota team/odd cannot be read, and may refuse"),
        (f"{_DEVICE_API}/devicetaintrules", "DeviceTaintRule team/odd cannot be read, and may"),
        (f"{_DEVICE_API}/resourceslices", "ResourceSlice team/odd cannot be read, and may replace"),
    ],
)
def test_knows_of_no_place_that_an_unreadable_object_may_take(
    by_claims: ClusterApi, path: str, words: str
) -> None:
    by_claims.pod("waits", 1, None)
    assert _verdicts("--pending", "--live") == (0, {"waits": (1, 0, "")})
    by_claims.lists.setdefault(path, []).append(_odd("odd"))
    code, pods = _verdicts("--pending", "--live")
    assert (code, pods["waits"][:2]) == (2, (0, 1))
    assert words in pods["waits"][2]


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/api/v1/nodes", "node team/odd cannot be read, and may leave room for it"),
        (f"{_DEVICE_API}/resourceslices", "ResourceSlice team/odd cannot be read, and may leave"),
        (f"{_DEVICE_API}/resourceclaims", "ResourceClaim team/odd cannot be read, and may leave"),
    ],
)
def test_says_no_of_no_pod_that_an_unreadable_object_may_serve(
    by_claims: ClusterApi, path: str, words: str
) -> None:
    by_claims.pod("waits", 2, None)
    assert _verdicts("--pending", "--live")[1]["waits"][:2] == (0, 0)
    by_claims.lists.setdefault(path, []).append(_odd("odd"))
    code, pods = _verdicts("--pending", "--live")
    assert (code, pods["waits"][:2]) == (2, (0, 1))
    assert words in pods["waits"][2]


def test_wants_a_pod_of_a_daemon_set_on_a_node_that_cannot_be_read(api: ClusterApi) -> None:
    spec = {"containers": [{"name": "c", "resources": {"limits": {GPU: 1}}}]}
    workload = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "d"}}
    Path("ds.yaml").write_text(json.dumps({**workload, "spec": {"template": {"spec": spec}}}))
    assert _verdicts("ds.yaml", "--live") == (0, {"d": (1, 0, "")})
    api.lists["/api/v1/nodes"].append(_odd("odd"))
    code, pods = _verdicts("ds.yaml", "--live")
    assert (code, pods["d"][:2]) == (2, (1, 1))
    assert "1 fit, 1 unknown" in run("ds.yaml", "--live", "-s", "prod")[1]


def test_looks_for_no_other_pods_and_quotas_than_those_in_the_way(by_claims: ClusterApi) -> None:
    """A quota of another namespace, and claims of a pod that has none, change nothing."""
    quota = _odd("odd")
    quota["metadata"]["namespace"] = "other"
    by_claims.lists["/api/v1/resourcequotas"] = [quota]
    by_claims.pod("waits", 1, None)
    assert _verdicts("--pending", "--live") == (0, {"waits": (1, 0, "")})
    by_claims.lists[f"{_DEVICE_API}/devicetaintrules"] = [_odd("odd")]
    plain = {"kind": "Pod", "metadata": {"name": "cpu"}, "spec": {"containers": [{"name": "c"}]}}
    Path("cpu.yaml").write_text(json.dumps(plain))
    assert _verdicts("cpu.yaml", "--live") == (0, {"cpu": (1, 0, "")})


def test_counts_a_pod_that_cannot_be_read_among_those_that_wait(api: ClusterApi) -> None:
    api.lists["/api/v1/pods"].append(_odd("odd"))
    code, pods = _verdicts("--pending")
    assert (code, pods) == (2, {"odd": (0, 1, "it cannot be read, and may wait for a node")})


def _exactly(**fields: Any) -> dict[str, Any]:
    request = {"name": "gpu", "exactly": {"deviceClassName": "divvy-gpu", **fields}}
    return {"devices": {"requests": [request]}}


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"devices": {"requests": [{"name": "gpu", "atLeast": {}}]}}, "devices.requests[0]"),
        ({"devices": {"requests": []}}, "spec, which asks for no devices"),
        (_exactly(shares=2), "exactly.shares"),
        (_exactly(deviceClassName=None), "deviceClassName: is empty"),
        (None, "ResourceClaim, which cannot be read"),
    ],
)
def test_does_not_take_a_live_claim_of_another_shape_for_none(
    by_claims: ClusterApi, spec: dict[str, Any] | None, words: str
) -> None:
    by_claims.pod("waits", 1, None)
    pod = by_claims.lists["/api/v1/pods"][0]
    pod["spec"]["containers"] = [{"name": "main"}]
    pod["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "mine"}]
    mine = {"metadata": {"name": "mine", "namespace": "team"}, "spec": _exactly()}
    by_claims.lists[f"{_DEVICE_API}/resourceclaims"] = [mine]
    assert _verdicts("--pending", "--live") == (0, {"waits": (1, 0, "")})
    by_claims.lists[f"{_DEVICE_API}/resourceclaims"] = [
        _odd("mine") if spec is None else {**mine, "spec": spec}
    ]
    code, pods = _verdicts("--pending", "--live")
    assert (code, pods["waits"][:2]) == (2, (0, 1))
    assert words in pods["waits"][2]


def test_does_not_pass_over_a_field_of_a_waiting_pod(api: ClusterApi) -> None:
    api.pod("waits", 1, None)
    api.lists["/api/v1/pods"][0]["spec"]["devices"] = [{"class": "divvy-gpu", "count": 30}]
    code, pods = _verdicts("--pending")
    assert (code, pods) == (2, {"waits": (0, 1, "not understood: spec.devices")})


def test_knows_no_tenant_of_a_namespace_that_cannot_be_read(by_claims: ClusterApi) -> None:
    Path("Pulumi.prod.yaml").write_text(_BY_CLAIMS.replace("claims: {}", "claims: {shares: {}}"))
    sized = {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpumem": 10}}}]}
    pod = {"kind": "Pod", "metadata": {"name": "part", "namespace": "team"}, "spec": sized}
    Path("part.yaml").write_text(json.dumps(pod))
    assert "Namespace" not in _verdicts("part.yaml", "--live")[1]["part"][2]
    odd = {"metadata": {"name": "team", "labels": ["odd"]}}
    by_claims.lists["/api/v1/namespaces"] = [odd]
    code, pods = _verdicts("part.yaml", "--live")
    assert (code, pods["part"]) == (2, (0, 1, "its Namespace, which cannot be read"))
