"""Every check is seen failing: faults are put into the lab, the report has to name them."""

import pytest

from tests.conformance.faults import FAULTS, Fault, quick_recovery
from tests.conformance.scene import Scene

pytestmark = [pytest.mark.lab, pytest.mark.timeout(240)]


def failed(report: dict) -> set[str]:
    return {check["id"] for check in report["checks"] if check["status"] == "failed"}


def test_a_sound_lab_passes_and_is_partial(scene: Scene) -> None:
    report = scene.verify("--pool=training", expect=0)
    assert failed(report) == set()
    assert (report["result"], report["mode"]) == ("partial", "simulated")
    assert "partial (SIMULATED)" in scene.said
    assert {check["case"].split(":")[0] for check in report["checks"]} == {"gpu-h100"}


def test_a_sound_lab_passes_when_it_is_filled_and_burnt(scene: Scene) -> None:
    report = scene.verify("--exclusive", expect=0)
    assert failed(report) == set(), scene.said
    skipped = {check["id"] for check in report["checks"] if check["status"] == "skipped"}
    by_hand = {"DISR-01", "DISR-02", "DISR-03", "DISR-04"}
    assert skipped == {*by_hand, "HW-01", "HW-02", "HW-03", "HW-04"}


def test_a_sound_lab_passes_when_it_is_disturbed(scene: Scene) -> None:
    with quick_recovery(scene):
        report = scene.verify("--pool=training", "--disruptive", "--select=DISR", expect=0)
    statuses = {check["id"]: check["status"] for check in report["checks"]}
    assert statuses == dict.fromkeys(("DISR-01", "DISR-02", "DISR-03", "DISR-04"), "passed")
    times = {check["id"]: str(check["evidence"]) for check in report["checks"]}
    assert "allocatable of slice-4, from when its devices were free after" in times["DISR-03"]
    assert "allocatable as planned after" in times["DISR-03"]


def test_without_exec_its_checks_are_skipped_by_name(scene: Scene) -> None:
    report = scene.verify("--pool=training", "--select=OBS-01,NODE-01", "--no-exec", expect=0)
    assert {check["id"]: check["status"] for check in report["checks"]} == {
        "NODE-01": "passed",
        "OBS-01": "skipped",
    }
    assert "--no-exec" in report["checks"][1]["reason"]


def test_what_selects_nothing_checks_nothing(scene: Scene) -> None:
    assert scene.verify("--select=HW", expect=2)["result"] == "nothing checked"


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.title)
def test_a_fault_is_named_by_its_checks(scene: Scene, fault: Fault) -> None:
    with fault.inflict(scene) as options:
        image = [f"--workload-image={options['image']}"] if "image" in options else []
        report = scene.verify(
            f"--pool={fault.pool}",
            f"--select={','.join(fault.checks)}",
            "--exclusive",
            "--disruptive",
            *image,
            cluster=options.get("cluster"),
        )
    assert failed(report) == set(fault.checks), scene.said
    if any(check["level"] == "MUST" for check in report["checks"]):
        assert report["result"] == "failure"


def test_a_regression_stands_out_from_the_baseline(scene: Scene) -> None:
    fault = next(fault for fault in FAULTS if fault.checks == ("ISO-02",))
    scene.verify("--pool=training", "--select=ISO-02", expect=0)
    earlier = scene.folder / "earlier.yaml"
    (scene.folder / "out/report.yaml").rename(earlier)
    with fault.inflict(scene):
        options = ("--pool=training", "--select=ISO-02", f"--baseline={earlier}")
        scene.verify(*options, expect=1)
    assert "broke since the baseline: ISO-02 gpu-h100:nvidia.com/gpu" in scene.said
