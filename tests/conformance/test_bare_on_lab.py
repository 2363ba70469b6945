"""A bare host: one with the simulated driver, one whose driver is wrong, one without any."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from divvy.cli.main import app
from lab.cluster.paths import REPOSITORY
from tests.conformance.faults import A100, T4
from tests.conformance.scene import Scene
from tests.divvy_command import divvy_command

OUT = "/run/divvy-bare"
SIMULATED = pytest.mark.lab
# The first test on a second lab deploys there, beside all other lanes.
LIMIT = pytest.mark.timeout(600)

FOLDER = "/run/nvidia/driver/usr/lib/x86_64-linux-gnu"
SMI = "/run/nvidia/driver/usr/bin/nvidia-smi"


def verify(scene: Scene, node: str, *options: str) -> dict[str, Any]:
    """Run `divvy verify --bare` on a node, whose files are its own."""
    command = divvy_command("verify", "--bare", f"--out={OUT}", *options)
    inside = ["sh", "-c", 'cd "$0" && "$@" >&2; cat "$OUT/report.yaml"', str(REPOSITORY), *command]
    text = scene.deployed.on_node(node, "env", f"OUT={OUT}", f"PYTHONPATH={REPOSITORY}", *inside)
    report: dict[str, Any] = yaml.safe_load(text)
    return report


@SIMULATED
@LIMIT
def test_passes_a_host_with_a_sound_driver(scene: Scene) -> None:
    # Pods of the test before may still be on their way out.
    running = ("--query-compute-apps=pid", "--format=csv,noheader")
    scene.deployed.until(lambda: not scene.deployed.on_node(A100, "nvidia-smi", *running).strip())
    report = verify(scene, A100, "--exclusive", "--select=BARE-01,BARE-02,BARE-03,BARE-04,BARE-06")
    assert (report["result"], report["mode"]) == ("partial", "simulated")
    cases = {check["id"]: 0 for check in report["checks"]}
    for check in report["checks"]:
        cases[check["id"]] += check["status"] == "passed"
    # Four GPUs, two of them cut into four.
    assert cases == {"BARE-01": 1, "BARE-02": 1, "BARE-03": 10, "BARE-04": 10, "BARE-06": 8}


@SIMULATED
@LIMIT
def test_reports_another_libcuda_and_bad_arithmetic(scene: Scene) -> None:
    before = scene.deployed.on_node(T4, "readlink", f"{FOLDER}/libcuda.so.1").strip()
    scene.driver(T4, "fault", "bad-math", "all")
    scene.deployed.on_node(T4, "ln", "-sf", "libcuda.so.570.133.20", f"{FOLDER}/libcuda.so.1")
    try:
        report = verify(scene, T4, "--exclusive", "--select=BARE-01,BARE-05")
    finally:
        scene.deployed.on_node(T4, "ln", "-sf", before, f"{FOLDER}/libcuda.so.1")
        scene.driver(T4, "fault", "clear", "all")
    assert failed(report) == {"BARE-01", "BARE-05"}


@SIMULATED
@LIMIT
def test_reports_devices_that_differ_from_nvidia_smi(scene: Scene) -> None:
    """It lists a MIG device too many, with a UUID that nothing has."""
    made_up = "  MIG 1g.5gb      Device  0: (UUID: MIG-made-up)"
    script = f'#!/bin/sh\n{SMI}.real "$@"; [ "$1" = -L ] && echo \'{made_up}\'; true\n'
    place = f"mv {SMI} {SMI}.real && printf '%s' \"$0\" > {SMI} && chmod +x {SMI}"
    scene.deployed.on_node(A100, "sh", "-c", place, script)
    try:
        report = verify(scene, A100, "--exclusive", "--select=BARE-02,BARE-03,BARE-04,BARE-06")
    finally:
        scene.deployed.on_node(A100, "mv", f"{SMI}.real", SMI)
    assert failed(report) == {"BARE-02", "BARE-03", "BARE-04", "BARE-06"}


def failed(report: dict[str, Any]) -> set[str]:
    return {check["id"] for check in report["checks"] if check["status"] == "failed"}


def test_reports_a_host_without_a_driver(tmp_path: Path) -> None:
    options = ["verify", "--bare", f"--out={tmp_path}", f"--driver-root={tmp_path / 'nothing'}"]
    result = CliRunner().invoke(app, options)
    assert result.exit_code == 2
    report = yaml.safe_load((tmp_path / "report.yaml").read_text())
    assert report["result"] == "nothing checked"
    reasons = {check["reason"] for check in report["checks"] if check["missed"] == "not made"}
    assert {reason.partition(" on ")[0] for reason in reasons} == {"no NVIDIA driver"}


def test_refuses_options_of_a_bare_host_without_bare() -> None:
    result = CliRunner().invoke(app, ["verify", "--host=ssh://somewhere"])
    assert result.exit_code == 1
    assert "--host is for --bare" in result.output
