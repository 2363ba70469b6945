"""The suite in the lab as a Job: its rights suffice, its results are read."""

from __future__ import annotations

import base64
import json
import subprocess
from pathlib import Path

import pytest

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


def _write_job(scene: Scene, out: Path, *options: str) -> str:
    """Write the files, and return what is printed."""
    options = (*options, f"--out={out}", f"--workload-image={scene.image}", "--in-cluster")
    command = divvy_command("verify", f"--file={scene.stack_file()}", *options)
    return subprocess.run(
        command, env=scene.environment, check=True, timeout=300, capture_output=True, text=True
    ).stdout


def outcomes(report: dict) -> dict[tuple[str, str], str]:
    return {(check["id"], check["case"]): check["status"] for check in report["checks"]}
