"""Why a pod waits: whom it waits for, what will never fit, what is simply free."""

import pytest

from divvy.plan.claim_requests import Request
from divvy.plan.live_claims import claimed_gpus
from divvy.plan.why import explain
from divvy.plan.why.explanation import Verdict
from tests.plan.claimed import claim, slices

ON_DEMAND = {"shares": {"max": 3}, "mig": ["1g.5gb", "3g.20gb"]}
SHARE = Request(1, "share", 3000, None, 30)


def _verdict(request: Request, held: list[dict], *more: list[dict]) -> Verdict:
    listed = [one for each in more for one in each] or slices("n", ON_DEMAND)
    (verdict,) = explain("team/pod", [request], claimed_gpus(listed, held)).verdicts
    return verdict


def test_what_is_free_is_said_to_be_free() -> None:
    verdict = _verdict(SHARE, [])
    assert verdict.nodes == ("n",)
    assert verdict.conclusion == "free on n"


def test_a_free_gpu_on_a_node_that_the_pod_may_not_go_to_is_not_free() -> None:
    both = [*slices("n", ON_DEMAND, gpus=1), *slices("m", ON_DEMAND, gpus=1)]
    held = [claim("s", "n", "gpu-n-0", None, None)]
    closed = {"m": "has no label kind=a, which the pod requires"}
    gpus = claimed_gpus(both, held)
    (verdict,) = explain("team/pod", [Request(1, "gpu")], gpus, closed=closed).verdicts
    assert verdict.nodes == ()
    assert verdict.conclusion == "waiting for one of these to end or make room: team/s"
    assert [one.words for one in verdict.obstacles] == [
        "m: has no label kind=a, which the pod requires",
        "n GPU 0: is held: team/s",
    ]


def test_a_whole_gpu_waits_for_the_pods_with_shares() -> None:
    held = [claim(f"share-{i}", "n", f"gpu-n-{i}-share", "3000Mi", "30") for i in (0, 1)]
    verdict = _verdict(Request(1, "gpu"), held)
    assert verdict.nodes == ()
    assert "team/share-0 (3,000 MiB, 30 %) holds a share" in verdict.conclusion
    assert "team/share-1 (3,000 MiB, 30 %) holds a share" in verdict.conclusion
    assert [one.gpu for one in verdict.obstacles] == ["n GPU 0", "n GPU 1"]


def test_a_share_that_is_too_large_now_names_what_is_free_and_the_holders() -> None:
    held = [claim(f"s{i}", "n", f"gpu-n-{i}-share", "39000Mi", "30") for i in (0, 1)]
    verdict = _verdict(SHARE, held)
    assert verdict.obstacles[0].reason == "1,960 MiB and 70 % are free"
    assert verdict.obstacles[0].holders == ("team/s0 (39,000 MiB, 30 %)",)


def test_a_share_without_cores_takes_all_of_the_gpus_time() -> None:
    one = slices("n", {"shares": {}}, gpus=1)
    held = [claim("s", "n", "gpu-n-0-share", "1000Mi", "1")]
    (obstacle,) = _verdict(Request(1, "share", 1000), held, one).obstacles
    assert obstacle.reason == "39,960 MiB and 99 % are free"


def test_a_size_is_rounded_up_as_the_scheduler_does() -> None:
    one = slices("n", {"shares": {"memory": {"step": "4Gi"}}}, gpus=1)
    held = [claim("s", "n", "gpu-n-0-share", "32Gi", "1")]
    for asked, nodes in ((8192, ("n",)), (4097, ("n",)), (1, ("n",))):
        assert _verdict(Request(1, "share", asked, None, 1), held, one).nodes == nodes
    more = [*held, claim("t", "n", "gpu-n-0-share", "4Gi", "1")]
    verdict = _verdict(Request(1, "share", 4097, None, 1), more, one)
    assert verdict.nodes == ()
    assert verdict.obstacles[0].reason == (
        "4,097 MiB take 8,192, in steps of 4,096; 4,096 MiB and 98 % are free"
    )


def test_a_size_that_is_too_large_when_it_is_rounded_up_is_never_waited_for() -> None:
    one = slices("n", {"shares": {"memory": {"step": "3Gi"}}}, gpus=1)
    assert _verdict(Request(1, "share", 39936, None, 1), [], one).nodes == ("n",)
    assert _verdict(Request(1, "share", 39937, None, 1), [], one).conclusion == (
        "no GPU can ever give it: 39,937 MiB take 43,008, in steps of 3,072, more than its 39,936"
    )


def test_a_share_that_no_gpu_can_give_is_never_waited_for() -> None:
    verdict = _verdict(Request(1, "share", 50000, None, 30), [])
    assert verdict.conclusion == (
        "no GPU can ever give it: 50,000 MiB are more than its 40,960 (2 GPUs)"
    )


def test_all_turns_of_a_gpu_are_taken() -> None:
    held = [
        claim(f"s{i}-{n}", "n", f"gpu-n-{i}-share", "10Mi", "1") for i in (0, 1) for n in range(3)
    ]
    assert _verdict(SHARE, held).obstacles[0].reason == "has its 3 shares"


def test_shares_of_one_claim_have_to_be_on_one_node() -> None:
    one_each = [*slices("n", ON_DEMAND, gpus=1), *slices("m", ON_DEMAND, gpus=1)]
    verdict = _verdict(Request(2, "share", 3000, None, 30), [], one_each)
    assert verdict.nodes == ()
    assert [one.words for one in verdict.obstacles] == [
        "m: has room for 1 of 2, and all must be on one node",
        "n: has room for 1 of 2, and all must be on one node",
    ]


def test_mig_devices_may_lie_on_one_gpu() -> None:
    one = slices("n", ON_DEMAND, gpus=1)
    assert _verdict(Request(7, "mig", profile="1g.5gb"), [], one).nodes == ("n",)
    assert _verdict(Request(8, "mig", profile="1g.5gb"), [], one).nodes == ()
    taken = [claim("three", "n", "gpu-n-0-mig-3g20gb-4")]
    assert _verdict(Request(4, "mig", profile="1g.5gb"), taken, one).nodes == ("n",)
    assert _verdict(Request(5, "mig", profile="1g.5gb"), taken, one).nodes == ()


def test_the_eighth_mig_device_names_the_seven() -> None:
    one = slices("n", ON_DEMAND, gpus=1)
    held = [claim(f"m{i}", "n", f"gpu-n-0-mig-1g5gb-{i}") for i in range(7)]
    verdict = _verdict(Request(1, "mig", profile="1g.5gb"), held, one)
    assert "team/m0" in verdict.conclusion


@pytest.mark.parametrize(
    ("request_of", "reason"),
    [
        (Request(1, "mig", profile="7g.40gb"), "offers no 7g.40gb (2 GPUs)"),
        (Request(1, "share", 10, tenant="prod"), "has no shares for tenant prod (2 GPUs)"),
        (Request(1, "share", 10, use_types=("t4",)), "is NVIDIA A100-SXM4-40GB (2 GPUs)"),
        (Request(1, "share", 10, no_types=("a100",)), "is NVIDIA A100-SXM4-40GB (2 GPUs)"),
        (
            Request(1, "share", unknown=("divvy.gpu/memory",)),
            "has no divvy.gpu/memory; the claim must call it memory (2 GPUs)",
        ),
        (
            Request(1, "share", 10, unknown=("tflops",)),
            "has no tflops, only memory and cores (2 GPUs)",
        ),
        (Request(1, "share", 10, cores=101), "101 % of its time is requested (2 GPUs)"),
        (Request(1, "share", 10, turns=2), "a claim gets one share of it, not 2 (2 GPUs)"),
        (Request(1, "gpu", 40961), "40,961 MiB are more than its 40,960 (2 GPUs)"),
        (Request(1, "gpu", cores=10), "has no cores, only memory (2 GPUs)"),
        (Request(1, "gpu", turns=1), "has no shares, only memory (2 GPUs)"),
        (
            Request(1, "mig", 4865, profile="1g.5gb"),
            "4,865 MiB are more than its 4,864 (2 GPUs)",
        ),
    ],
)
def test_what_is_not_offered_at_all(request_of: Request, reason: str) -> None:
    assert _verdict(request_of, []).conclusion == f"no GPU can ever give it: {reason}"


def test_types_are_whole_words() -> None:
    assert _verdict(Request(1, "share", 10, use_types=("a100",)), []).nodes == ("n",)
    assert _verdict(Request(1, "share", 10, use_types=("a10",)), []).nodes == ()
    assert _verdict(Request(1, "share", 10, use_types=("a100-sxm4",)), []).nodes == ("n",)


def test_another_tenant_holds_the_gpu() -> None:
    both = {"shares": {}, "tenants": ["prod", "dev"]}
    held = [claim("p", "n", "gpu-n-0-share-prod", "3000Mi", "30")]
    verdict = _verdict(
        Request(1, "share", 3000, None, 30, tenant="dev"), held, slices("n", both, gpus=1)
    )
    assert "team/p (3,000 MiB, 30 %) holds a share of tenant prod" in verdict.conclusion


def test_a_fault_is_named() -> None:
    listed = slices("n", ON_DEMAND, gpus=1, taints={0: "xid-79"})
    verdict = _verdict(SHARE, [], listed)
    assert verdict.conclusion == ("waiting for a GPU: takes no new pods: divvy.gpu/fault=xid-79")


def test_without_any_gpu_by_claims() -> None:
    assert explain("team/pod", [SHARE], ()).verdicts[0].conclusion == (
        "no GPU of the cluster is served by claims"
    )
