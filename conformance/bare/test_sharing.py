"""Programs that share one GPU of this host: replicas that take turns, and MIG devices."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from conformance.bare.findings import Findings
from conformance.bare.gpus import Gpu
from conformance.bare.host import BareHost
from conformance.bare.interruption import Interruption
from conformance.bare.mig import mig_layout, mixed_layout
from conformance.bare.run_state import STATE
from conformance.bare.time_share import Start, TimeShare
from conformance.check import BARE, check
from conformance.load.neighbours import Figures, gigabytes, mig_keeps, replicas_keep
from conformance.skips import not_applicable
from divvy.model import model_of_product

_REPLICAS = 4
_COPY_MIB = 64


def _start_on(host: BareHost, workloads: str, device: str) -> Start:
    """Return what starts a workload on a device."""
    return lambda program, *arguments: host.start(
        Path(workloads, program), *arguments, device=device
    )


@check(
    "BARE-15",
    "replicas of a GPU all advance",
    "SHOULD",
    BARE,
    "time-slicing gives no fixed share: use MIG where one is needed",
    needs_hardware=True,
)
@pytest.mark.exclusive
def test_replicas_of_a_gpu_all_advance(
    host: BareHost,
    workloads: str,
    idle: Gpu,
    time_share: TimeShare,
    measured_for: Callable[[float], float],
    findings: Findings,
) -> None:
    start, seconds = _start_on(host, workloads, idle.uuid), measured_for(6)
    size = time_share.kernel_size(start)
    (alone,) = time_share.together([start], size, seconds)
    speeds = time_share.together([start] * _REPLICAS, size, seconds)
    fair = alone / _REPLICAS or 1.0
    rows = [("alone", alone, "–")]
    rows += [(str(n), speed, f"{speed / fair:.0%}") for n, speed in enumerate(speeds, 1)]
    head = ("program", "Gflop/s", "of a fair part")
    findings.table(f"{_REPLICAS} programs at once, {seconds:g} s", head, rows)
    judged = replicas_keep(Figures(alone, tuple(speeds), ()), _REPLICAS)
    findings.measured("each replica's part", *judged)
    findings.tell("all together, of what one has alone", f"{sum(speeds) / (alone or 1.0):.0%}")
    findings.judge()


@pytest.fixture
def layout(idle: Gpu) -> dict[str, int]:
    """Give a MIG layout of unequal devices for the idle GPU's model."""
    if idle.mig == "N/A":
        not_applicable(f"{idle.product} has no MIG")
    model = model_of_product(idle.product, idle.memory_mib)
    if model is None or model.mig is None:
        not_applicable(f"{idle.product} has MIG, and Divvy's data does not know its geometry")
    return mixed_layout(model.mig)


@check(
    "BARE-18",
    "a MIG layout is made and unmade",
    "MUST",
    BARE,
    "its evidence has the driver's error; `nvidia-smi mig` shows what is there",
)
@pytest.mark.mig
@pytest.mark.limit(90)
def test_a_mig_layout_is_made_and_unmade(
    host: BareHost,
    root: Path,
    idle: Gpu,
    layout: dict[str, int],
    interruption: Interruption,
    findings: Findings,
) -> None:
    began = time.monotonic()
    with mig_layout(root, idle.uuid, layout, STATE, interruption) as uuids:
        findings.tell("made in seconds", time.monotonic() - began)
        listed = _listed(host, idle)
        findings.equal("MIG devices as nvidia-smi lists them", _words(layout), listed)
        findings.equal("MIG devices that the agent sees", sum(layout.values()), len(uuids))
        began = time.monotonic()
    findings.tell("unmade in seconds", time.monotonic() - began)
    mode = next(gpu.mig for gpu in host.gpus if gpu.uuid == idle.uuid)
    findings.equal("MIG mode afterwards", "Disabled", mode)
    findings.equal("MIG devices afterwards", "none", _listed(host, idle) or "none")
    findings.judge()


def _words(layout: dict[str, int]) -> str:
    return ", ".join(f"{count} × {name}" for name, count in sorted(layout.items()))


def _listed(host: BareHost, gpu: Gpu) -> str:
    _, _, own = host.run("nvidia-smi -L").log.partition(f"(UUID: {gpu.uuid})")
    own = own.partition("\nGPU ")[0]
    return _words(Counter(re.findall(r"^\s+MIG (\S+)\s+Device", own, re.MULTILINE)))


@check(
    "BARE-19",
    "MIG devices keep their compute and bandwidth beside each other",
    "SHOULD",
    BARE,
    "look for a power or clock limit: `nvidia-smi -q -d PERFORMANCE`",
    needs_hardware=True,
)
@pytest.mark.mig
@pytest.mark.limit(120)
def test_mig_devices_keep_their_compute_and_bandwidth(
    host: BareHost,
    root: Path,
    workloads: str,
    idle: Gpu,
    layout: dict[str, int],
    time_share: TimeShare,
    measured_for: Callable[[float], float],
    interruption: Interruption,
    findings: Findings,
) -> None:
    seconds = measured_for(4)
    with mig_layout(root, idle.uuid, layout, STATE, interruption) as uuids:
        starts = [_start_on(host, workloads, uuid) for uuid in uuids]
        # A kernel takes its time on the smallest device; all run the same.
        size = time_share.kernel_size(starts[-1])

        def burn(together: Sequence[Start]) -> list[float]:
            return time_share.together(together, size, seconds)

        def copy(together: Sequence[Start]) -> list[float]:
            running = [start("mem-bandwidth", _COPY_MIB, seconds) for start in together]
            return [gigabytes(host.end(process).log) for process in running]

        for unit, work in (("Gflop/s", burn), ("GB/s", copy)):
            alone = [work([start])[0] for start in starts]
            rows = []
            for number, (by_itself, beside) in enumerate(zip(alone, work(starts), strict=True), 1):
                figures = Figures(by_itself, (beside,), ())
                findings.measured(f"device {number}", *mig_keeps(figures, unit))
                rows.append((str(number), by_itself, beside, f"{figures.worst_part():.0%}"))
            head = ("MIG device", f"{unit} alone", f"{unit} beside all others", "kept")
            findings.table(f"{unit}, {seconds:g} s", head, rows)
    findings.judge()


@check(
    "BARE-20",
    "a broken program in one MIG device leaves the others alone",
    "SHOULD",
    BARE,
    "see the kernel's log for the XID, and the driver's release notes",
    needs_hardware=True,
)
@pytest.mark.mig
@pytest.mark.limit(90)
def test_a_broken_program_leaves_other_mig_devices_alone(
    host: BareHost,
    root: Path,
    workloads: str,
    idle: Gpu,
    layout: dict[str, int],
    interruption: Interruption,
    findings: Findings,
) -> None:
    with mig_layout(root, idle.uuid, layout, STATE, interruption) as uuids:
        first, *others = (_start_on(host, workloads, uuid) for uuid in uuids)
        burns = [start("gpu-burn", "-m", "64", "-stts", "1", "4") for start in others]
        broken = host.end(first("bad-access"))
        sound = sum(burn.code == 0 and "GPU 0: OK" in burn.log for burn in map(host.end, burns))
    findings.equal("exit code of a program that breaks on device 1", 0, broken.code)
    findings.equal("burns beside it that end OK", len(burns), sound)
    findings.judge()
