"""Every check is seen failing: faults are put into the lab, the report has to name them."""

import pytest

from tests.conformance.faults import FAULTS, Fault
from tests.conformance.scene import Scene
from tests.deployment import NAMESPACE

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]


def failed(report: dict) -> set[str]:
    return {check["id"] for check in report["checks"] if check["status"] == "failed"}


def test_passes_a_sound_lab_as_partial(scene: Scene) -> None:
    report = scene.verify("--pool=training", expect=0)
    assert failed(report) == set()
    assert (report["result"], report["mode"]) == ("partial", "simulated")
    assert "partial (SIMULATED)" in scene.output
    # INST checks are about the cluster, NODE-05 about a pool, everything else about a node.
    cases = {check["case"].split(":")[0] for check in report["checks"]}
    assert cases == {"cluster", "gpu-h100", "training"}


def test_passes_a_sound_lab_when_filled_and_burnt(scene: Scene) -> None:
    report = scene.verify("--exclusive", expect=0)
    assert failed(report) == set(), scene.output
    missed: dict[str, set[str]] = {}
    for check in report["checks"]:
        if check["status"] == "skipped":
            missed.setdefault(check["missed"], set()).add(check["id"])
    assert missed == {
        "option": {f"DISR-0{number}" for number in range(1, 9)},
        # One kind of device is there once: no pod can have two of them.
        # None is behind an NVSwitch; NODE-15 is of GPU nodes in no pool.
        "not applicable": {
            "HW-01",
            "HW-02",
            "HW-03",
            "HW-04",
            "INST-04",
            "NODE-08",
            "NODE-14",
            "NODE-15",
            "PLUG-08",
        },
    }
    assert report["statistics"]["requiredNotChecked"] == 0


def test_passes_a_sound_lab_when_disturbed(scene: Scene) -> None:
    report = scene.verify("--pool=training", "--disruptive", "--select=DISR", expect=0)
    statuses = {check["id"]: check["status"] for check in report["checks"]}
    passed = ("DISR-01", "DISR-02", "DISR-03", "DISR-04", "DISR-08")
    assert statuses == {**dict.fromkeys(passed, "passed"), "DISR-07": "skipped"}
    times = {check["id"]: str(check.get("evidence")) for check in report["checks"]}
    assert "allocatable of slice-4, from when its devices were free after" in times["DISR-03"]
    assert "allocatable as planned after" in times["DISR-03"]


def test_keeps_what_idle_pods_hold_on_a_sound_lab(scene: Scene) -> None:
    options = ("--disruptive", "--select=DISR-05,DISR-06")
    report = scene.verify(*options, expect=0)
    assert [(check["id"], check["case"], check["status"]) for check in report["checks"]] == [
        ("DISR-05", "gpu-a100", "passed"),
        ("DISR-06", "gpu-a100", "passed"),
    ]


def test_skips_checks_by_name_without_exec(scene: Scene) -> None:
    report = scene.verify("--pool=training", "--select=OBS-01,NODE-01", "--no-exec", expect=0)
    assert {check["id"]: check["status"] for check in report["checks"]} == {
        "NODE-01": "passed",
        "OBS-01": "skipped",
    }
    assert "--no-exec" in report["checks"][1]["reason"]


def test_checks_nothing_when_nothing_is_selected(scene: Scene) -> None:
    assert scene.verify("--select=HW", expect=2)["result"] == "nothing checked"


# Of each room of faults, `make test` sees the first one.
_FIRST = {fault.inflict.__module__: fault for fault in reversed(FAULTS)}.values()


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(fault, id=fault.title, marks=() if fault in _FIRST else pytest.mark.thorough)
        for fault in FAULTS
    ],
)
def test_names_a_fault_by_its_checks(scene: Scene, fault: Fault) -> None:
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
    assert failed(report) == set(fault.checks), scene.output
    if any(check["level"] == "MUST" for check in report["checks"]):
        assert report["result"] == "failure"


def test_reports_a_regression_from_the_report_before(scene: Scene) -> None:
    fault = next(fault for fault in FAULTS if fault.checks == ("ISO-02",))
    options = ("--pool=training", "--select=ISO-02")
    scene.verify(*options, expect=0)
    earlier = scene.folder / "earlier.tar.gz"
    (scene.folder / "out/conformance.tar.gz").rename(earlier)
    with fault.inflict(scene):
        scene.verify(*options, f"--compare={earlier}", expect=1)
    assert "newly fails: ISO-02 a pod sees its own device and no other (MUST)" in scene.output
    comment = (scene.folder / "out/comparison.md").read_text()
    assert "| gpu-h100:nvidia.com/gpu: expected" in comment


def test_finds_the_report_that_the_cluster_keeps_in_the_next_run(scene: Scene) -> None:
    """A run of a part is not kept: the next would name everything else as not checked."""
    scene.deployed.lab.kubectl(
        "delete", "configmap/divvy-conformance", f"-n={NAMESPACE}", "--ignore-not-found"
    )
    scene.verify("--select=NODE-10", "--compare=last", expect=0)
    assert "the cluster keeps no report yet" in scene.output
    assert "kept in the cluster" not in scene.output
    scene.verify("--no-exec", expect=0)
    assert f"kept in the cluster: ConfigMap {NAMESPACE}/divvy-conformance" in scene.output
    scene.verify("--select=NODE-10", "--compare=last", expect=0)
    remark = "that report was made with --no-exec, this one with --select=NODE-10"
    assert remark in " ".join(scene.output.split())
