"""What the node's annotation says of each GPU."""

from __future__ import annotations

import json

from divvy.agent.gpu.health import Health
from divvy.agent.gpu.owner import Owner, Ownership
from divvy.agent.gpu.status import NodeStatus, gpu_states
from divvy.agent.gpu.transition import Decision
from divvy.agent.plugin.inventory import AdvertisedGpu
from divvy.model import DesiredGpu, Offer
from tests.agent.devices import gpu, snapshot

LAYOUT = DesiredGpu("GPU-0", 0, 0, None, (Offer("nvidia.com/gpu", "gpu", None),))


def annotation(ownership: Ownership) -> str:
    decision = Decision(AdvertisedGpu(LAYOUT), ownership=ownership)
    gpus = gpu_states(snapshot(gpu(0)), {"GPU-0": decision}, Health(), {})
    status = NodeStatus("1", "all", "p", "pool", "", "550", True, gpus, {})
    (gpu_status,) = json.loads(status.annotation())["gpus"]
    return str(gpu_status["owner"])


def test_reports_who_owns_each_gpu_and_what_it_waits_for() -> None:
    assert annotation(Ownership(Owner.PLUGIN, Owner.PLUGIN)) == "plugin"
    waiting = Ownership(Owner.CLAIMS, Owner.PLUGIN, "held by claim team/train")
    assert annotation(waiting) == "claims (held by claim team/train)"
