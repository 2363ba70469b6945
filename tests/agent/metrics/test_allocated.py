"""What pods are charged for: every part of a GPU once, whoever allocated it."""

from __future__ import annotations

from random import Random

import pytest

from divvy.agent.gpu.holders import Holder
from divvy.agent.metrics.allocated import CLAIMS, Allocated, Recipient, allocated
from divvy.agent.plugin.inventory import Device, Resource
from divvy.model.sharing import Sharing
from tests.agent.claim_values import ON_DEMAND, claim, claim_record, held, offered_gpu
from tests.agent.devices import gpu, instance

GPU, SHARED, MIG = "nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-3g.20gb"
NOTHING = claim_record()


def replicas(uuid: str, sharing: Sharing) -> Resource:
    devices = (Device(f"{uuid}::{number}", uuid, uuid) for number in range(sharing.replicas))
    return Resource(SHARED, tuple(devices), "gpu", sharing)


def test_charges_a_whole_gpu() -> None:
    whole = Resource(GPU, (Device("GPU-0", "GPU-0", "GPU-0"),), "gpu")
    pods = [Holder("team/pod", "main", GPU, "GPU-0")]
    assert allocated((whole,), pods, NOTHING, (gpu(0),)) == {
        Recipient("whole", GPU, "GPU-0", "team", "pod"): Allocated(1, 40960, 100)
    }


@pytest.mark.parametrize(
    ("sharing", "part"),
    [
        (Sharing(4), Allocated(2, 20480, 50)),
        (Sharing(4, memory_mib=5000), Allocated(2, 10000, 50)),
        (
            Sharing(4, memory_mib=5000, action="prevent", compute="cap", weight=10),
            Allocated(2, 10000, 20),
        ),
    ],
)
def test_charges_replicas_by_their_limits_or_in_equal_parts(
    sharing: Sharing, part: Allocated
) -> None:
    pods = [Holder("team/pod", name, SHARED, f"GPU-0::{name}") for name in ("0", "1")]
    assert allocated((replicas("GPU-0", sharing),), pods, NOTHING, (gpu(0),)) == {
        Recipient("share", SHARED, "GPU-0", "team", "pod"): part
    }


def test_charges_a_mig_device_by_its_slices() -> None:
    card = gpu(0, mig=True, instances=(instance(3, 9, 0, 4),))
    (part,) = card.instances
    assert part.uuid is not None
    devices = Resource(MIG, (Device(part.uuid, part.uuid, card.uuid),), "mig")
    pods = [Holder("team/pod", "main", MIG, part.uuid)]
    ((recipient, charged),) = allocated((devices,), pods, NOTHING, (card,)).items()
    assert recipient == Recipient("mig", MIG, card.uuid, "team", "pod")
    assert charged.cores == pytest.approx(100 * 3 / 7)
    assert charged.memory_mib == part.memory_mib


def test_charges_what_is_held_after_it_was_withdrawn_but_not_a_share_of_unknown_size() -> None:
    pods = [
        Holder("team/kept", "main", GPU, "GPU-0"),
        Holder("team/share", "main", SHARED, "GPU-1::0"),
        Holder("team/gone", "main", GPU, "GPU-9"),
    ]
    assert set(allocated((), pods, NOTHING, (gpu(0), gpu(1)))) == {
        Recipient("whole", GPU, "GPU-0", "team", "kept")
    }


def test_charges_claims_of_every_kind() -> None:
    cards = [offered_gpu(index, ON_DEMAND) for index in range(3)]
    record = claim_record(
        *cards,
        claims=(
            claim("a", held(cards[0], "-share", 3000, 30), held(cards[0], "-share", 1000, 10)),
            claim("b", held(cards[1], "")),
            claim("c", held(cards[2], "-mig-3g20gb-0", 20096)),
        ),
    )
    charged = allocated((), (), record, (gpu(0), gpu(1), gpu(2, mig=True)))
    assert charged[Recipient("share", CLAIMS, "GPU-0", "default", "a")] == Allocated(2, 4000, 40)
    assert charged[Recipient("whole", CLAIMS, "GPU-1", "default", "b")] == Allocated(1, 40960, 100)
    part = charged[Recipient("mig", CLAIMS, "GPU-2", "default", "c")]
    assert (part.devices, part.memory_mib) == (1, 20096)
    assert part.cores == pytest.approx(100 * 3 / 7)


def test_charges_no_more_than_there_is() -> None:
    random = Random(7)
    for _ in range(300):
        count = random.randrange(2, 9)
        compute, weight = random.choice(((None, 100), ("share", 100 // count)))
        sharing = Sharing(
            count, memory_mib=random.choice((None, 40960 // count)), compute=compute, weight=weight
        )
        pods = [
            Holder(f"team-{random.randrange(3)}/pod", "main", SHARED, f"GPU-0::{number}")
            for number in range(count)
        ]
        charged = allocated((replicas("GPU-0", sharing),), pods, NOTHING, (gpu(0),))
        assert sum(part.devices for part in charged.values()) == count
        assert sum(part.cores for part in charged.values()) <= 100.001
        assert sum(part.memory_mib for part in charged.values()) <= 40960.001
