"""The suite in the lab, as a Job and by hydrophone: its rights suffice, its results are read."""

from __future__ import annotations

import base64
import json
import os
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest

from divvy.lab.tools import HYDROPHONE
from divvy.reports.archive import REPORT, unpack
from tests.conformance.scene import Scene
from tests.deployment import NAMESPACE
from tests.divvy_command import divvy_command

pytestmark = [pytest.mark.lab, pytest.mark.thorough, pytest.mark.timeout(900)]
ENDED = ("succeeded", "failed")


def test_checks_the_same_in_a_job_as_on_a_workstation(scene: Scene) -> None:
    lab, out = scene.deployed.lab, scene.folder / "job"
    here = scene.verify("--pool=training")
    _write_job(scene, out)
    lab.kubectl("delete", "configmap/divvy-conformance", f"-n={NAMESPACE}", "--ignore-not-found")
    job = f"--filename={out / 'verify-job.yaml'}"
    lab.kubectl("apply", job)
    try:
        scene.deployed.until(
            lambda: any(lab.get("job", "divvy-verify", f"-n={NAMESPACE}")["status"].get(ended)
                        for ended in ENDED),
            600,
        )  # fmt: skip
        log = lab.kubectl("logs", "job/divvy-verify", f"-n={NAMESPACE}")
        kept = lab.get("configmap", "divvy-conformance", f"-n={NAMESPACE}")
        noted = lab.get("node", "gpu-h100")["metadata"]["annotations"]
    finally:
        lab.kubectl("delete", job)
    report = json.loads(unpack(base64.b64decode(kept["binaryData"]["conformance.tar.gz"]))[REPORT])
    # Nothing is not checked for want of a right, and nothing else comes out than from here.
    reasons = {check.get("reason", "") for check in report["checks"]}
    assert not [reason for reason in reasons if "forbidden" in reason], log
    seen = {(check["id"], check["case"]): check["status"] for check in report["checks"]}
    assert {key: seen.get(key) for key in outcomes(here)} == outcomes(here), log
    assert noted["divvy.gpu/conformance-success"].isdecimal()


def test_gives_its_results_to_hydrophone(scene: Scene) -> None:
    out, results = scene.folder / "job", scene.folder / "results"
    printed = _write_job(scene, out, "--select=PLUG-02,WORK-01").splitlines()[-1].split()
    assert printed[0] == "hydrophone"
    command = [str(HYDROPHONE.bin / "hydrophone"), *printed[1:]]
    command += [f"--kubeconfig={scene.deployed.lab.kubeconfig}", f"--output-dir={results}"]
    try:
        done = subprocess.run(
            [*command, "--disable-progress-status"],
            env=os.environ, capture_output=True, text=True, check=False, timeout=600,
        )  # fmt: skip
    finally:
        # It refuses to run where one that was killed has left it.
        namespaces = scene.deployed.lab.kubectl("get", "namespaces", "--output=name")
        gone = ("--ignore-not-found", "--wait=false")
        scene.deployed.lab.kubectl("delete", "namespace", "divvy-verify", *gone)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "\npartial (SIMULATED): " in (results / "e2e.log").read_text()
    cases = ElementTree.parse(results / "junit_01.xml").iter("testcase")
    checks = {case.get("classname") for case in cases if case.find("skipped") is None}
    assert checks == {"PLUG-02", "WORK-01"}
    # What it made is gone.
    assert "divvy-verify" not in namespaces


def _write_job(scene: Scene, out: Path, *options: str) -> str:
    """Write the files, and return what is printed."""
    options = (*options, f"--out={out}", f"--workload-image={scene.image}", "--in-cluster")
    command = divvy_command("verify", f"--file={scene.stack_file()}", *options)
    return subprocess.run(
        command, env=scene.environment, check=True, timeout=300, capture_output=True, text=True
    ).stdout


def outcomes(report: dict) -> dict[tuple[str, str], str]:
    return {(check["id"], check["case"]): check["status"] for check in report["checks"]}
