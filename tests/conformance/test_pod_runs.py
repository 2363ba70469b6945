"""How the suite runs pods: what is a failure, and what only says that nothing was checked."""

from __future__ import annotations

import contextlib
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from conformance.checks.verdicts import extra_pod, past_the_scheduler
from conformance.cluster import api as api_module
from conformance.cluster import image_pull
from conformance.cluster.api import Api
from conformance.cluster.image_pull import pull_state
from conformance.cluster.pod_spec import PodRequest, pod_spec
from conformance.cluster.pods import PodNamespace
from conformance.load.fill import fill
from conformance.promise import DevicePromise, device_promises, node_promises
from conformance.skips import CheckSkipped
from divvy.kube.errors import ApiError, Unreachable
from divvy.kube.kind import NODE
from divvy.live.live_diff import live_node
from divvy.model import parse_cluster
from divvy.plan import plan
from tests.conformance.fake_api import FakeApi, refusal, running, succeeded

LONG = "a-node-with-a-very-long-name.europe-west4.compute.internal.example.org"


def namespace(api: FakeApi) -> PodNamespace:
    return PodNamespace(api, "image", "run-restricted", "restricted", "low")  # type: ignore[arg-type]


def whole(gpus: int = 2) -> DevicePromise:
    hardware = {"model": "T4", "gpus": gpus, "count": 1}
    cluster = parse_cluster(
        {"profiles": {"whole": {}}, "pools": {"p": {"hardware": hardware, "profile": "whole"}}}
    )
    live = [live_node("n1", {}, {}, {"nvidia.com/gpu": str(gpus)})]
    (promise,) = device_promises(node_promises(cluster, plan(cluster, "s"), live, None))
    return promise


def test_chooses_a_node_by_its_name_not_by_a_label() -> None:
    spec = pod_spec(PodRequest(LONG, "image"), "restricted", "low")
    assert "nodeSelector" not in spec
    terms = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    (term,) = terms["nodeSelectorTerms"]
    assert term == {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [LONG]}]}


def test_pulls_with_the_stack_files_secrets() -> None:
    spec = pod_spec(PodRequest("n1", "image"), "restricted", "low", ("pull",))
    assert spec["imagePullSecrets"] == [{"name": "pull"}]


def test_pulls_an_image_once_before_anything_runs() -> None:
    api = FakeApi()
    pods = namespace(api)
    for _ in range(3):
        pods.run("n1", ["true"], "nvidia.com/gpu")
    limits = [pod["spec"]["containers"][0]["resources"]["limits"] for pod in api.created]
    assert ["nvidia.com/gpu" in limit for limit in limits] == [False, True, True, True]


def test_judges_no_gpu_by_an_image_that_cannot_be_pulled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(image_pull, "_REFUSED", 0.1)
    waiting = {"reason": "ErrImagePull", "message": "401 Unauthorized"}
    status = {"phase": "Pending", "containerStatuses": [{"state": {"waiting": waiting}}]}
    pods = namespace(FakeApi(lambda _: status))
    with pytest.raises(CheckSkipped, match=r"cannot run the image: ErrImagePull: 401 Unauthorized"):
        pods.run("n1", ["true"], "nvidia.com/gpu", 1)
    # The second check does not wait for the registry again.
    with pytest.raises(CheckSkipped, match="ErrImagePull"):
        pods.run("n1", ["true"], "nvidia.com/gpu", 1)


FORMAT = "exec /bin/true: exec format error"
NO_PLATFORM = 'failed to pull "image": no match for platform in manifest: not found'


@pytest.mark.parametrize(
    ("state", "log"),
    [
        ({"terminated": {"exitCode": 255}}, FORMAT),
        ({"terminated": {"exitCode": 128, "message": f"failed to start: {FORMAT}"}}, ""),
        ({"waiting": {"reason": "ErrImagePull", "message": NO_PLATFORM}}, ""),
    ],
)
def test_judges_no_gpu_by_an_image_of_another_architecture(state: dict[str, Any], log: str) -> None:
    status = {"phase": "Failed", "containerStatuses": [{"state": state}]}
    api = FakeApi(lambda _: status, lambda _: log)
    api.nodes["n1"] = {"status": {"nodeInfo": {"architecture": "arm64"}}}
    pods = namespace(api)
    with pytest.raises(
        CheckSkipped, match="n1 cannot run the image: the node is arm64, and image is n"
    ):
        pods.run("n1", ["true"], "nvidia.com/gpu", 1)


def test_waits_for_a_slow_pull() -> None:
    creating = {"containerStatuses": [{"state": {"waiting": {"reason": "ContainerCreating"}}}]}
    assert pull_state({"status": creating})[0] == "pulling"
    assert pull_state({"status": {}})[0] == "pulling"


def test_judges_no_gpu_by_a_preempted_pod() -> None:
    api = FakeApi(lambda body: succeeded(body) if is_pull(body) else running(body))
    pods = namespace(api)
    name = pods.start("n1", ["sleep"], "nvidia.com/gpu")
    api.vanish(name, "PreemptionByScheduler")
    with pytest.raises(CheckSkipped, match="preempted"):
        pods.wait(name, 5)


def test_fails_when_somebody_deletes_its_pod() -> None:
    api = FakeApi(lambda body: succeeded(body) if is_pull(body) else running(body))
    pods = namespace(api)
    name = pods.start("n1", ["sleep"], "nvidia.com/gpu")
    api.vanish(name, "DeletionByTaintManager")
    assert pods.wait(name, 5).phase == "Deleted"


def is_pull(body: dict[str, Any]) -> bool:
    return body["spec"]["containers"][0].get("command") == ["true"]


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (403, "exceeded quota: few, requested: pods=1"),
        (403, 'User "x" cannot create resource "pods"'),
        (403, 'violates PodSecurity "restricted:latest"'),
        (400, "admission webhook denied the request"),
    ],
)
def test_skips_what_the_clusters_rules_refuse(code: int, message: str) -> None:
    api = FakeApi()
    api.refuse = lambda _: refusal(code, message)
    with pytest.raises(CheckSkipped, match="does not admit our restricted pod"):
        namespace(api).run("n1", ["true"])


def test_judges_nothing_when_its_namespace_is_gone() -> None:
    """A run that lost its lease is cleaned up by the next one."""
    api = FakeApi()
    api.refuse = lambda _: refusal(404, 'namespaces "run-restricted" not found')
    with pytest.raises(CheckSkipped, match="somebody has removed the namespace of the run"):
        namespace(api).run("n1", ["true"])


def test_waits_for_an_api_server_that_is_away() -> None:
    """It restarts with the kubelet where both are one program."""
    pods = namespace(FakeApi())
    answers = [Unreachable("connection refused"), refusal(503, "not yet"), None]

    def met() -> bool:
        if (answer := answers.pop(0)) is not None:
            raise answer
        return True

    assert pods.until(met, 5)
    with pytest.raises(ApiError, match="no such right"):
        pods.until(lambda: (_ for _ in ()).throw(refusal(403, "no such right")), 5)


def test_waits_for_nothing_when_the_run_is_stopped() -> None:
    pods = namespace(FakeApi(lambda body: succeeded(body) if is_pull(body) else running(body)))
    name = pods.start("n1", ["sleep"], "nvidia.com/gpu")
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(pods.wait, name, 60)
        began = time.monotonic()
        pods.end()
        with pytest.raises(CheckSkipped, match="the run was stopped"):
            waiting.result()
    assert time.monotonic() - began < 30


@pytest.mark.parametrize("code", [403, 500, 504])
def test_counts_only_an_invalid_pod_as_refused_for_its_resources(code: int) -> None:
    api = FakeApi()
    pods = namespace(api)
    pods.run("n1", ["true"])
    api.refuse = lambda _: refusal(422, 'resources.limits[nvidia.com/gpu]: Invalid value: "0.5"')
    assert "nvidia.com/gpu" in str(pods.refuse("n1", {}))
    api.refuse = lambda _: refusal(code, "the server was unable to answer")
    with pytest.raises(BaseException, match=r"unable to answer|does not admit"):
        pods.refuse("n1", {})


class Busy:
    """A client that fails for a while."""

    def __init__(self, *problems: Exception) -> None:
        self.problems = list(problems)

    def get(self, *_: Any, **__: Any) -> str:
        if self.problems:
            raise self.problems.pop(0)
        return "found"


def test_retries_a_busy_api_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_module, "_PAUSES", (0.0, 0.0, 0.0, 0.0))
    problems = [refusal(429, "slow down"), refusal(500, "etcd"), Unreachable("reset")]
    api = Api(Busy(*problems))  # type: ignore[arg-type]
    assert api.get(NODE, "x") == "found"
    assert api.requests["get"] == 4
    with pytest.raises(Exception, match="not there"):
        Api(Busy(refusal(404, "not there"))).get(NODE, "x")  # type: ignore[arg-type]


class BusyLog:
    """A client that has a log for the third who asks."""

    def __init__(self) -> None:
        self.asked = 0

    def text(self, *_: Any) -> str:
        self.asked += 1
        if self.asked < 3:
            raise Unreachable("timeout") if self.asked == 1 else refusal(500, "dialing backend")
        return "Test PASSED"


def test_asks_again_for_the_last_words_of_a_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_module, "_PAUSES", (0.0, 0.0, 0.0, 0.0))
    assert Api(BusyLog()).log("c-1", "n", "main") == ""  # type: ignore[arg-type]
    assert Api(BusyLog()).log("c-1", "n", "main", is_last=True) == "Test PASSED"  # type: ignore[arg-type]


def test_has_more_patience_with_what_it_undoes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_module, "_PAUSES", (0.0,))
    monkeypatch.setattr(api_module, "_LONG_PAUSES", (0.0, 0.0))

    class Away:
        asked = 0

        def request(self, *_: Any, **__: Any) -> None:
            self.asked += 1
            raise Unreachable("connection refused")

    for undoes, asked in ((False, 2), (True, 4)):
        client = Away()
        with pytest.raises(Unreachable):
            Api(client).patch(NODE, "n1", {}, undoes=undoes)  # type: ignore[arg-type]
        assert client.asked == asked


def test_leaves_no_tenant_behind_after_a_refusal_half_way() -> None:
    api = FakeApi(lambda body: succeeded(body) if is_pull(body) else running(body))
    pods = namespace(api)
    pods.run("n1", ["true"])
    api.refuse = lambda _: refusal(403, "exceeded quota") if api.pods else None
    with contextlib.suppress(CheckSkipped):
        fill(pods, whole(), "Insufficient nvidia.com/gpu")
    assert api.pods == {}


def pending(
    body: dict[str, Any], message: str = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
) -> dict[str, Any]:
    if is_pull(body) and not body["spec"]["containers"][0]["resources"]["limits"].get(
        "nvidia.com/gpu"
    ):
        return succeeded(body)
    refused = {
        "type": "PodScheduled",
        "status": "False",
        "message": message,
    }
    return {"phase": "Pending", "conditions": [refused]}


def test_passes_no_check_of_a_full_node_when_it_offers_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from conformance.load import fill as fill_module

    monkeypatch.setattr(fill_module, "_REFUSAL", 0.2)
    promise = whole()
    filled = fill(namespace(FakeApi(pending)), promise, "Insufficient nvidia.com/gpu")
    assert not filled.together
    for expected, actual in (extra_pod(filled, promise), past_the_scheduler(filled, promise)):
        assert expected != actual
        assert actual == "the node was not full: 0 of 2 pods ran"


def test_judges_no_devices_by_a_node_that_takes_no_more_pods(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from conformance.load import fill as fill_module

    monkeypatch.setattr(fill_module, "_REFUSAL", 0.2)
    api = FakeApi(partial(pending, message="0/9 nodes are available: 1 Too many pods."))
    with pytest.raises(CheckSkipped, match=r"2 of 2 pods find no place: 0/9 nodes .* 1 Too many"):
        fill(namespace(api), whole(), "Insufficient nvidia.com/gpu")
