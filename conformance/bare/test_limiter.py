"""Shares with limits on this driver: their memory, their parts of the time, what a call costs."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from conformance.bare.call_costs import calls_within, paired
from conformance.bare.container import Container
from conformance.bare.findings import Findings
from conformance.bare.gpus import Gpu
from conformance.bare.host import BareHost
from conformance.bare.injection import inject
from conformance.bare.kit import Kit
from conformance.bare.time_share import TimeShare
from conformance.check import BARE, check
from conformance.evidence import Evidence
from divvy.agent.inject.share_usage import Figures, read_account

pytestmark = [pytest.mark.exclusive, pytest.mark.kit]

_MIB = 1 << 20
_LIMIT, _TENTHS = 1024, 1000
# More than the limit has room for; CUDA's own refusal is mem-hog's exit code 12.
_REFUSED = 12
_WEIGHTS = (30, 70)
_POINTS = 3.0
_KEEPS = 0.85
# Enough to know how long a call takes. A driver takes a hundred times as long to allocate as to
# launch, and on some machines ten times as long as on others.
_TRIAL = {"allocate": 500, "launch": 2_000}


@check(
    "BARE-12",
    "a share's memory limit holds in races and kills",
    "MUST",
    BARE,
    "its evidence says what was granted: such a driver must not be shared by size",
)
@pytest.mark.limit(120)
def test_a_memory_limit_holds_in_races_and_kills(
    host: BareHost, root: Path, kit: Kit, idle: Gpu, tmp_path: Path, findings: Findings
) -> None:
    injected = inject(kit, root, tmp_path, idle.uuid)
    rounds, kills = (150, 3) if host.simulated else (1500, 10)
    container, tenths = injected.tenant("memory", _LIMIT), injected.tenant("tenths", _TENTHS)
    for tenant in (container, tenths):
        tenant.environment.append("LIBCUDA=libcuda.so.1")
    _refusal(container, findings)
    _race(container, findings, rounds, 2, 600, 1)
    _race(tenths, findings, max(3, rounds // 30), 32, 100, 10)
    _killed(container, findings, kills)
    findings.judge()


def _refusal(container: Container, findings: Findings) -> None:
    hog = container.run("mem-hog", "--mib", _LIMIT * 11 // 10, "--chunk", 64)
    got = re.search(r"allocated (\d+) MiB.*device: (\d+) MiB total", hog.stdout)
    granted, total = (int(got[1]), int(got[2])) if got else (-1, -1)
    findings.equal("a tenth more than the limit: mem-hog's exit code", _REFUSED, hog.returncode)
    findings.holds("granted of it in MiB", 0 <= granted <= _LIMIT, f"at most {_LIMIT}", granted)
    findings.equal("total memory as CUDA tells it in MiB", _LIMIT, total)
    smi = container.run("nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits")
    smi_total = smi.stdout.strip()
    findings.equal("total memory as nvidia-smi tells it in MiB", str(_LIMIT), smi_total)


def _race(
    container: Container, findings: Findings, rounds: int, processes: int, mib: int, winners: int
) -> None:
    began = time.monotonic()
    done = container.run("race", rounds, processes, mib * _MIB, seconds=100)
    what = f"{processes} processes that each want {mib} MiB, {rounds} rounds: granted"
    expected = f"{winners} in {rounds} rounds"
    outcomes = "; ".join(
        f"{count} in {times} rounds"
        for count, times in re.findall(r"^(\d+) (\d+)$", done.stdout, re.MULTILINE)
    )
    sound = outcomes == expected and done.returncode == 0
    seen = outcomes or f"exit code {done.returncode}: {done.stdout}"
    findings.holds(what, sound, expected, seen)
    findings.tell("seconds that it took", time.monotonic() - began)


def _killed(container: Container, findings: Findings, kills: int) -> None:
    generator = random.Random(5)
    for seed in range(kills):
        churning = container.start("race", "churn", seed)
        assert churning.stdout is not None
        churning.stdout.readline()
        time.sleep(generator.random() * 0.02)
        churning.kill()
        churning.communicate()
    figures = _settled(
        Path(next(share.host for share in container.shares if share.path.endswith("account")))
    )
    left = f"{len(figures.slots)} processes, {figures.used[0]} bytes"
    what = f"left in the account after {kills} processes killed while three threads allocate"
    findings.equal(what, "0 processes, 0 bytes", left)
    after = container.run("mem-hog", "--mib", _LIMIT * 9 // 10)
    findings.equal("nine tenths of the limit afterwards: mem-hog's exit code", 0, after.returncode)


def _settled(account: Path) -> Figures:
    """Return the account once the kernel has ended what was killed, within some seconds."""
    deadline = time.monotonic() + 5
    while True:
        figures = read_account(account)
        if not figures.slots or time.monotonic() > deadline:
            return figures
        time.sleep(0.05)


@check(
    "BARE-13",
    "shares of 30 and 70 get their parts of the GPU's time",
    "SHOULD",
    BARE,
    "look for a power or clock limit: `nvidia-smi -q -d PERFORMANCE`",
    needs_hardware=True,
)
def test_shares_get_their_parts_of_the_time(
    root: Path,
    kit: Kit,
    idle: Gpu,
    time_share: TimeShare,
    measured_for: Callable[[float], float],
    tmp_path: Path,
    findings: Findings,
) -> None:
    injected, seconds = inject(kit, root, tmp_path, idle.uuid), measured_for(10)
    both = [injected.tenant(f"share-{weight}", 2048, weight) for weight in _WEIGHTS]
    size = time_share.kernel_size(both[0].start)
    findings.tell("size of its kernels, a millisecond each", size)
    (alone,) = time_share.together([both[0].start], size, seconds / 2)
    speeds = time_share.together([tenant.start for tenant in both], size, seconds)
    whole = sum(speeds) or 1.0
    parts = [100 * speed / whole for speed in speeds]
    rows = [
        (f"{weight} %", speed, f"{part:.1f} %")
        for weight, speed, part in zip(_WEIGHTS, speeds, parts, strict=True)
    ]
    head = ("share", "Gflop/s", "part of both")
    findings.table(f"both burn, {seconds:g} s", head, [("30 %, alone", alone, "–"), *rows])
    findings.measured(
        "their parts",
        abs(parts[0] - _WEIGHTS[0]) <= _POINTS,
        f"30 and 70 %, within {_POINTS:.0f} points",
        f"{parts[0]:.1f} and {parts[1]:.1f} %",
    )
    findings.measured(
        "both together, of what one has alone",
        whole >= _KEEPS * alone,
        f"at least {_KEEPS:.0%}",
        f"{whole / alone:.0%}" if alone else "nothing",
    )
    findings.judge()


@check(
    "BARE-14",
    "what the limiter adds to a call is measured",
    "SHOULD",
    BARE,
    "its evidence has what driver-calls said",
    needs_hardware=True,
)
@pytest.mark.limit(100)
def test_a_call_through_the_limiter_is_measured(
    root: Path,
    kit: Kit,
    idle: Gpu,
    measured_for: Callable[[float], float],
    tmp_path: Path,
    findings: Findings,
    evidence: Evidence,
) -> None:
    injected = inject(kit, root, tmp_path, idle.uuid)
    bare, limited = injected.container("bare"), injected.tenant("limited", 2048, 50)
    injected.tenant("idle", 2048, 40)
    seconds = measured_for(7) / 7
    rows = []
    for what, few in _TRIAL.items():
        calls = calls_within(seconds, _per_call(limited, what, few))
        costs = paired(
            7,
            partial(_per_call, bare, what, calls),
            partial(_per_call, limited, what, calls),
        )
        rows += [
            (what, name, *(f"{figure:.0f}" for figure in figures)) for name, figures in costs.rows
        ]
        added = dict(costs.rows)["added"][1]
        evidence.measure(f"ns added to each {what}", added)
        findings.holds(f"{what}, ns added", True, "a figure of each round", f"{added:.0f}")
    head = ("call", "driver", "least", "median", "greatest")
    findings.table("nanoseconds a call, 7 rounds in turns", head, rows)
    findings.judge()


def _per_call(container: Container, what: str, calls: int) -> float:
    done = container.run("driver-calls", "libcuda.so.1", what, calls, seconds=100)
    output = done.stdout.strip()
    assert done.returncode == 0, f"driver-calls ended with {done.returncode}: {output}"
    return float(output)
