"""Containers with one GPU by the agent's CDI specification: the loader, and a framework."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from conformance.bare.container import was_refused
from conformance.bare.findings import Findings
from conformance.bare.gpus import Gpu
from conformance.bare.host import BareHost
from conformance.bare.injection import inject
from conformance.bare.kit import Kit
from conformance.check import BARE, check
from conformance.cluster.pods import Outcome
from conformance.load.training import read_training

_TOO_NEW = "cuda>=99.0"
_LIMIT = 3000


@check(
    "BARE-10",
    "a container finds the driver by its loader alone",
    "MUST",
    BARE,
    "its evidence has what the program in the container said",
)
@pytest.mark.exclusive
@pytest.mark.kit
def test_a_container_finds_the_driver_by_its_loader(
    root: Path, kit: Kit, idle: Gpu, tmp_path: Path, findings: Findings
) -> None:
    container = inject(kit, root, tmp_path, idle.uuid).container("plain")
    own = f"UUID: {idle.uuid})"
    listed = container.run("nvidia-smi", "-L").stdout
    findings.equal("GPUs that nvidia-smi lists in the container", 1, listed.count("UUID: GPU-"))
    findings.equal("it is the one that was given", True, own in listed)
    state = "listed" if "libcuda.so.1" in container.cached() else "not listed"
    findings.equal("libcuda.so.1 in the loader's cache", "listed", state)
    added = container.run("cuda-vector-add")
    passed = added.returncode == 0 and "Test PASSED" in added.stdout
    words = "Test PASSED" if passed else _last(added.stdout)
    findings.holds("cuda-vector-add by the loader alone", passed, "Test PASSED", words)
    findings.equal("it ran on the GPU that was given", True, own in added.stdout)
    container.environment.append(f"NVIDIA_REQUIRE_CUDA={_TOO_NEW}")
    refused = container.run("cuda-vector-add")
    findings.holds(
        f"an image that says {_TOO_NEW}",
        was_refused(refused) and "cuda" in refused.stdout,
        "refused by the hook, with the reason",
        _last(refused.stdout),
    )
    findings.judge()


def _last(text: str) -> str:
    lines = [re.sub(r"\s+", " ", line).strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "nothing"


@check(
    "BARE-16",
    "a framework trains within its share",
    "MUST",
    BARE,
    "its evidence has what the training said",
)
@pytest.mark.exclusive
@pytest.mark.kit
@pytest.mark.limit(160)
def test_a_framework_trains_within_its_share(
    host: BareHost, root: Path, kit: Kit, idle: Gpu, tmp_path: Path, findings: Findings
) -> None:
    share = inject(kit, root, tmp_path, idle.uuid).tenant("training", _LIMIT, 50)
    # tinygrad keeps what it has compiled in the home directory.
    share.environment.append("HOME=/tmp")
    seconds = 0 if host.simulated else 5
    train = share.python("/usr/bin/train.py", f"--seconds={seconds}", f"--ask={_LIMIT}")
    done = share.run(*train, seconds=150)
    findings.tell("its own words", done.stdout)
    read = read_training(Outcome("", done.returncode, done.stdout, ""))
    findings.equal("exit code", 0, done.returncode)
    findings.equal("the loss falls to a tenth, and every loss is a number", True, read.learns)
    findings.equal("the same training again has the same losses", True, read.is_repeated)
    findings.equal("memory that CUDA shows in MiB", _LIMIT, read.total)
    findings.equal("memory that nvidia-smi shows in MiB", _LIMIT, read.smi_mib)
    fits = read.used is not None and 0 < read.used <= _LIMIT
    findings.holds("memory that it uses in MiB", fits, f"at most {_LIMIT}", read.used)
    findings.equal(f"{_LIMIT} MiB more: refused with CUDA's code for that", True, read.refused)
    findings.equal("it trains on afterwards", True, read.goes_on)
    findings.judge()
