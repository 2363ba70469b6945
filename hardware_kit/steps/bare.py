"""The conformance suite of a host without Kubernetes, as its users run it."""

from __future__ import annotations

import subprocess
import sys

import yaml

from hardware_kit.notes import Notes, not_made
from hardware_kit.settings import KitSettings

_SECONDS = 150


def run(settings: KitSettings, notes: Notes) -> None:
    """Run ``divvy verify --bare --exclusive`` and take its checks over."""
    used = [
        f"GPU {gpu.index} by {', '.join(gpu.users)}" for gpu in settings.machine.gpus if gpu.users
    ]
    if used:
        not_made(f"it works on every GPU, and some are used: {'; '.join(used)}")
    out = settings.scratch / "conformance"
    program = "from divvy.cli.main import main; main()"
    command = [sys.executable, "-c", program, "verify", "--bare", "--exclusive"]
    command += [f"--driver-root={settings.machine.root}", f"--workloads={settings.workloads}"]
    done = subprocess.run([*command, f"--out={out}"], timeout=_SECONDS, check=False)
    report = out / "report.yaml"
    if not report.exists():
        notes.holds("report", False, "written", f"none; exit code {done.returncode}")
        return
    document = yaml.safe_load(report.read_text())
    expected = "partial" if settings.machine.simulated else "success"
    notes.holds(
        "result",
        document["result"] in (expected, "success"),
        f"{expected}, or success",
        document["result"],
    )
    for check in document["checks"]:
        # Cases are named after the host, which a record does not tell.
        what = f"{check['id']} {check['title']} [{check['case'].partition(':')[2] or 'host'}]"
        if check["status"] == "skipped":
            notes.tell(what, f"not made: {check['reason']}")
        else:
            actual = check.get("actual", check["status"])
            notes.holds(what, check["status"] == "passed", check.get("expected", "passed"), actual)
