"""What comes of pods that claim by size is judged by their output."""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, cast

import pytest

from conformance.cluster.api import Api
from conformance.cluster.pods import Outcome, PodNamespace
from conformance.implementation import DIVVY, NVIDIA_DRA
from conformance.load.claims import (
    Size,
    burst,
    burst_sizes,
    gpus_of_tenants,
    judge_size,
    open_shares,
    refused_for_gpus,
    requested_share,
    rounded,
    tenants_without_gpu,
)
from conformance.observe.claims import divisible_by, overcommitted, tenants_together
from conformance.promise import NodePromise
from conformance.skips import CheckSkipped, NotApplicable
from divvy.model import gpu_model, parse_cluster
from divvy.model.stack import Names
from divvy.plan import predict_node
from divvy.plan.fit.live_claims import claimed_gpus
from tests.conformance.fake_api import FakeApi
from tests.plan.claimed import claim, slices

SMI = "| 0% | 0MiB / {}MiB | 0% |\ncode half {}\ncode beyond {}\n"


@pytest.mark.parametrize(
    ("seen_mib", "half", "beyond", "holds"),
    [(3000, 0, 12, True), (40960, 0, 12, False), (3000, 12, 12, False), (3000, 0, 0, False)],
)
def test_judges_a_share_by_what_it_shows_grants_and_refuses(
    seen_mib: int, half: int, beyond: int, holds: bool
) -> None:
    log = SMI.format(seen_mib, half, beyond)
    expected, actual = judge_size(Size(3000), Outcome("Succeeded", 0, log, ""))
    assert (expected == actual) is holds


def test_judges_nothing_by_a_pod_that_never_ran() -> None:
    expected, actual = judge_size(Size(3000), Outcome("Pending", None, "", "Unschedulable"))
    assert expected != actual


def promised(shares: dict[str, Any]) -> NodePromise:
    return following({"claims": {"shares": shares}})


def following(profile: object) -> NodePromise:
    cluster = parse_cluster({"profiles": {"p": profile}, "pools": {"p": {"profile": "p"}}})
    return NodePromise("n", "p", "p", predict_node(cluster, "p", gpu_model("A100-SXM4-40GB"), 2))


def test_finds_more_memory_time_or_shares_than_exist() -> None:
    def held(memory: str, cores: str, number: int) -> list[str]:
        claims = [claim(f"c{i}", "n", "gpu-n-0-share", memory, cores) for i in range(number)]
        gpus = claimed_gpus(slices("n", {"shares": {"max": 4}}), claims)
        return overcommitted(gpus, promised({"max": 4}))

    assert held("20480Mi", "50", 2) == []
    assert held("20481Mi", "50", 2) == [
        "n GPU 0: 40962 MiB, 100 % in 2 shares, of 40960 MiB, 100 % in 4"
    ]
    assert len(held("1Gi", "51", 2)) == 1
    assert len(held("1Gi", "1", 5)) == 1


def test_takes_no_drivers_word_for_the_memory_of_a_gpu() -> None:
    doubled = {"shares": {"memory": {"oversubscribe": 2.0}}}
    claims = [claim(f"c{i}", "n", "gpu-n-0-share", "30Gi", "40") for i in range(2)]
    gpus = claimed_gpus(slices("n", doubled), claims)
    assert overcommitted(gpus, promised(doubled["shares"])) == []
    assert overcommitted(gpus, promised({})) == [
        "n GPU 0: 61440 MiB, 80 % in 2 shares, of 40960 MiB, 100 % in 16"
    ]
    # A driver may show a little more than is known of the model.
    little_more = slices("n", {"shares": {"memory": {"oversubscribe": 1.05}}})
    full = [claim("c", "n", "gpu-n-0-share", "42000Mi", "40")]
    assert overcommitted(claimed_gpus(little_more, full), promised({})) == []


def test_takes_no_missing_gpus_for_some_without_sizes() -> None:
    """A driver that has withdrawn its slices offers nothing: that is no property of its claims."""
    with pytest.raises(AssertionError, match="offers no GPU to claims"):
        divisible_by(())
    with pytest.raises(NotApplicable, match="no sizes"):
        divisible_by(claimed_gpus(slices("n", {}), ()))
    assert divisible_by(claimed_gpus(slices("n", {"shares": {"memory": {"step": "2Mi"}}}), ())) == 2


def test_finds_two_tenants_on_one_gpu() -> None:
    both = slices("n", {"shares": {}, "tenants": ["prod", "dev"]})
    apart = [
        claim("a", "n", "gpu-n-0-share-prod", "1Gi", "1"),
        claim("b", "n", "gpu-n-1-share-dev", "1Gi", "1"),
    ]
    assert tenants_together(claimed_gpus(both, apart)) == []
    together = [*apart, claim("c", "n", "gpu-n-0-share-dev", "1Gi", "1")]
    assert tenants_together(claimed_gpus(both, together)) == ["n GPU 0: dev and prod"]


@pytest.mark.parametrize(
    ("first", "others", "steps"),
    [
        ({"shares": {"memory": {"step": "2Mi"}}}, {"shares": {}}, [2, 1]),
        ({"shares": {"memory": {"step": "2Mi"}}}, {}, [2]),
        ({"shares": {"memory": {"step": "2Mi"}}, "tenants": ["a", "b"]}, {"shares": {}}, [1]),
        ({"shares": {}, "tenants": ["a", "b"]}, {}, []),
        ({"mig": ["1g.5gb"]}, {}, []),
    ],
)
def test_finds_the_gpus_of_which_pods_without_a_tenant_can_have_shares(
    first: dict[str, Any], others: dict[str, Any], steps: list[int]
) -> None:
    node = following([{"devices": [0], "claims": first}, {"claims": others}])
    assert [shares.memory.step_mib for shares in open_shares(node)] == steps


def test_counts_the_gpus_of_which_tenants_can_have_shares() -> None:
    two = {"shares": {}, "tenants": ["a", "b"]}
    assert gpus_of_tenants(following({"claims": two}), ["a", "b"]) == 2
    first_alone = [{"devices": [0], "claims": two}, {"claims": {}}]
    assert gpus_of_tenants(following(first_alone), ["a", "b"]) == 1
    apart = [
        {"devices": [0], "claims": {"shares": {}, "tenants": ["a"]}},
        {"claims": {"shares": {}, "tenants": ["b", "c"]}},
    ]
    assert gpus_of_tenants(following(apart), ["a", "b"]) == 2
    assert gpus_of_tenants(following(apart), ["b", "c"]) == 1


def test_bursts_beyond_what_the_node_has() -> None:
    sizes = burst_sizes(promised({}), step_mib=1)
    assert sum(size.memory_mib for size in sizes) > 2 * 40960
    assert all(size.memory_mib <= 40960 for size in sizes)


def test_accepts_sizes_granted_in_steps() -> None:
    assert [rounded(size, 256) for size in (1, 256, 3000)] == [256, 256, 3072]


def test_requests_a_share_by_limits_or_by_a_claim_of_another_driver() -> None:
    size = Size(3000, 30)
    api = FakeApi()
    pods = PodNamespace(cast(Api, api), "image", "n", "restricted", "")
    with requested_share(pods, DIVVY, Names(), size) as fields:
        limits = fields["resources"]["limits"]
        assert (limits["nvidia.com/gpumem"], limits["nvidia.com/gpucores"]) == ("3000", "30")
    with requested_share(pods, NVIDIA_DRA, Names(), size) as fields:
        (claimed,) = api.created
        assert fields == {"claim": claimed["metadata"]["name"]}
        (request,) = claimed["spec"]["devices"]["requests"]
        assert request["exactly"] == {
            "deviceClassName": "gpu.nvidia.com",
            "capacity": {"requests": {"memory": "3000Mi"}},
        }
    assert api.pods == {}


def test_judges_nothing_by_a_refusal_of_another_policy() -> None:
    names = ("nvidia.com/gpumem", "nvidia.com/gpucores")
    own = "nvidia.com/gpumem is 4Gi: give MiB as a number"
    assert refused_for_gpus({"a unit": own}, names) == ("accepted: nothing", "accepted: nothing")
    assert refused_for_gpus({"a unit": None, "too much": own}, names)[1] == "accepted: a unit"
    with pytest.raises(CheckSkipped, match="for something else: pods need a team label"):
        refused_for_gpus({"a unit": own, "too much": "pods need a team label"}, names)


def test_misses_a_tenant_that_gets_no_gpu() -> None:
    alone = {"red": {"GPU-a"}, "blue": set[str]()}
    assert tenants_without_gpu(alone, 2) == ["blue"]
    assert tenants_without_gpu(alone, 1) == []
    assert tenants_without_gpu({"red": set(), "blue": set()}, 1) == ["red", "blue"]


class Pods:
    """A namespace that keeps what it is asked for."""

    def __init__(self) -> None:
        self.commands: list[str] = []
        self.patience = 0.0

    def start(self, _node: str, command: list[str], _resource: None) -> str:
        self.commands.append(command[-1])
        return f"c-{len(self.commands)}"

    def until(self, _met: Any, seconds: float) -> bool:
        self.patience = seconds
        return True

    def remove(self, *_: str) -> None:
        pass


def test_has_patience_with_each_pod_of_a_burst() -> None:
    """48 pods on a node with eight GPUs do not hang where 12 would have started."""
    waits = []
    for count in (12, 48):
        pods: Any = Pods()
        node: Any = SimpleNamespace(name="n1")
        sizes = [Size(1000)] * count
        with burst(pods, node, sizes, lambda _: nullcontext({}), 120) as started:
            assert len(started) == count
        # The first one still runs when the last is judged.
        assert int(pods.commands[0].rpartition(" ")[2]) == pods.patience + 120
        waits.append(pods.patience)
    assert waits == [126, 234]
