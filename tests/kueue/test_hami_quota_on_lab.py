"""HAMi's namespace quotas, as `divvy import hami-quota` writes them, in Kueue on the lab.

Pods name their sizes as HAMi's do, and have no label of Kueue's.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from divvy.plan.kueue_quota import SHARE_MEMORY
from tests.api_reader import ApiReader
from tests.deployment import Deployment
from tests.kueue.running_kueue import MANAGED, refusal, running_kueue

pytestmark = [pytest.mark.lab, pytest.mark.timeout(900)]

GPU, MEMORY = "nvidia.com/gpu", "nvidia.com/gpumem"
GATE = {"name": "kueue.x-k8s.io/admission"}
MIB = 1 << 20
# By namespace, as an administrator of HAMi's has them.
QUOTAS = {
    "team": {"limits.nvidia.com/gpumem": "2000"},
    "none": {"limits.nvidia.com/gpumem": "0"},
    "numbers": {"limits.nvidia.com/gpu": "2", "pods": "10"},
}


@dataclass(frozen=True)
class Imported:
    """Kueue with the imported quotas, and the claims that it counts."""

    claims: Deployment
    api: ApiReader

    def start(self, namespace: str, name: str, **limits: int) -> None:
        """Create a pod with sizes in the words of HAMi's, such as ``gpumem``."""
        self.claims.lab.apply(self.pod(namespace, name, **limits))

    def pod(self, namespace: str, name: str, **limits: int) -> dict[str, Any]:
        """Return a pod that also requests a processor's time, which has no quota."""
        own = {f"nvidia.com/{key}": str(number) for key, number in limits.items()}
        container = {
            "name": "main",
            "image": self.claims.lab.busybox,
            "command": ["sleep", "infinity"],
            "resources": {"limits": own, "requests": {"cpu": "10m", "memory": "8Mi"}},
        }
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"terminationGracePeriodSeconds": 0, "containers": [container]},
        }

    def gated(self, namespace: str) -> set[str]:
        """Return the pods that Kueue has not admitted."""
        return {
            pod["metadata"]["name"]
            for pod in self.claims.lab.get("pods", f"-n={namespace}")["items"]
            if GATE in pod["spec"].get("schedulingGates", ())
        }

    def running(self, namespace: str) -> set[str]:
        """Return the pods that run."""
        return {
            pod["metadata"]["name"]
            for pod in self.claims.lab.get("pods", f"-n={namespace}")["items"]
            if pod["status"].get("phase") == "Running"
        }

    def reasons(self, namespace: str, name: str) -> str:
        """Return why Kueue does not admit a pod, "" while it does not say."""
        return refusal(self.api, namespace, name)

    def charged(self, namespace: str) -> int:
        """Return the MiB that a namespace's ClusterQueue has in use."""
        queue = self.api.get("clusterqueue", namespace)
        ((resource,),) = (
            flavor["resources"] for flavor in queue.get("status", {}).get("flavorsUsage", ())
        )
        assert resource["name"] == SHARE_MEMORY
        total: str = resource["total"]
        return int(total.removesuffix("Mi")) if total.endswith("Mi") else int(total) // MIB


def _namespaces() -> list[dict[str, Any]]:
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": MANAGED}}
        for name in QUOTAS
    ]


def _quotas() -> list[dict[str, Any]]:
    return [
        {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "gpu-quota", "namespace": namespace},
            "spec": {"hard": hard},
        }
        for namespace, hard in QUOTAS.items()
    ]


def _merged(own: dict[str, Any], imported: dict[str, Any]) -> dict[str, Any]:
    """Merge two documents as the first comment of the second one asks an administrator to."""
    resources = {**own.pop("resources"), **imported.pop("resources")}
    return {**own, **imported, "resources": resources}


@pytest.fixture(scope="module")
def imported(claims: Deployment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Imported]:
    folder: Path = tmp_path_factory.mktemp("imported")
    lab = claims.lab
    lab.apply(*_namespaces(), *_quotas())
    try:
        exported = folder / "quotas.yaml"
        exported.write_text(lab.kubectl("get", "resourcequota", "-A", "-o", "yaml"))
        written = claims.divvy("import", "hami-quota", str(exported))
        configuration, *objects = yaml.safe_load_all(written)
        own, *_ = yaml.safe_load_all(claims.divvy("plan", "--stack=lab", "-o", "kueue"))
        with (
            running_kueue(lab, _merged(own, configuration), folder) as api,
            contextlib.ExitStack() as ends,
        ):
            lab.apply(*objects)
            ends.callback(lab.kubectl, "delete", "clusterqueue", "team", "none")
            for name in QUOTAS:
                ends.callback(lab.kubectl, "delete", "pods", "--all", f"-n={name}")
            yield Imported(claims, api)
    finally:
        lab.kubectl("delete", "namespace", *QUOTAS)


def test_keeps_pods_above_a_namespaces_memory_waiting(imported: Imported) -> None:
    for name in ("first", "second", "third"):
        imported.start("team", name, gpu=1, gpumem=1000)
    imported.claims.until(lambda: len(imported.running("team")) == 2, 90)
    imported.claims.until(lambda: imported.charged("team") == 2000, 30)
    (waiting,) = imported.gated("team")
    imported.claims.until(lambda: imported.reasons("team", waiting) != "", 60)
    expected = f"insufficient unused quota for {SHARE_MEMORY} in flavor all-pools, 1000Mi more"
    assert expected in imported.reasons("team", waiting)
    ended = imported.running("team").pop()
    imported.claims.lab.kubectl("delete", "pod", ended, "-n=team")
    imported.claims.until(lambda: waiting in imported.running("team"), 90)
    imported.claims.lab.kubectl("delete", "pods", "--all", "-n=team")


def test_charges_a_pod_with_two_gpus_twice(imported: Imported) -> None:
    imported.start("team", "pair", gpu=2, gpumem=1001)
    imported.claims.until(lambda: imported.reasons("team", "pair") != "", 60)
    reason = imported.reasons("team", "pair")
    assert f"insufficient quota for {SHARE_MEMORY}" in reason, reason
    imported.claims.lab.kubectl("delete", "pod", "pair", "-n=team")
    imported.start("team", "pair", gpu=2, gpumem=1000)
    imported.claims.until(lambda: imported.charged("team") == 2000, 60)
    imported.claims.lab.kubectl("delete", "pod", "pair", "-n=team")


def test_admits_pods_without_gpus_and_no_whole_gpu(imported: Imported) -> None:
    imported.start("none", "plain")
    imported.start("none", "sized", gpu=1, gpumem=1)
    imported.start("none", "whole", gpu=1)
    imported.claims.until(lambda: imported.running("none") == {"plain"}, 60)
    for name in ("sized", "whole"):
        imported.claims.until(lambda name=name: imported.reasons("none", name) != "", 60)
    assert imported.gated("none") == {"sized", "whole"}
    assert SHARE_MEMORY in imported.reasons("none", "sized")
    assert f"{GPU} unavailable in ClusterQueue" in imported.reasons("none", "whole")


def test_refuses_a_third_whole_gpu(imported: Imported) -> None:
    lab = imported.claims.lab
    for name in ("whole-0", "whole-1"):
        imported.start("numbers", name, gpu=1)
    third = yaml.safe_dump(imported.pod("numbers", "whole-2", gpu=1))
    refused = lab.try_kubectl("apply", "--filename=-", stdin=third)
    assert f"exceeded quota: gpu-quota, requested: requests.{GPU}=1" in refused.stderr


def test_leaves_a_third_share_without_a_claim(imported: Imported) -> None:
    lab = imported.claims.lab
    for name in ("share-0", "share-1"):
        imported.start("numbers", name, gpu=1, gpumem=500)
    imported.claims.until(lambda: imported.running("numbers") >= {"share-0", "share-1"}, 90)
    imported.start("numbers", "share-2", gpu=1, gpumem=500)
    requested = "exceeded quota: gpu-quota, requested: divvy-share.deviceclass"
    imported.claims.until(
        lambda: any(
            requested in event["message"]
            for event in lab.get("events", "-n=numbers")["items"]
            if event["involvedObject"]["name"] == "share-2"
        ),
        60,
    )
    claims = lab.get("resourceclaims", "-n=numbers")["items"]
    owners = {claim["metadata"]["ownerReferences"][0]["name"] for claim in claims}
    assert {name for name in owners if name.startswith("share-")} == {"share-0", "share-1"}
