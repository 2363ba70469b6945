"""What the limiter costs: calls through it, in turns with the same calls to the bare driver.

Calls are timed on a driver that answers at once, so that what the limiter adds is not lost in
what a driver takes. Two tenants that both burn on the simulated driver show how their weights are
kept. Needs neither root nor the lab.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from conformance.bare.call_costs import paired
from divvy.model.sharing import DeviceShare, Sharing
from lab.cluster.simulated_driver import build
from lab.driver_clients.driver_root import DriverRoot
from tests.limiter.tenant import Tenant, build_limiter, line, tell
from tests.limiter.test_gate import BURN

_ROUNDS = 15
_CALLS = {"allocate": 100_000, "launch": 2_000_000}
_SECONDS = 10.0
_UUID = "GPU-11111111-1111-1111-1111-111111111111"  # of idle_driver.c


def _per_call(program: Path, library: Path, what: str) -> float:
    command = [str(program), str(library), what, str(_CALLS[what])]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(done.stdout)


def _paired(program: Path, bare: Path, limited: Path, what: str) -> None:
    """Print the least, the median and the greatest of both, and of what is added."""
    costs = paired(
        _ROUNDS,
        lambda: _per_call(program, bare, what),
        lambda: _per_call(program, limited, what),
    )
    for name, (least, median, greatest) in costs.rows:
        print(f"{what:9} {name:8} {least:8.0f} {median:8.0f} {greatest:8.0f}")


def _shares(tenants: list[Tenant]) -> None:
    both = [tenant.start(BURN, "1000000", str(_SECONDS), "4", "waits") for tenant in tenants]
    for process in both:
        line(process)
    for process in both:
        tell(process)
    work = [float(line(process)) for process in both]
    for tenant in tenants:
        tenant.stop()
    print(
        f"30/70 over {_SECONDS:.0f} s: {100 * work[0] / sum(work):.1f} / "
        f"{100 * work[1] / sum(work):.1f} % of the work; together {sum(work) / _SECONDS:.0%} of "
        "the GPU's time"
    )


def _compiled(folder: Path, source: str, *options: str) -> Path:
    binary = folder / source.removesuffix(".c")
    command = ["cc", "-O2", "-std=gnu11", *options, "-o", binary, Path(__file__).with_name(source)]
    subprocess.run([*command, "-ldl"], check=True)
    return binary


def _tenant(driver: DriverRoot, folder: Path, limiter: Path, uuid: str, weight: int) -> Tenant:
    tenant = Tenant(driver, folder / f"tenant-{uuid}-{weight}", limiter)
    sharing = Sharing(memory_mib=4000, action="prevent", compute="share", weight=weight)
    tenant.install([DeviceShare(uuid, sharing, f"page-{weight}")])
    return tenant


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        limiter = build_limiter(folder / "limiter")
        driver = DriverRoot(folder / "driver", build())
        driver.install("T4", 1)
        uuid = driver.smi("--query-gpu=uuid", "--format=csv,noheader").strip()
        try:
            calls = _compiled(folder, "driver_calls.c")
            idle = _compiled(
                folder, "idle_driver.c", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"
            )
            alone = _tenant(driver, folder, limiter, _UUID, 50)
            _tenant(driver, folder, limiter, _UUID, 40)  # idle, beside it
            shutil.copy(idle, alone.root / "usr/lib/divvy/driver/libcuda-driver.so.1")
            print(f"ns a call {'':8} {'least':>8} {'median':>8} {'greatest':>8}")
            for what in _CALLS:
                _paired(calls, idle, alone.library("libcuda.so.1"), what)
            _shares([_tenant(driver, folder, limiter, uuid, weight) for weight in (30, 70)])
        finally:
            driver.stop()


if __name__ == "__main__":
    main()
