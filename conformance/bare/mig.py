"""A MIG layout for a while: made by the agent's own code, and unmade whatever comes.

What has to be put back is on the disk before anything is changed: a run that was killed is followed
by one that puts it back first.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from conformance.bare.interruption import Interruption
from conformance.bare.processes import kill_descendants
from conformance.bare.run_state import STATE
from divvy.agent.gpu.hardware import Gpu, Snapshot
from divvy.agent.gpu.mig_plan import plan_mig
from divvy.agent.nvml.cap_nodes import make_cap_nodes
from divvy.agent.nvml.driver import Driver
from divvy.agent.nvml.mig_apply import apply_plan
from divvy.agent.nvml.process import DriverProblem
from divvy.atomic_file import replace_file
from divvy.model import MigGeometry, NoPlacement, place

_JOURNAL = "mig-to-put-back.json"
_RELEASE_SECONDS, _RETRY_SECONDS = 10.0, 0.5


def mixed_layout(geometry: MigGeometry) -> dict[str, int]:
    """Return an instance of each size up to half a GPU, and small ones in the rest."""
    parts = [
        profile
        for profile in geometry.profiles
        if not profile.attributes and profile.compute_slices * 2 <= geometry.compute_slices
    ]
    # Of two profiles with as many compute slices the one with less memory comes first.
    parts.sort(key=lambda profile: (-profile.compute_slices, profile.memory_slices))
    smallest = min(parts, key=lambda profile: (profile.compute_slices, profile.memory_slices))
    sizes = {part.compute_slices: part for part in reversed(parts)}
    layout: Counter[str] = Counter()
    for profile in (*reversed(sizes.values()), *([smallest] * geometry.compute_slices)):
        if _fits(geometry, layout + Counter({profile.name: 1})):
            layout[profile.name] += 1
    return dict(layout)


def _fits(geometry: MigGeometry, layout: Mapping[str, int]) -> bool:
    try:
        place(geometry, layout)
    except NoPlacement:
        return False
    return True


@contextmanager
def mig_layout(
    root: Path, uuid: str, layout: Mapping[str, int], state: Path, interruption: Interruption
) -> Iterator[tuple[str, ...]]:
    """Cut a GPU that is whole; give the UUIDs of its MIG devices. Raises DriverProblem, OSError."""
    _write(state, uuid)
    try:
        gpu = asyncio.run(_become(root, uuid, dict(layout)))
        yield tuple(instance.uuid for instance in gpu.instances if instance.uuid is not None)
    finally:
        with interruption.deferred():
            # A GPU that somebody works on cannot be changed.
            kill_descendants()
            put_back(root, state)


def put_back(root: Path, state: Path) -> str:
    """Make the GPU whole that an earlier run has left cut; return its UUID, "" if none was.

    Raises DriverProblem, OSError.
    """
    journal = state / _JOURNAL
    try:
        uuid = str(json.loads(journal.read_text())["uuid"])
    except FileNotFoundError:
        return ""
    except (ValueError, LookupError, TypeError):
        words = "cannot be read: which GPU it was is not known; remove it once none has MIG enabled"
        raise DriverProblem(f"{journal} {words}") from None
    deadline = time.monotonic() + _RELEASE_SECONDS
    while True:
        try:
            asyncio.run(_become(root, uuid, None))
        except DriverProblem:
            # A driver takes its time with processes that were killed.
            if time.monotonic() > deadline:
                raise
            time.sleep(_RETRY_SECONDS)
        else:
            break
    journal.unlink()
    return uuid


def _write(state: Path, uuid: str) -> None:
    state.mkdir(parents=True, exist_ok=True)
    replace_file(state / _JOURNAL, json.dumps({"uuid": uuid}).encode(), 0o600)


async def _become(root: Path, uuid: str, layout: dict[str, int] | None) -> Gpu:
    driver = Driver(root, (), lambda: None)
    try:
        await driver.start()
        # Turning MIG on and dividing the GPU are two plans, as the agent makes them.
        for _ in range(3):
            gpu = await _seen(driver, root, uuid)
            plan = plan_mig(gpu, layout)
            if plan.nothing:
                return gpu
            await apply_plan(driver, gpu, plan)
        return await _seen(driver, root, uuid)
    finally:
        await driver.stop()


async def _seen(driver: Driver, root: Path, uuid: str) -> Gpu:
    await driver.rescan()
    snapshot: Snapshot | None = driver.snapshot
    assert snapshot is not None
    make_cap_nodes(root, snapshot.cap_minors)
    gpu = next((gpu for gpu in snapshot.gpus if gpu.uuid == uuid), None)
    if gpu is None:
        raise DriverProblem(f"this machine lacks it now; gone for good? Remove {STATE / _JOURNAL}")
    return gpu
