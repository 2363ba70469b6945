"""The simulated driver beside this one: every call that both have, and what they answer."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from conformance.bare.findings import Findings
from conformance.bare.gpus import Gpu
from conformance.bare.host import BareHost
from conformance.bare.kit import Kit
from conformance.check import BARE, check
from conformance.skips import not_made
from divvy.model import model_of_product

_MAX_ROWS = 400


@check(
    "BARE-17",
    "this driver and the simulated one answer to the end",
    "MUST",
    BARE,
    "its evidence has the call that ended a process, and all answers that differ",
)
@pytest.mark.exclusive
@pytest.mark.kit
@pytest.mark.limit(120)
def test_the_simulated_driver_is_held_against_this_one(
    host: BareHost,
    kit: Kit,
    idle: Gpu,
    pytestconfig: pytest.Config,
    tmp_path: Path,
    findings: Findings,
) -> None:
    model = model_of_product(idle.product, idle.memory_mib)
    if model is None or not model.is_described:
        not_made(f"{idle.product} is not in Divvy's data: the simulator cannot be told what it is")
    reports = pytestconfig.getoption("--divvy-report")
    options = {
        "libraries": host.folder,
        "simulator": kit.programs / "simulator",
        "model": model.name,
        "gpus": len(host.gpus),
        "driver": host.driver,
        "index": idle.index,
        "uuid": idle.uuid,
        "scratch": tmp_path,
        "answers": Path(reports or tmp_path) / "driver-answers.json",
    }
    command = [sys.executable, "-m", "lab.kit.answers.both_drivers"]
    command += [f"--{name}={value}" for name, value in options.items()]
    done = subprocess.run(
        command, env=host.environment, capture_output=True, text=True, check=False
    )
    last = done.stderr.strip().splitlines()[-1:]
    assert done.returncode == 0, f"the drivers could not be asked: {last}"
    for kind, compared in json.loads(done.stdout).items():
        for name, ended in compared["ended"].items():
            findings.equal(f"{kind}: the {name} driver answers", "to the end", ended)
        differences = compared["differences"]
        counts = Counter(difference["kind"] for difference in differences)
        words = ", ".join(f"{counts[aspect]} of {aspect}" for aspect in ("code", "shape", "value"))
        findings.tell(f"{kind}: {compared['compared']} answers compared, differences", words)
        findings.tell(
            f"{kind}: calls that only the simulated driver has", compared["only_simulated"]
        )
        findings.tell(f"{kind}: calls that only this driver has", len(compared["only_real"]))
        rows = [
            tuple(difference[name] for name in ("call", "kind", "simulated", "real"))
            for difference in differences[:_MAX_ROWS]
        ]
        head = ("call", "differs in", "simulated", "this driver")
        findings.table(f"{kind}: differences", head, rows)
    findings.judge()
