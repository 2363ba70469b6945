"""What claims' metrics show of each GPU."""

from __future__ import annotations

from dataclasses import replace

from divvy.agent.metrics.claims import memory_of_claims
from divvy.agent.metrics.page import Page
from tests.agent.claim_values import ON_DEMAND, claim, claim_record, held, offered_gpu
from tests.agent.devices import gpu, instance

LABELS = ["resource", "mode", "device", "uuid", "gpu", "namespace", "pod", "container"]
# 1g.5gb at the first memory slice, as the driver knows it once a claim has it.
ON_FIRST_SLICE = instance(7, profile_id=19, start=0, size=1)


def test_shows_memory_of_a_whole_gpu_and_a_mig_device_of_one_pod_and_of_no_share() -> None:
    gpus = [offered_gpu(index, ON_DEMAND) for index in range(5)]
    of_two_pods = claim("shared", held(gpus[3], ""))
    record = claim_record(
        *gpus,
        claims=(
            claim("whole", held(gpus[0], "")),
            claim("mig", held(gpus[1], "-mig-1g5gb-0", 4864, has_instance=True)),
            claim("share", held(gpus[2], "-share", 3000)),
            claim("all-of-a-share", held(gpus[4], "-share")),
            replace(of_two_pods, pods=(*of_two_pods.pods, ("other", "uid"))),
        ),
    )
    present = [gpu(0), gpu(1, mig=True, instances=(ON_FIRST_SLICE,)), gpu(2), gpu(3), gpu(4)]
    memory = {
        "GPU-0": 900.0,
        "GPU-1": 800.0,
        "MIG-7": 70.0,
        "GPU-2": 600.0,
        "GPU-3": 500.0,
        "GPU-4": 400.0,
    }
    page = Page("node-1")
    memory_of_claims(page.gauge("used", "", LABELS), record, present, memory)
    samples = {
        tuple(
            sample.labels[name] for name in ("mode", "device", "uuid", "gpu", "pod")
        ): sample.value
        for family in page.registry.collect()
        for sample in family.samples
    }
    assert samples == {
        ("claims", "gpu-0", "GPU-0", "GPU-0", "whole"): 900.0,
        ("claims", "gpu-1-mig-1g5gb-0", "MIG-7", "GPU-1", "mig"): 70.0,
        ("claims", "gpu-4-share", "GPU-4", "GPU-4", "all-of-a-share"): 400.0,
    }
