"""A card that no data describes: served whole or time-sliced, with what NVML says of it."""

from __future__ import annotations

from dataclasses import replace

from divvy.agent.gpu.checkpoint import Checkpoint
from divvy.agent.gpu.desired import DesiredState, desired_state
from divvy.agent.gpu.hardware import Gpu
from divvy.agent.gpu.labels import feature_labels
from divvy.agent.gpu.mig_plan import plan_mig
from divvy.agent.gpu.node import NodeView
from divvy.model import canonical_json
from tests.agent.devices import gpu, replicas, snapshot

CARD = replace(gpu(), product="NVIDIA Z1", memory_mib=24000, mig_mode=None, mig_pending=None)
CAPABLE = replace(CARD, mig_mode=False, mig_pending=False)


def desired(profile: dict[str, object], card: Gpu = CARD) -> DesiredState:
    value = {"profiles": {"p": profile}, "pools": {"main": {"profile": "p"}}}
    node = NodeView("1", {}, {})
    return desired_state(canonical_json(value), "node-1", node, snapshot(card), Checkpoint())


def test_offers_an_unknown_card_whole() -> None:
    state = desired({})
    (offered,) = state.node.gpus
    (offer,) = offered.offers
    assert (offer.resource, offer.sharing.is_shared) == ("nvidia.com/gpu", False)
    assert plan_mig(CARD, offered.mig).nothing
    assert state.problem == ""


def test_time_slices_an_unknown_card_and_divides_its_memory() -> None:
    state = desired({"timeSlicing": {"replicas": 4, "memoryLimit": "auto"}})
    (offer,) = state.node.gpus[0].offers
    assert (offer.resource, offer.sharing.replicas) == ("nvidia.com/gpu.shared", 4)
    assert offer.sharing.memory_mib == 6000
    assert state.problem == ""


def test_leaves_an_unknown_card_whole_under_a_mig_layout_and_says_why() -> None:
    state = desired({"mig": {"1g.5gb": 7}}, CAPABLE)
    (offered,) = state.node.gpus
    assert offered.mig is None
    assert offered.offers[0].resource == "nvidia.com/gpu"
    assert plan_mig(CAPABLE, offered.mig).nothing
    assert "GPU 0 (NVIDIA Z1) is advertised whole: its model is unknown" in state.problem


def test_labels_an_unknown_card_by_the_driver() -> None:
    labels = feature_labels(snapshot(CARD), [replicas(1, 4)], None)
    values = {key: labels[f"nvidia.com/gpu.{key}"] for key in ("product", "memory", "replicas")}
    assert values == {"product": "NVIDIA-Z1", "memory": "24000", "replicas": "4"}
    assert labels["nvidia.com/mig.capable"] == "false"
