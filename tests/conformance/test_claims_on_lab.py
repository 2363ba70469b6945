"""Claims as `divvy verify` sees them, sound and with faults."""

import copy
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.conformance.faults.installed import without
from tests.conformance.faults.other_programs import claims_for_all_containers
from tests.conformance.scene import Scene
from tests.conformance.test_limits_on_lab import of_the_limiter, results
from tests.limited_shares import followed

pytestmark = [pytest.mark.lab, pytest.mark.timeout(1200)]
SHARES: dict[str, Any] = {"memory": {"step": "256Mi"}}
ON_DEMAND = {"claims": {"shares": SHARES, "mig": ["1g.10gb", "3g.40gb"]}}
TENANTS = {"claims": {"shares": SHARES, "tenants": ["prod", "dev"]}}
NODE, POOL = "gpu-h100", "--pool=training"
POLICY = "validatingadmissionpolicybinding/divvy-gpu-requests"


def statuses(report: dict[str, Any]) -> dict[str, str]:
    return {check["id"]: check["status"] for check in report["checks"]}


def of_the_driver(scene: Scene, node: str) -> dict[str, str]:
    """Return what containers compute and look with on a node, each with an empty file."""
    files = scene.mounted_files(node)
    return dict.fromkeys((files["libcuda.so.1"], files["nvidia-smi"]), "/dev/null")


@contextmanager
def audited_only(scene: Scene, binding: str) -> Iterator[None]:
    """Let a policy refuse nothing for a while; its binding stays that of who made it."""

    def act(*actions: str) -> None:
        patch = json.dumps({"spec": {"validationActions": actions}})
        scene.deployed.lab.kubectl("patch", binding, "--type=merge", f"--patch={patch}")

    act("Audit")
    try:
        yield
    finally:
        act("Deny")


@contextmanager
def synced_each_minute(scene: Scene, node: str) -> Iterator[None]:
    """Give a node's kubelet its default period for a while."""
    config = "/etc/kubernetes/kubelet.yaml"

    def sync(old: str, new: str) -> None:
        change = f's/"syncFrequency": "{old}"/"syncFrequency": "{new}"/'
        scene.deployed.on_node(node, "sed", "--in-place", change, config)
        scene.deployed.divvy("lab", "restart", node, "kubelet")

    sync("10s", "1m")
    try:
        yield
    finally:
        sync("1m", "10s")


def test_proves_claims_and_sees_their_faults(scene: Scene) -> None:
    with followed(scene.deployed, ON_DEMAND, "training"):
        sound = scene.verify(POOL, "--exclusive", expect=0)
        by_check = statuses(sound)
        assert {check: by_check[check] for check in by_check if check.startswith("CLM")} == {
            **{f"CLM-0{number}": "passed" for number in range(1, 8)},
            "CLM-08": "skipped",
            "CLM-09": "passed",
            **{f"CLM-{number}": "passed" for number in range(10, 15)},
        }, scene.output
        assert "failed" not in by_check.values(), scene.output

        more = copy.deepcopy(scene.deployed.cluster)
        more["pools"]["training"]["hardware"]["gpus"] = 3
        lacking = scene.verify(POOL, "--select=CLM-01", cluster=more, expect=1)
        assert results(lacking) == {("CLM-01", "failed")}, scene.output

        scene.driver(NODE, "fault", "bad-math", "1")
        wrong = scene.verify(POOL, "--select=CLM-10", expect=1)
        scene.driver(NODE, "fault", "clear", "1")
        assert [check["case"] for check in wrong["checks"] if check["status"] == "failed"] == [
            f"{NODE}:GPU 1"
        ], scene.output

        with without("deviceclass", "divvy-share")(scene):
            classless = scene.verify(POOL, "--select=INST", expect=1)
        assert ("INST-04", "failed") in results(classless), scene.output

        of_shares = ("CLM-02", "CLM-03", "CLM-12")
        with scene.replaced_files(NODE, of_the_limiter(scene, NODE)):
            unlimited = scene.verify(
                POOL, f"--select={','.join(of_shares)}", "--exclusive", expect=1
            )
        assert results(unlimited) == {(check, "failed") for check in of_shares}, scene.output

        of_devices = ("CLM-05", "CLM-07")
        with scene.replaced_files(NODE, of_the_driver(scene, NODE)):
            blind = scene.verify(POOL, f"--select={','.join(of_devices)}", "--exclusive", expect=1)
        assert results(blind) == {(check, "failed") for check in of_devices}, scene.output

        with claims_for_all_containers(scene):
            shared = scene.verify(POOL, "--select=CLM-14", expect=1)
        assert results(shared) == {("CLM-14", "failed")}, scene.output

        with synced_each_minute(scene, NODE):
            late = scene.verify(POOL, "--select=CLM-09", expect=0)
        assert results(late) == {("CLM-09", "failed")}, scene.output

        with audited_only(scene, POLICY):
            admitted = scene.verify(POOL, "--select=CLM-04", expect=1)
        assert results(admitted) == {("CLM-04", "failed")}, scene.output


def test_proves_tenants_apart(scene: Scene) -> None:
    with followed(scene.deployed, TENANTS, "training"):
        apart = scene.verify(POOL, "--select=CLM", "--exclusive", expect=0)
        by_check = statuses(apart)
        passed = {"CLM-01", "CLM-05", "CLM-08", "CLM-09"}
        assert {check for check in by_check if by_check[check] == "passed"} == passed, scene.output
