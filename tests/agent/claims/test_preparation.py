"""What is given back when its GPU does not answer: nothing stays behind that could be removed."""

from __future__ import annotations

import asyncio
import errno
import os
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from divvy.agent.claims import preparation
from divvy.agent.claims.claims_file import ClaimsFile
from divvy.agent.claims.copies import write_copy
from divvy.agent.claims.preparation import ClaimProblem, Preparation
from divvy.agent.gpu.hardware import Gpu, Snapshot
from divvy.agent.inject.claim_cdi import claim_file
from divvy.agent.inject.share_folder import ShareFolder
from divvy.kube.errors import UNAVAILABLE, ApiError, Unreachable
from divvy.model.api_names import CLAIMS_DRIVER, claims_pool
from tests.agent.claim_values import BY_SIZE, ON_DEMAND, claim, claim_record, held, offered_gpu
from tests.agent.devices import gpu, instance, snapshot

OFFERED = offered_gpu(0, ON_DEMAND)
MADE_HELD = replace(held(OFFERED, "-mig-2g10gb-2"), has_instance=True)


class Driver:
    """Shows what it is given at each look, and notes what is destroyed."""

    problem = ""

    def __init__(self, *looks: Snapshot) -> None:
        self.snapshot, *self._looks = looks
        self.destroyed: list[int] = []

    async def rescan(self) -> None:
        if self._looks:
            self.snapshot = self._looks.pop(0)


def unreadable(*gpus: Gpu) -> Snapshot:
    return replace(snapshot(*gpus), unreadable=("GPU 0: it does not answer",))


@pytest.mark.parametrize(
    ("looks", "destroyed"),
    [
        # The agent has just started: which GPU it is that does not answer is not known yet.
        ((unreadable(), unreadable(), "there"), [1]),
        ((unreadable(),), []),  # it never answers: the pod ends all the same
        ((snapshot(),), []),
    ],
)
def test_leaves_no_instance_of_a_claim_on_a_gpu_that_answers_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, looks: tuple[Any, ...], destroyed: list[int]
) -> None:
    there = snapshot(gpu(mig=True, instances=(instance(1, 14, 2, 2),)))
    driver = Driver(*(there if look == "there" else look for look in looks))

    async def apply(_: Any, __: Any, plan: Any) -> None:
        driver.destroyed += [instance.gi for instance in plan.destroy]

    monkeypatch.setattr("divvy.agent.claims.preparation.apply_plan", apply)
    monkeypatch.setattr("divvy.agent.claims.preparation.make_cap_nodes", lambda *_: None)
    settings = SimpleNamespace(cdi_folder=tmp_path, state_folder=tmp_path, driver_root=tmp_path)
    store = ClaimsFile(tmp_path, tmp_path, lambda: None)
    store.save(claim_record(OFFERED, claims=(claim("gone", MADE_HELD),)))
    unused: Any = None
    injection: Any = SimpleNamespace(share_folder=ShareFolder(tmp_path / "tenants"))
    wait = 20.0 if destroyed else 0.3
    preparation = Preparation(
        settings,
        store,
        unused,
        driver,
        injection,
        wait,  # type: ignore[arg-type]
    )
    asyncio.run(preparation.unprepare("uid-gone"))
    assert driver.destroyed == destroyed
    assert not store.record.claims


def test_releases_an_instance_beside_device_nodes_that_cannot_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The nodes are other instances'. The error said that the agent's state cannot be saved."""
    there = snapshot(gpu(mig=True, instances=(instance(1, 14, 2, 2),)))
    driver = Driver(there, snapshot(gpu(mig=True)))

    async def apply(_: Any, __: Any, plan: Any) -> None:
        driver.destroyed += [instance.gi for instance in plan.destroy]

    def refuse(*_: Any) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), "/dev/nvidia-caps")

    monkeypatch.setattr("divvy.agent.claims.preparation.apply_plan", apply)
    monkeypatch.setattr("divvy.agent.claims.preparation.make_cap_nodes", refuse)
    settings = SimpleNamespace(cdi_folder=tmp_path, state_folder=tmp_path, driver_root=tmp_path)
    store = ClaimsFile(tmp_path, tmp_path, lambda: None)
    store.save(claim_record(OFFERED, claims=(claim("gone", MADE_HELD),)))
    unused: Any = None
    injection: Any = SimpleNamespace(share_folder=ShareFolder(tmp_path / "tenants"))
    preparation = Preparation(
        *(settings, store, unused, driver, injection),  # type: ignore[arg-type]
        20.0,
    )
    asyncio.run(preparation.unprepare("uid-gone"))
    assert driver.destroyed == [1]
    assert not store.record.claims


async def test_prepares_nothing_on_a_gpu_that_left_the_offer_while_it_waited(
    tmp_path: Path,
) -> None:
    """A claim that waits is not recorded: nothing keeps its other GPU with claims."""
    other = offered_gpu(1, ON_DEMAND)
    first, second = held(OFFERED, ""), held(other, "")
    results = [
        {"request": "gpu", "driver": CLAIMS_DRIVER, "pool": claims_pool("n"), "device": name}
        for name in (first.device.name, second.device.name)
    ]
    late = {
        "metadata": {"uid": "uid-late", "name": "late", "namespace": "default"},
        "status": {"allocation": {"devices": {"results": results}}},
    }

    async def read(*_: str) -> Any:
        return late

    api: Any = SimpleNamespace(claim=read)
    settings: Any = SimpleNamespace(
        cdi_folder=tmp_path, state_folder=tmp_path, driver_root=tmp_path, node="n"
    )
    store = ClaimsFile(tmp_path, tmp_path, lambda: None)
    held_now = (claim("first", first),)
    store.save(claim_record(OFFERED, other, claims=held_now))
    unused: Any = None
    injection: Any = SimpleNamespace(share_folder=ShareFolder(tmp_path / "tenants"))
    preparation = Preparation(settings, store, api, unused, injection, 20.0)
    waiting = asyncio.create_task(preparation.prepare("default", "late", "uid-late"))
    await asyncio.sleep(0.1)
    store.save(claim_record(OFFERED, claims=held_now))
    await preparation.unprepare("uid-first")
    with pytest.raises(ClaimProblem, match=f"{second.device.name} is no longer offered"):
        await waiting
    assert not store.record.claims


def test_removes_the_copy_before_the_claim_leaves_the_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy of a claim that the record lacks would bring the claim back."""
    share = offered_gpu(0, BY_SIZE)
    train = claim("train", held(share, "-share", 3000, 30))
    store = ClaimsFile(tmp_path, tmp_path, lambda: None)
    store.save(claim_record(share, claims=(train,)))
    write_copy(tmp_path, train, store.record)
    settings = SimpleNamespace(cdi_folder=tmp_path, state_folder=tmp_path, driver_root=tmp_path)
    unused: Any = None
    injection: Any = SimpleNamespace(share_folder=ShareFolder(tmp_path / "tenants"))
    preparation = Preparation(settings, store, unused, unused, injection, 0.1)  # type: ignore[arg-type]
    where = "divvy.agent.claims.preparation"
    with monkeypatch.context() as patched:
        patched.setattr(f"{where}.remove_copy", _fail)
        with pytest.raises(ClaimProblem):
            asyncio.run(preparation.unprepare(train.uid))
    assert list(store.record.claims) == [train.uid]
    asyncio.run(preparation.unprepare(train.uid))
    assert not ClaimsFile(tmp_path, tmp_path, lambda: None).record.claims


def _fail(*_: Any) -> None:
    raise OSError("read-only")


def test_describes_no_claim_whose_preparation_could_not_be_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody would write it again after a reload of the driver: it led to another GPU."""
    share = offered_gpu(0, BY_SIZE)
    late = claim("late", held(share, "-share", 3000, 30), prepared=False)
    store = ClaimsFile(tmp_path, tmp_path, lambda: None)
    store.save(claim_record(share, claims=(late,)))
    specification = tmp_path / claim_file(late.uid)
    specification.write_text("{}")
    settings: Any = SimpleNamespace(
        cdi_folder=tmp_path, state_folder=tmp_path, driver_root=tmp_path
    )
    unused: Any = None
    preparation = Preparation(settings, store, unused, unused, unused)
    where = "divvy.agent.claims.preparation"
    with monkeypatch.context() as patched:
        patched.setattr(f"{where}.remove_claim", _fail)
        assert preparation.refresh() == "read-only"
    assert not preparation.refresh()
    assert not specification.exists()


class SlowApi:
    """Answers a read of a claim after a time, and counts the reads."""

    def __init__(self, seconds: float, usual: float = 0.1) -> None:
        self.seconds, self.usual = seconds, usual
        self.reads = 0

    async def claim(self, namespace: str, name: str, patience: float | None = None) -> None:
        self.reads += 1
        usual = self.usual if patience is None else patience
        await asyncio.sleep(min(self.seconds, usual))
        if self.seconds > usual:
            raise Unreachable("no answer in time", waited=True)


@pytest.mark.parametrize(
    ("seconds", "problem"), [(0.5, "does not exist"), (9.0, "cannot be read: no answer in time")]
)
async def test_waits_for_a_slow_server_as_long_as_the_kubelet_does(
    tmp_path: Path, seconds: float, problem: str
) -> None:
    api = SlowApi(seconds)
    with pytest.raises(ClaimProblem, match=problem):
        await _asking(tmp_path, api, 2.0).prepare("team", "train", "uid-train")
    assert api.reads <= 4


async def test_waits_for_a_server_that_is_known_to_be_slow_from_the_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each call of the kubelet the first seconds were lost, and the rest was too short."""
    monkeypatch.setattr(preparation, "_SLOW_SECONDS", 0.1)
    api = SlowApi(3.0, usual=1.5)
    asking = _asking(tmp_path, api, 4.0)
    with pytest.raises(ClaimProblem, match="no answer in time"):
        await asking.prepare("team", "train", "uid-train")
    reads = api.reads
    with pytest.raises(ClaimProblem, match="does not exist"):
        await asking.prepare("team", "train", "uid-train")
    assert api.reads == reads + 1


class RecoveringApi(SlowApi):
    """Does not answer in time, then refuses, and then does not answer again."""

    async def claim(self, namespace: str, name: str, patience: float | None = None) -> None:
        if 1 <= self.reads <= 2:
            self.reads += 1
            raise ApiError(UNAVAILABLE, "it starts")
        await super().claim(namespace, name, patience)


async def test_waits_for_no_answer_that_the_kubelet_would_not_hear(tmp_path: Path) -> None:
    """How long there is to wait is less at each try."""
    began = time.monotonic()
    with pytest.raises(ClaimProblem, match="cannot be read: no answer in time"):
        await _asking(tmp_path, RecoveringApi(9.0), 3.0).prepare("team", "train", "uid-train")
    assert time.monotonic() - began < 4.2


def _asking(folder: Path, api: Any, seconds: float) -> Preparation:
    """Return what asks an API server for so long."""
    settings: Any = SimpleNamespace(
        cdi_folder=folder, state_folder=folder, driver_root=folder, node="node"
    )
    store = ClaimsFile(folder, folder, lambda: None)
    driver: Any = Driver(snapshot())
    unused: Any = None
    return Preparation(settings, store, api, driver, unused, seconds)
