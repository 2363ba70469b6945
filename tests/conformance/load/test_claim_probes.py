"""What a pod saw of a GPU that it claimed, and which claim disturbs no pod."""

from dataclasses import replace
from typing import Any

import pytest

from conformance.cluster.pods import Outcome
from conformance.implementation import DIVVY, NVIDIA_DRA
from conformance.load.claim_probes import (
    ClaimProbe,
    computes,
    has_its_size,
    sees_its_gpu_only,
    small_claim,
)
from conformance.promise import ClaimPromise, NodePromise, claim_promises
from conformance.skips import CheckSkipped, NotApplicable
from divvy.model import gpu_model, parse_cluster
from divvy.plan import predict_node
from divvy.plan.fit.live_claims import ClaimedGpu, claimed_gpus
from tests.plan.claimed import claim, slices

A100 = gpu_model("A100-SXM4-40GB")
LOG = """\
@@ look
node /dev/nvidia0
cuda ID 0: NVIDIA A100-SXM4-40GB, 1073MB (UUID: GPU-n-0)
smi GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-n-0)
@@ 0
@@ memory
allocated 1 MiB of 1 MiB asked for; device: 1024 MiB total, 9 MiB free; OK
@@ 0
@@ vector-add
Test PASSED
@@ 0
@@ nvidia-smi
| N/A 45C  P8  9W / 70W |  0MiB / 1024MiB | 0% |
@@ 0
"""


def gpu(claims: dict[str, Any], *held: dict[str, Any]) -> tuple[ClaimPromise, ClaimedGpu]:
    value = {"profiles": {"x": {"claims": claims}}, "pools": {"p": {"profile": "x"}}}
    plan = predict_node(parse_cluster(value), "x", gpu_model("A100-SXM4-40GB"), 2)
    nodes = [NodePromise("n", "p", "x", plan)]
    return claim_promises(nodes)[0], claimed_gpus(slices("n", claims), held)[0]


def probe(log: str, memory_mib: int | None = 1024) -> ClaimProbe:
    _, looked = gpu({"shares": {}})
    return ClaimProbe(looked, memory_mib, Outcome("Succeeded", 0, log, ""))


def test_requests_a_small_share_of_the_very_gpu() -> None:
    spec, size = small_claim(*gpu({"shares": {}}), DIVVY)
    (request,) = spec["devices"]["requests"]
    assert size == 1024
    assert request["exactly"]["deviceClassName"] == "divvy-share"
    assert request["exactly"]["capacity"] == {"requests": {"memory": "1024Mi", "cores": "5"}}
    assert "GPU-n-0" in request["exactly"]["selectors"][0]["cel"]["expression"]


def test_requests_the_whole_gpu_if_there_are_no_shares() -> None:
    spec, size = small_claim(*gpu({}), DIVVY)
    assert size is None
    assert spec["devices"]["requests"][0]["exactly"]["deviceClassName"] == "divvy-gpu"


def test_takes_no_whole_gpu_for_a_share_that_is_not_offered() -> None:
    """All checks of shares would pass on it."""
    promise, looked = gpu({"shares": {}})
    whole = tuple(device for device in looked.devices if device.kind != "share")
    with pytest.raises(CheckSkipped, match="offers no shares, and its profile has some"):
        small_claim(promise, replace(looked, devices=whole), DIVVY)


def test_requests_a_gpu_by_another_drivers_class() -> None:
    spec, size = small_claim(*gpu({}), NVIDIA_DRA)
    assert size is None
    (request,) = spec["devices"]["requests"]
    assert request["exactly"]["deviceClassName"] == "gpu.nvidia.com"
    (selector,) = request["exactly"]["selectors"]
    expression = 'device.attributes["gpu.nvidia.com"].uuid == "GPU-n-0"'
    assert selector["cel"]["expression"] == expression


def test_requests_part_of_a_gpus_memory_by_another_drivers_class() -> None:
    promise, looked = gpu({})
    (whole,) = looked.devices
    share = replace(whole, kind="share", step_mib=1000)
    spec, size = small_claim(promise, replace(looked, devices=(share,)), NVIDIA_DRA)
    assert size == 2000
    (request,) = spec["devices"]["requests"]
    assert request["exactly"]["deviceClassName"] == "gpu.nvidia.com"
    assert request["exactly"]["capacity"] == {"requests": {"memory": "2000Mi"}}
    assert "GPU-n-0" in request["exactly"]["selectors"][0]["cel"]["expression"]


def test_disturbs_no_holder_of_the_gpu() -> None:
    _, looked = gpu({"shares": {}})
    (share,) = [device.name for device in looked.devices if device.kind == "share"]
    full = claim("c", "n", share, memory="40500Mi", cores="10")
    with pytest.raises(CheckSkipped, match="no room for 1024 MiB"):
        small_claim(*gpu({"shares": {}}, full), DIVVY)
    with pytest.raises(NotApplicable, match="for its tenants"):
        small_claim(*gpu({"shares": {}, "tenants": ["a", "b"]}), DIVVY)


@pytest.mark.parametrize(
    ("most", "cores", "room"), [(16, "96", "5 % of its time"), (1, "1", "one share more")]
)
def test_finds_a_gpu_full_whose_time_or_number_of_shares_is_given_out(
    most: int, cores: str, room: str
) -> None:
    claims = {"shares": {"max": most}}
    held = claim("c", "n", "gpu-n-0-share", memory="3000Mi", cores=cores)
    with pytest.raises(CheckSkipped, match=f"no room for {room}: held by team/c"):
        small_claim(*gpu(claims, held), DIVVY)


def test_asks_no_gpu_for_time_that_another_driver_does_not_divide() -> None:
    promise, looked = gpu({"shares": {}}, claim("c", "n", "gpu-n-0-share", "3000Mi", "100"))
    assert small_claim(promise, looked, NVIDIA_DRA)[1] == 1024


def test_passes_a_sound_share() -> None:
    for judge in (computes, sees_its_gpu_only, lambda outcome: has_its_size(outcome, A100)):
        expected, actual = judge(probe(LOG))
        assert expected == actual


@pytest.mark.parametrize(
    ("old", "new", "judge", "says"),
    [
        ("Test PASSED", "Test FAILED", computes, "Test FAILED"),
        ("GPU-n-0)\n@@ 0", "GPU-n-1)\n@@ 0", sees_its_gpu_only, "GPU-n-1"),
        ("node /dev/nvidia0", "node /dev/nvidia0\nnode /dev/nvidia1", sees_its_gpu_only, "2 dev"),
        ("0MiB / 1024MiB", "0MiB / 1100MiB", lambda p: has_its_size(p, A100), "1100 MiB"),
        ("@@ vector-add\nTest PASSED\n@@ 0\n", "", computes, "phase Succeeded"),
    ],
)
def test_fails_on_each_wrong_look(old: str, new: str, judge: Any, says: str) -> None:
    assert old in LOG
    expected, actual = judge(probe(LOG.replace(old, new)))
    assert expected != actual
    assert says in actual


def test_asks_no_tool_for_memory_that_it_does_not_show() -> None:
    shown = LOG.replace("1024 MiB total", "124610 MiB total").replace("1073MB", "130663MB")
    of_system = shown.replace("0MiB / 1024MiB", "Not Supported")
    expected, actual = has_its_size(probe(of_system, None), gpu_model("GB10"))
    assert expected == actual == "cuDeviceTotalMem, cuMemGetInfo: 124610 MiB within 9969 MiB"


def test_burns_a_whole_gpu() -> None:
    whole = LOG + "@@ burn\nTested 1 GPUs:\n  GPU 0: OK\n@@ 0\n"
    expected, actual = computes(probe(whole, None))
    assert expected == actual
    assert computes(probe(whole.replace("OK", "FAULTY"), None))[1] != expected
