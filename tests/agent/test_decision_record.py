"""What is decided is on the disk first; what cannot be saved is not begun."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from divvy.agent.checkpoint_file import CheckpointFile
from divvy.agent.decision_record import DecisionRecord
from divvy.agent.gpu.desired import DesiredState
from divvy.agent.gpu.health import Fault, Health
from divvy.agent.gpu.holders import Holder, Remembered
from divvy.agent.gpu.node import NodeView
from divvy.agent.gpu.reconciliation import KubeletView, Observation
from divvy.model import DesiredGpu, DesiredNode, Offer
from divvy.model.sharing import Sharing
from tests.agent.devices import gpu, snapshot

WHOLE = Offer("nvidia.com/gpu", "gpu", None)
SHARED = Offer("nvidia.com/gpu.shared", "gpu", None, Sharing(4, one_per_container=True, weight=25))
NODE = NodeView("", {"pool": "a"}, {}, "containerd://2.1.0")
SEEN = Observation(snapshot(gpu(0)), KubeletView({}, frozenset(), fence=True), True)
STILL_THERE = replace(SEEN, kubelet=KubeletView({}, frozenset({"GPU-0"}), fence=True))


def desired(offer: Offer) -> DesiredState:
    gpus = (DesiredGpu("GPU-0", 0, 0, None, (offer,)),)
    return DesiredState(DesiredNode("all", "p", "pool", gpus, ()), config="{}", profile="p")


class Node:
    """A record in a folder, and the problems that it told."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.problems: dict[str, str] = {}
        self.record = DecisionRecord(CheckpointFile(folder), "this boot", self.problems)

    def decide(self, offer: Offer, observed: Observation = SEEN) -> bool:
        return self.record.decide(desired(offer), observed, NODE, Health(), Remembered(), 0.0)

    def advertised(self) -> tuple[Offer, ...]:
        return self.record.decisions["GPU-0"].advertise.layout.offers

    def fill_the_disk(self) -> Path:
        scratch = self.folder / ".state.json.new"
        scratch.mkdir()  # no write succeeds
        return scratch


def test_remembers_holders_until_the_node_boots(tmp_path: Path) -> None:
    holder = Holder("team/train", "main", "nvidia.com/gpu", "GPU-0", "uid-1")
    held = Remembered((1, 1), (holder,), (replace(holder, device_id="GPU-1"),))
    node = Node(tmp_path)
    node.record.decide(desired(WHOLE), SEEN, NODE, Health(), held, 0.0)
    saved = CheckpointFile(tmp_path).saved
    assert saved.remembered("this boot") == held
    assert saved.remembered("the next") == Remembered()


def test_restores_decisions_at_start(tmp_path: Path) -> None:
    node = Node(tmp_path)
    assert node.decide(WHOLE)
    checkpoint = DecisionRecord(CheckpointFile(tmp_path), "this boot", {}).checkpoint
    assert checkpoint == node.record.checkpoint
    assert checkpoint.applied == {"GPU-0": desired(WHOLE).node.gpus[0]}
    assert (checkpoint.changing, checkpoint.last_seen) == ((), {"GPU-0": "this boot"})
    assert node.decide(SHARED, STILL_THERE)
    assert CheckpointFile(tmp_path).saved.changing == ("GPU-0",)
    assert node.decide(SHARED)
    assert CheckpointFile(tmp_path).saved.applied == {"GPU-0": desired(SHARED).node.gpus[0]}


def test_begins_nothing_that_it_cannot_save(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.decide(WHOLE)
    scratch = node.fill_the_disk()
    assert not node.decide(SHARED, STILL_THERE)
    assert node.advertised() == (WHOLE,)
    assert "cannot be saved" in node.problems["checkpoint"]
    scratch.rmdir()
    assert node.decide(SHARED)
    assert node.advertised() == (SHARED,)
    assert node.problems == {}


def test_saves_health_beside_decisions(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.decide(WHOLE)
    node.record.save_health(Health({("GPU-0", None): Fault("XID 79")}))
    saved = CheckpointFile(tmp_path).saved
    assert saved.faults == (("GPU-0", None, "XID 79"),)
    assert saved.applied == {"GPU-0": desired(WHOLE).node.gpus[0]}
    node.record.forget()
    assert node.record.decisions == {}
