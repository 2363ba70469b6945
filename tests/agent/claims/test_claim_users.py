"""Who uses what claims hold, and what they may use of it."""

from __future__ import annotations

from divvy.agent.claims.claim_users import (
    claim_limits,
    claim_pods,
    named_holders,
    with_current_pods,
)
from divvy.agent.containers import Container, Member, Process
from divvy.agent.memory.memory_limit import Use, excesses
from tests.agent.claim_values import claim, claim_record, held, offered_gpu

FIRST, OTHER = offered_gpu(0), offered_gpu(1)
RECORD = claim_record(
    FIRST,
    OTHER,
    claims=(
        claim("part", held(FIRST, "-share", 3000, 30), held(OTHER, "-share", 2000, 30)),
        claim("all", held(OTHER, "-share")),
    ),
)
CONTAINERS = {
    ("default", "part"): [("default/part", "main"), ("default/part", "beside")],
    ("default", "all"): [("default/all", "main")],
}


def test_names_the_pod_and_containers_that_hold_a_claim() -> None:
    holders = {
        named_holder.device_id: named_holder for named_holder in named_holders(RECORD, CONTAINERS)
    }
    part = holders["claim:uid-part"]
    assert (part.pod, part.container, part.pod_uid) == (
        "default/part",
        "beside, main",
        "pod-uid-part",
    )
    assert [named_holder.container for named_holder in named_holders(RECORD, {})] == ["", ""]


def test_knows_the_pods_that_share_a_claim_since_it_was_prepared() -> None:
    """The kubelet asks for a claim once, for the first of its pods."""

    def pods(active: set[str], *used: tuple[str, str]) -> list[tuple[str, str]]:
        containers = {("default", "part"): list(used)}
        current = with_current_pods(RECORD, containers, active)
        assert current.claims["uid-all"] == RECORD.claims["uid-all"]
        return list(current.claims["uid-part"].pods)

    first, second = ("default/part", "main"), ("default/second", "main")
    known, added = ("part", "pod-uid-part"), ("second", "")
    assert pods({"default/part", "default/second"}, first, second) == [known, added]
    # The first one has ended.
    assert pods({"default/second"}, second) == [added]
    # The kubelet does not list ordinary init containers, nor any pod for a while after its start.
    assert pods({"default/part", "default/second"}, second) == [known, added]
    assert pods({"default/part"}) == pods(set()) == [known]


def test_counts_every_pod_that_may_use_a_share() -> None:
    """What a pod uses past the limiter is charged to the claim, whichever of its pods it is."""
    used = {("default", "part"): [("default/part", "main"), ("default/second", "main")]}
    pods = claim_pods(RECORD, used)
    assert [(holder.pod, holder.pod_uid) for holder in pods["claim:uid-part"]] == [
        ("default/part", "pod-uid-part"),
        ("default/second", ""),
    ]
    assert [holder.pod for holder in pods["claim:uid-all"]] == ["default/all"]


def test_holds_a_container_to_its_claims_limit_on_each_gpu() -> None:
    limits = claim_limits(RECORD, CONTAINERS)
    uid = "0cb0a8de-f426-41f8-b28e-6bd02aa3eb2e"
    containers = {"c": Container("default/part", "main"), "d": Container("default/all", "main")}

    def above(container: str, uuid: str, mib: int) -> list[str]:
        use = Use(Member(uid, container), Process(1, 1), uuid, mib)
        of_gpu = limits[uuid]
        over_limit = excesses([use], containers, {uuid: of_gpu.holders}, of_gpu.limits)
        return [excess.sentence for excess in over_limit]

    assert above("c", "GPU-0", 3000) == []
    assert above("c", "GPU-0", 3001) == [
        "container main uses 3001 MiB of GPU-0; its limit for claim default/part is 3000 MiB "
        "(the size of its share)"
    ]
    assert above("c", "GPU-1", 2001) != []
    # A claim that has all of a GPU has no limit there.
    assert above("d", "GPU-1", 40961) == []
