"""A real file system without room, or read-only, under claims: nothing is lost, and why is said."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from divvy.agent.claims import preparation
from divvy.agent.claims.claims_file import ClaimsFile
from divvy.agent.claims.preparation import ClaimProblem, Preparation
from divvy.agent.claims.record import ClaimRecord
from divvy.agent.inject.claim_cdi import ClaimEdits, claim_file
from divvy.agent.inject.container_edits import ContainerEdits
from divvy.agent.inject.share_folder import ShareFolder
from divvy.model.api_names import CLAIMS_DRIVER, claims_pool
from lab.fakes.agent import unmount
from lab.fakes.scene import until
from tests.agent.claim_values import ON_DEMAND, offered_gpu
from tests.agent.devices import gpu, snapshot
from tests.agent.inject.bundle import administrator

pytestmark = administrator
WAIT = 2.0
OFFERED = offered_gpu(0, ON_DEMAND)


class Node:
    """A driver of claims whose state and CDI folder are two small file systems."""

    def __init__(self, folder: Path) -> None:
        self.state, self.cdi = folder / "state", folder / "cdi"
        for place in (self.state, self.cdi):
            place.mkdir()
            options = "size=1m,nr_inodes=40"
            subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", place], check=True)
        self.folder = folder
        self.store = ClaimsFile(self.state, self.cdi, lambda: None)
        self.store.save(ClaimRecord({OFFERED.uuid: OFFERED}, {}))
        self.preparation = self.started()

    def started(self) -> Preparation:
        """Return what an agent that starts now works with."""
        self.store = ClaimsFile(self.state, self.cdi, lambda: None)
        settings: Any = SimpleNamespace(
            cdi_folder=self.cdi, state_folder=self.state, driver_root=self.folder, node="n"
        )
        devices = {OFFERED.uuid: ContainerEdits()}
        edits = ClaimEdits(ContainerEdits(), {}, devices, None, {})
        injection: Any = SimpleNamespace(
            share_folder=ShareFolder(self.folder / "tenants"),
            by_cdi=True,
            limiter="",
            claim_edits=lambda _: edits,
            device_edits=lambda _: devices,
        )
        api: Any = SimpleNamespace(claim=self._claim)
        driver: Any = SimpleNamespace(snapshot=snapshot(gpu()), problem="")
        return Preparation(settings, self.store, api, driver, injection, WAIT)

    async def _claim(self, namespace: str, name: str, *_: object) -> Any:
        device = OFFERED.gpu.devices[0].name
        result = {"driver": CLAIMS_DRIVER, "pool": claims_pool("n"), "device": device}
        return {
            "metadata": {"uid": f"uid-{name}", "name": name, "namespace": namespace},
            "status": {"allocation": {"devices": {"results": [{"request": "gpu", **result}]}}},
        }

    def spoil(self, place: Path, way: str) -> None:
        """Leave a file system no room for another byte or file, or no right to write."""
        if way == "read-only":
            subprocess.run(["mount", "-o", "remount,ro", place], check=True)
        elif way == "no bytes":
            (place / "fill").write_bytes(bytes(1 << 20)[: _free(place)])
        else:
            for number in range(40):
                subprocess.run(["touch", place / f"fill{number}"], check=False, capture_output=True)

    def put_right(self, place: Path) -> None:
        subprocess.run(["mount", "-o", "remount,rw", place], check=True)
        for path in place.glob("fill*"):
            path.unlink()


def _free(place: Path) -> int:
    status = os.statvfs(place)
    return status.f_bavail * status.f_frsize


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    try:
        yield Node(tmp_path)
    finally:
        for place in (tmp_path / "state", tmp_path / "cdi", tmp_path / "tenants"):
            unmount(place)


WORDS = {
    "no bytes": "No space left on device",
    "no inodes": "No space left on device",
    "read-only": "Read-only file system",
}


@pytest.mark.parametrize("way", WORDS)
@pytest.mark.parametrize("where", ["state", "cdi"])
async def test_loses_nothing_and_reports_why(
    node: Node, where: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preparation, "_ASKED_AGAIN_SECONDS", 0.0)
    place = node.folder / where
    node.spoil(place, way)
    began = time.monotonic()
    with pytest.raises(ClaimProblem, match=WORDS[way]):
        await node.preparation.prepare("team", "late", "uid-late")
    # The call ends at this time with a text that says nothing of the disk.
    assert time.monotonic() - began < WAIT + 1.5
    assert WORDS[way] in node.preparation.problem
    assert str(place) in node.preparation.problem
    node.preparation.look_again()
    assert WORDS[way] in node.preparation.problem
    node.put_right(place)
    node.preparation.look_again()  # nobody asks for the claim again: its pod is gone
    assert not node.preparation.problem
    node.spoil(place, way)
    restarted = node.preparation = node.started()
    assert not node.store.damage
    with pytest.raises(ClaimProblem, match=WORDS[way]):
        await restarted.prepare("team", "late", "uid-late")
    node.put_right(place)
    await restarted.prepare("team", "late", "uid-late")
    assert not restarted.problem
    assert (node.cdi / claim_file("uid-late")).exists()
    node.spoil(place, way)
    if where == "cdi" and way != "read-only":
        await restarted.unprepare("uid-late")  # files leave a folder without room
    else:
        with pytest.raises(ClaimProblem, match=WORDS[way]):
            await restarted.unprepare("uid-late")
        assert WORDS[way] in restarted.problem
    restarted = node.started()
    node.put_right(place)
    await restarted.unprepare("uid-late")
    assert not restarted.problem
    assert not ClaimsFile(node.state, node.cdi, lambda: None).record.claims
    assert not list(node.cdi.glob("*claim*"))


async def test_takes_nothing_back_of_a_claim_that_is_tried(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is room, and its file cannot be written: the status would go to and fro."""
    (node.cdi / claim_file("uid-late")).mkdir()
    preparing = asyncio.create_task(node.preparation.prepare("team", "late", "uid-late"))
    await until(lambda: bool(node.preparation.problem))
    node.preparation.look_again()
    assert "Is a directory" in node.preparation.problem
    with pytest.raises(ClaimProblem, match="Is a directory"):
        await preparing
    node.preparation.look_again()
    assert "Is a directory" in node.preparation.problem  # until the kubelet's next try
    monkeypatch.setattr(preparation, "_ASKED_AGAIN_SECONDS", 0.0)
    node.preparation.look_again()
    assert not node.preparation.problem
    assert {path.suffix for path in node.cdi.iterdir()} == {".held", ".json"}
