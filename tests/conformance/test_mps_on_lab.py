"""Shares by MPS as `divvy verify` sees them, sound and with faults."""

import copy
from typing import Any

import pytest

from tests.conformance.scene import Scene
from tests.limited_shares import followed

pytestmark = [pytest.mark.lab, pytest.mark.timeout(1200)]
MPS = {"mps": {"replicas": 4, "failRequestsGreaterThanOne": True}}
CASE = "gpu-t4:nvidia.com/gpu.shared"


def results(report: dict[str, Any]) -> dict[str, str]:
    return {check["id"]: check["status"] for check in report["checks"]}


def test_proves_shares_by_mps_and_sees_their_faults(scene: Scene) -> None:
    with followed(scene.deployed, MPS, "notebooks"):
        sound = scene.verify("--pool=notebooks", "--exclusive", expect=0)
        passed = {
            check["id"]
            for check in sound["checks"]
            if check["status"] == "passed" and check["case"] == CASE
        }
        expected = {
            *("PLUG-03", "PLUG-04", "PLUG-06", "PLUG-09", "WORK-01", "WORK-02"),
            *("WORK-03", "WORK-07", "ISO-02", "ISO-04", "ISO-06", "ISO-07", "ISO-08", "ISO-09"),
            *("ISO-13", "ISO-15", "ISO-16", "OBS-05"),
        }
        assert passed >= expected, (sorted(expected - passed), scene.output)
        assert "failed" not in results(sound).values(), scene.output

        other = copy.deepcopy(scene.deployed.cluster)
        other["profiles"]["limited"] = {"mps": {"replicas": 8, "failRequestsGreaterThanOne": True}}
        options = ("--pool=notebooks", "--select=ISO-15,ISO-16", "--exclusive")
        faulty = scene.verify(*options, cluster=other, expect=1)
        assert results(faulty) == {"ISO-15": "failed", "ISO-16": "failed"}, scene.output


def test_proves_limited_shares_by_mps(scene: Scene) -> None:
    limit = {"limit": "3000Mi", "action": "prevent"}
    with followed(scene.deployed, {"mps": {"replicas": 4, "memoryLimit": limit}}, "notebooks"):
        select = "--select=ISO-06,ISO-08,ISO-09,ISO-10,ISO-11,ISO-12,ISO-16,WORK-01,WORK-06"
        sound = scene.verify("--pool=notebooks", select, "--exclusive", expect=0)
    assert results(sound) == dict.fromkeys(select.partition("=")[2].split(","), "passed"), (
        scene.output
    )


def test_leaves_shares_by_mps_alone_when_disturbed(scene: Scene) -> None:
    with followed(scene.deployed, MPS, "notebooks"):
        options = ("--pool=notebooks", "--select=DISR", "--exclusive", "--disruptive")
        sound = scene.verify(*options, expect=0)
    assert results(sound) == {
        **dict.fromkeys(("DISR-02", "DISR-03", "DISR-04"), "passed"),
        # MPS daemons end with the agent's pod; the first process of the lab's nodes is not systemd.
        **dict.fromkeys(("DISR-01", "DISR-07", "DISR-08"), "skipped"),
    }, scene.output
