"""Pods of others that hold devices."""

from typing import Any

import pytest

from conformance.cluster.pod_spec import OWN
from conformance.observe.holders import claimants, holders, require_free, require_idle
from conformance.promise import device_promises
from conformance.skips import CheckSkipped
from divvy.kube.kind import Kind
from tests.conformance.promised_nodes import CLUSTER, live, promised


def pod(name: str, count: int, **more: Any) -> dict[str, Any]:
    limits = {"nvidia.com/gpu": str(count)}
    return {
        "metadata": {"namespace": "team", "name": name, "labels": more.get("labels")},
        "spec": {"nodeName": "n1", "containers": [{"resources": {"limits": limits}}]},
        "status": {"phase": more.get("phase", "Running")},
    }


def test_counts_devices_of_pods_that_have_not_ended_as_held() -> None:
    pods = [
        pod("theirs", 2),
        pod("ended", 1, phase="Succeeded"),
        pod("ours", 1, labels=OWN),
        pod("none", 0),
        pod("waits", 1, phase="Pending"),
    ]
    # What is left of a run of the suite holds its device as any other pod does.
    assert holders(pods, "n1", "nvidia.com/gpu") == {
        "team/theirs": 2, "team/ours": 1, "team/waits": 1,
    }  # fmt: skip
    assert holders(pods, "n2", "nvidia.com/gpu") == {}
    assert holders(pods, "n1", "nvidia.com/gpu.shared") == {}


def claim(consumer: str, *drivers: str, **more: Any) -> dict[str, Any]:
    results = [{"driver": driver, "device": "gpu-0", **more} for driver in drivers]
    return {
        "metadata": {"namespace": "team", "name": "c"},
        "status": {
            "allocation": {"devices": {"results": results}},
            "reservedFor": [{"resource": "pods", "name": consumer}],
        },
    }


def test_counts_gpus_of_pods_with_dra_claims_as_held() -> None:
    gpu = "gpu.nvidia.com"
    pods = [pod(name, 0) for name in ("one", "two", "network", "admin")]
    pods.append(pod("ended", 0, phase="Succeeded"))
    claims = [
        claim("one", gpu),
        claim("two", gpu, gpu),
        claim("two", gpu),
        claim("network", "nic.example.org", "compute-domain.nvidia.com"),
        claim("admin", gpu, adminAccess=True),
        claim("ended", gpu),
        claim("elsewhere", gpu),
        {"metadata": {"namespace": "team", "name": "pending"}},
    ]
    assert claimants(pods, claims, "n1") == {"team/one": 1, "team/two": 3}
    assert claimants(pods, claims, "n2") == {}


def test_leaves_out_claims_that_the_scheduler_made_of_limits() -> None:
    """Such a pod is counted by its limits, and only for the resource that it names."""
    by_limits = claim("theirs", "gpu.nvidia.com")
    by_limits["metadata"]["annotations"] = {
        "resource.kubernetes.io/extended-resource-claim": "true"
    }
    assert claimants([pod("theirs", 1)], [by_limits], "n1") == {}


class Target:
    """A cluster with some pods and claims; its own API."""

    def __init__(self, pods: list[Any], claims: list[Any], **unread: str) -> None:
        self.lists = {"Pod": pods, "ResourceClaim": claims}
        self.unread = unread
        self.api = self

    def find_whole(self, kind: Kind, **_: Any) -> tuple[list[Any], tuple[str, ...]]:
        return self.lists[kind.kind], tuple(self.unread.get(kind.kind, "").split())


def test_counts_a_gpu_with_a_dra_claim_as_not_idle() -> None:
    target = Target([pod("theirs", 0)], [claim("theirs", "gpu.nvidia.com")])
    (promise,) = device_promises(promised(CLUSTER, live("n1")))
    with pytest.raises(CheckSkipped, match="devices are held by team/theirs"):
        require_idle(target, promise)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["Pod", "ResourceClaim"])
def test_uses_no_device_that_an_unreadable_object_may_hold(kind: str) -> None:
    (promise,) = device_promises(promised(CLUSTER, live("n1")))
    target: Any = Target([], [], **{kind: "team/odd"})
    for require in (require_idle, require_free):
        with pytest.raises(CheckSkipped, match=r"held by team/odd \(which cannot be read\)"):
            require(target, promise)
    require_idle(Target([], []), promise)  # type: ignore[arg-type]


def test_waits_for_no_pod_that_only_has_its_label(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a minute before each device would be anybody's to take."""
    waits: list[float] = []
    monkeypatch.setattr("conformance.cluster.last_look.time.sleep", waits.append)
    monkeypatch.setattr("conformance.observe.holders._LEAVING", 0.2)
    (promise,) = device_promises(promised(CLUSTER, live("n1")))
    tenants, own = pod("theirs", 1, labels=OWN), pod("own", 1, labels=OWN)
    own["metadata"]["namespace"] = "divvy-conformance-0a1b2c-restricted"
    for holder, is_awaited in ((tenants, False), (own, True)):
        with pytest.raises(CheckSkipped, match="devices are held by"):
            require_idle(Target([holder], []), promise)  # type: ignore[arg-type]
        assert bool(waits) is is_awaited
