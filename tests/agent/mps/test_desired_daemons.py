"""Which GPUs are to have an MPS daemon."""

from __future__ import annotations

from dataclasses import replace

import pytest

from divvy.agent.gpu.holders import Held, Holder
from divvy.agent.gpu.transition import Decision
from divvy.agent.mps.desired_daemons import share_of, wanted_daemons
from divvy.agent.mps.supervision import Ceiling, Share
from divvy.agent.plugin.inventory import AdvertisedGpu
from divvy.model import DesiredGpu, Offer
from divvy.model.sharing import Sharing
from tests.agent.devices import gpu, snapshot

SHARED = "nvidia.com/gpu.shared"
GPU = gpu(0)
BY_MPS = Sharing(4, memory_mib=10240, weight=25, threads=25)


def decided(sharing: Sharing) -> dict[str, Decision]:
    layout = DesiredGpu(GPU.uuid, 0, 0, None, (Offer(SHARED, "gpu", None, sharing),))
    return {GPU.uuid: Decision(AdvertisedGpu(layout))}


def held(*device_ids: str) -> Held:
    holders = (Holder("default/p", "main", SHARED, device_id, "uid") for device_id in device_ids)
    return {GPU.uuid: tuple(holders)}


CLIENT, TURN, WHOLE = f"{GPU.uuid}::mps-0", f"{GPU.uuid}::0", GPU.uuid


@pytest.mark.parametrize(
    ("sharing", "holders", "recorded", "wanted"),
    [
        (BY_MPS, {}, False, True),
        (BY_MPS, held(CLIENT), True, True),
        (BY_MPS, held(TURN), False, False),
        (BY_MPS, held(WHOLE), False, False),
        (Sharing(4), held(CLIENT), True, True),
        (Sharing(4), held(TURN), True, False),
        (Sharing(4), {}, True, False),
        (BY_MPS, None, True, True),
        (BY_MPS, None, False, False),
        (Sharing(4), None, True, True),
    ],
)
def test_wants_a_daemon_for_clients_and_beside_no_other_holder(
    sharing: Sharing, holders: Held | None, recorded: bool, wanted: bool
) -> None:
    known = [GPU.uuid] if recorded else []
    assert (GPU.uuid in wanted_daemons(decided(sharing), snapshot(GPU), holders, known)) is wanted


def test_keeps_the_daemon_of_a_client_without_a_profile() -> None:
    (ceiling,) = wanted_daemons({}, snapshot(GPU), held(CLIENT), [GPU.uuid]).values()
    # What it was told before is what its clients were started with.
    assert (ceiling.memory_mib, ceiling.threads) == (None, None)
    assert wanted_daemons({}, snapshot(GPU), {}, [GPU.uuid]) == {}


def test_limits_by_the_daemon_if_no_container_gets_two_replicas() -> None:
    (many,) = wanted_daemons(decided(BY_MPS), snapshot(GPU), {}, []).values()
    assert many == Ceiling(GPU.memory_mib, 100)
    alone = Sharing(4, one_per_container=True, memory_mib=10240, weight=25, threads=25)
    (single,) = wanted_daemons(decided(alone), snapshot(GPU), {}, []).values()
    assert single == Ceiling(10240, 25)


def test_wants_no_daemon_on_a_lost_gpu_or_in_mig_mode() -> None:
    for other in (replace(gpu(0), lost=True), gpu(0, mig=True)):
        assert wanted_daemons(decided(BY_MPS), snapshot(other), {}, []) == {}


@pytest.mark.parametrize("holders", [held(CLIENT), None])
def test_keeps_the_daemon_of_clients_whose_gpu_does_not_answer(holders: Held | None) -> None:
    """On a node without a free processor one slow call of the driver is enough for that."""
    hanging = replace(GPU, fault="the GPU does not answer describe")
    answering = wanted_daemons(decided(BY_MPS), snapshot(GPU), holders, [GPU.uuid])
    assert wanted_daemons(decided(BY_MPS), snapshot(hanging), holders, [GPU.uuid]) == answering
    assert answering
    assert wanted_daemons(decided(BY_MPS), snapshot(hanging), {}, [GPU.uuid]) == {}


def test_names_a_share_by_the_first_replica_of_its_container() -> None:
    def of(pod: str, container: str, *numbers: int) -> list[Holder]:
        return [
            Holder(pod, container, SHARED, f"{GPU.uuid}::mps-{number}", f"uid-{pod}")
            for number in numbers
        ]

    pending = Holder("", "", SHARED, f"{GPU.uuid}::mps-11")
    holders = (*of("a/p", "main", 10, 2), *of("a/p", "side", 3), *of("b/p", "main", 0), pending)
    (wanted,) = wanted_daemons(decided(BY_MPS), snapshot(GPU), {GPU.uuid: holders}, []).values()
    assert wanted.shares == (
        Share("share_0", 10240, 25),
        Share("share_2", 20480, 50),
        Share("share_3", 10240, 25),
    )
    client = {GPU.uuid: tuple(of("a/p", "main", 1))}
    (lost,) = wanted_daemons({}, snapshot(GPU), client, [GPU.uuid]).values()
    assert lost.shares == (Share("share_1", GPU.memory_mib, 100),)


def test_keeps_every_share_while_the_holders_are_unknown() -> None:
    (unknown,) = wanted_daemons(decided(BY_MPS), snapshot(GPU), None, [GPU.uuid]).values()
    assert unknown.shares is None


def test_names_a_share_once_that_an_init_container_had_before() -> None:
    """The kubelet gives a pod's later containers what its init containers had."""

    def of(container: str, *numbers: int) -> list[Holder]:
        ids = [f"{GPU.uuid}::mps-{number}" for number in numbers]
        return [Holder("a/p", container, SHARED, device_id, "uid") for device_id in ids]

    for holders in ((*of("init", 0), *of("main", 0, 1)), (*of("init", 0, 1), *of("main", 0))):
        (wanted,) = wanted_daemons(decided(BY_MPS), snapshot(GPU), {GPU.uuid: holders}, []).values()
        assert wanted.shares == (Share("share_0", 20480, 50),)


def test_gives_a_share_without_a_limit_of_memory_the_whole_gpu() -> None:
    unlimited = Sharing(4, weight=25, threads=25)
    share = share_of([f"{GPU.uuid}::mps-7", f"{GPU.uuid}::mps-11"], unlimited, 40960)
    assert share == Share("share_7", 40960, 50)
