"""Limited shares as `divvy verify` sees them, sound and with faults."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.conformance.halted_burn import with_a_halted_burn
from tests.conformance.scene import Scene
from tests.limited_shares import LIMITED, followed, limited_shares

pytestmark = [pytest.mark.lab, pytest.mark.timeout(1200)]
CHECKS = "--select=ISO-06,ISO-08,ISO-09,ISO-10,ISO-11,ISO-12,WORK-01,WORK-06"


def results(report: dict[str, Any]) -> set[tuple[str, str]]:
    return {(check["id"], check["status"]) for check in report["checks"]}


def of_the_limiter(scene: Scene, node: str) -> dict[str, str]:
    """Return the limiter's libraries on a node, each with the driver's own that is behind it."""
    libraries = {}
    for name in scene.limited_cdi(node):
        files = scene.mounted_files(node, name)
        for library in ("libcuda", "libnvidia-ml"):
            libraries[files[f"{library}.so.1"]] = files[f"{library}-driver.so.1"]
    return libraries


@contextmanager
def agents_that_see_no_processes(scene: Scene) -> Iterator[None]:
    """Run the agents in a PID namespace of their own: NVML's processes have no containers."""
    path = "/spec/template/spec/hostPID"
    scene.patch_agents("json", [{"op": "replace", "path": path, "value": False}])
    scene.replace_agents()
    try:
        yield
    finally:
        scene.patch_agents("json", [{"op": "replace", "path": path, "value": True}])
        scene.replace_agents()


def test_proves_limited_shares_and_sees_their_faults(scene: Scene) -> None:
    with limited_shares(scene.deployed, "research", "notebooks"):
        sound = scene.verify("--pool=notebooks", CHECKS, "--exclusive", expect=0)
        assert {status for _, status in results(sound)} == {"passed"}, scene.output
        assert {check["case"] for check in sound["checks"]} == {"gpu-t4:nvidia.com/gpu.shared"}

        uneven = with_a_halted_burn(scene, "gpu-t4", "notebooks", "HW-05")
        assert (uneven["id"], uneven["status"]) == ("HW-05", "failed"), uneven

        with scene.replaced_files("gpu-a100", of_the_limiter(scene, "gpu-a100")):
            options = ("--pool=research", "--select=ISO-10,ISO-11,WORK-06", "--exclusive")
            faulty = scene.verify(*options, expect=1)
        by_the_limiter = ("ISO-10", "ISO-11", "WORK-06")
        assert results(faulty) == {(check, "failed") for check in by_the_limiter}, scene.output

        scene.driver("gpu-t4", "fault", "bad-math", "all")
        try:
            wrong = scene.verify("--pool=notebooks", "--select=WORK-06", "--exclusive", expect=1)
        finally:
            scene.driver("gpu-t4", "fault", "clear", "all")
        assert "not the same again: it computes wrong" in str(wrong["checks"]), scene.output

        with agents_that_see_no_processes(scene):
            blind = scene.verify("--pool=notebooks", "--select=ISO-12", "--exclusive", expect=1)
        assert results(blind) == {("ISO-12", "failed")}, scene.output


def test_proves_limited_shares_of_mig_devices(scene: Scene) -> None:
    sharing = {"replicas": 2, "memoryLimit": LIMITED["timeSlicing"]["memoryLimit"]}
    rule = {"mig": {"3g.20gb": 2}, "timeSlicing": sharing}
    with followed(scene.deployed, rule, "research"):
        # Not WORK-06: a pod on each of nine shares would train, on the processors of one machine.
        select = "--select=ISO-06,ISO-08,ISO-09,ISO-10,ISO-11"
        sound = scene.verify("--pool=research", select, "--exclusive", expect=0)
    assert len(sound["checks"]) == 5
    assert {status for _, status in results(sound)} == {"passed"}, scene.output
    assert {check["case"] for check in sound["checks"]} == {
        "gpu-a100:nvidia.com/mig-3g.20gb.shared"
    }
