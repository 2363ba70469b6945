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
