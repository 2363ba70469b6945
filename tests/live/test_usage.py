"""What divvy top reads of nodes, pods, claims and the agents' metrics."""

import pytest

from divvy.live.agent_readings import Sample
from divvy.live.usage import matching, ordered, selected, sums
from divvy.plan.fit.live_claims import claimed_gpus
from tests.live.used import devices, gpu_samples, held, raw_gpu, raw_node, raw_pod, usage
from tests.plan.claimed import claim, slices

GPU, SHARED, MIG = "nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.5gb"
DAY = 86400.0


def two_nodes():
    """Return node a, whose first GPU is held, and node b, whose only GPU is fuller and busier."""
    return usage(
        [
            raw_node("a", [raw_gpu("a", 0, GPU), raw_gpu("a", 1, GPU)], {GPU: "2"}),
            raw_node("b", [raw_gpu("b", 0, GPU)], {GPU: "1"}),
        ],
        [
            raw_pod("train", "a", {GPU: "1"}),
            {
                **raw_pod("big", "b", {GPU: "1"}),
                "metadata": {
                    "namespace": "other",
                    "name": "big",
                    "creationTimestamp": "2026-01-02T11:59:00Z",
                },
            },
            raw_pod("later", None, {GPU: "4"}),
        ],
        {
            "a": [
                devices(GPU, "whole", 2),
                *gpu_samples("a", 0, 1000, 10),
                *gpu_samples("a", 1, 2000, 20),
                *held("a", 0, GPU, "whole", "train", used=1000),
            ],
            "b": [*gpu_samples("b", 0, 30000, 90)],
        },
    )


def test_filters_nodes_and_pods_by_a_text_in_their_name():
    assert [node.name for node in matching(two_nodes(), "b").nodes] == ["b"]
    (node,) = matching(two_nodes(), "trai").nodes
    assert [holding.pod.name for holding in node.holdings] == ["train"]
    assert [pod.name for pod in matching(two_nodes(), "late").waiting] == ["later"]
    assert matching(two_nodes(), "") == two_nodes()


def test_shows_a_held_and_a_free_whole_gpu() -> None:
    first, second = two_nodes().nodes[0].gpus
    (holding,) = first.holdings
    assert (first.used_mib, first.total_mib, first.utilisation) == (1000, 40960, 10)
    assert (holding.device, holding.holder, holding.container) == ("whole", "team/train", "main")
    assert (holding.used_mib, holding.limit_mib) == (1000, 40960)
    assert (holding.pod.age_seconds, holding.pod.state) == (DAY, "Running")
    assert (first.free, second.holdings, second.free) == ({}, (), {"whole": 1})


def test_counts_nothing_as_free_while_the_agent_does_not_know_the_holders() -> None:
    """Its kubelet starts: the metrics have the devices, and nobody who holds them."""
    gpus = [raw_gpu("n", 0, GPU), raw_gpu("n", 1, GPU)]
    samples = [devices(GPU, "whole", 2), *gpu_samples("n", 0, 900), *gpu_samples("n", 1, 0)]
    pods = [raw_pod("train", "n", {GPU: "1"})]
    (node,) = usage([raw_node("n", gpus)], pods, agents={"n": samples}).nodes
    assert [gpu.free for gpu in node.gpus] == [{}, {}]
    (node,) = usage([raw_node("n", gpus)], agents={"n": samples}).nodes
    assert [gpu.free for gpu in node.gpus] == [{"whole": 1}, {"whole": 1}]


def test_counts_nothing_as_free_while_a_change_waits_for_its_holder() -> None:
    """The status names what is to come, and the metrics what the pod keeps."""
    waiting = {"state": "Waiting", "reason": "held by team/train"}
    gpus = [raw_gpu("n", 0, SHARED, **waiting), raw_gpu("n", 1, SHARED)]
    samples = [
        devices(SHARED, "time-slicing", 4),
        *gpu_samples("n", 0, 900),
        *held("n", 0, GPU, "whole", "train", "GPU-n-0"),
    ]
    first, second = usage([raw_node("n", gpus)], agents={"n": samples}).nodes[0].gpus
    (holding,) = first.holdings
    assert (holding.holder, holding.device) == ("team/train", "whole")
    assert (first.free, second.free) == ({}, {"replica": 4})


def test_counts_all_replicas_of_a_gpu_beside_one_that_waits_for_its_change() -> None:
    gpus = [raw_gpu("n", 0, SHARED, state="Waiting"), raw_gpu("n", 1, SHARED)]
    samples = [devices(SHARED, "time-slicing", 4), *gpu_samples("n", 0, 900)]
    first, second = usage([raw_node("n", gpus)], agents={"n": samples}).nodes[0].gpus
    assert (first.free, second.free) == ({}, {"replica": 4})


def test_shows_requested_and_allocatable_resources() -> None:
    (resource,) = two_nodes().nodes[0].resources
    assert (resource.resource, resource.requested, resource.allocatable) == (GPU, 1, 2)


def test_shows_memory_of_mig_devices_and_counts_free_ones() -> None:
    gpu = raw_gpu("n", 0, MIG, mig={"1g.5gb": 3})
    samples = [
        devices(MIG, "mig", 3),
        *gpu_samples("n", 0, 2140),
        *held("n", 0, MIG, "mig", "a", "MIG-1", 1500),
    ]
    (gpu_usage,) = usage([raw_node("n", [gpu])], agents={"n": samples}).nodes[0].gpus
    (holding,) = gpu_usage.holdings
    assert (holding.device, holding.used_mib, holding.limit_mib) == ("1g.5gb", 1500, 4864)
    assert (gpu_usage.free, gpu_usage.utilisation, gpu_usage.total_mib) == (
        {"1g.5gb": 2},
        None,
        40960,
    )


def test_shows_limits_of_shares_and_none_of_replicas() -> None:
    gpus = [raw_gpu("n", 0, SHARED), raw_gpu("n", 1, SHARED)]
    place = {"uuid": "GPU-n-0", "namespace": "team", "pod": "a", "container": "main"}
    limited = [
        devices(SHARED, "time-slicing+limit", 8),
        *gpu_samples("n", 0, 900),
        *held("n", 0, SHARED, "time-slicing+limit", "a", "GPU-n-0::0"),
        *held("n", 0, SHARED, "time-slicing+limit", "a", "GPU-n-0::1"),
        Sample("divvy_share_memory_used_mib", place, 700),
        Sample("divvy_share_memory_limit_mib", place, 6000),
    ]
    first, second = usage([raw_node("n", gpus)], agents={"n": limited}).nodes[0].gpus
    (holding,) = first.holdings
    assert (holding.device, holding.used_mib, holding.limit_mib) == ("share ×2", 700, 6000)
    assert holding.utilisation is None
    working = [*limited, Sample("divvy_container_gpu_utilisation", place, 42)]
    (holding,) = usage([raw_node("n", gpus)], agents={"n": working}).nodes[0].gpus[0].holdings
    assert holding.utilisation == 42
    assert (first.free, second.free) == ({"share": 2}, {"share": 4})
    plain = [
        *held("n", 0, SHARED, "time-slicing", "a", "GPU-n-0::0"),
        Sample("divvy_memory_over_limit_mib", place, 12),
    ]
    (holding,) = usage([raw_node("n", gpus)], agents={"n": plain}).nodes[0].gpus[0].holdings
    assert (holding.device, holding.limit_mib, holding.over_mib) == ("replica", None, 12)


def test_shows_the_gpus_memory_in_single_strategy() -> None:
    node = raw_node("n", [raw_gpu("n", 0, GPU)])
    node["metadata"]["labels"] |= {
        "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb",
        "nvidia.com/gpu.memory": "4864",
    }
    (gpu,) = usage([node], agents={"n": gpu_samples("n", 0, 640)}).nodes[0].gpus
    assert (gpu.total_mib, gpu.product) == (40960, "NVIDIA A100-SXM4-40GB")
    (gpu,) = usage([node]).nodes[0].gpus
    assert gpu.total_mib == 40960


def test_shows_holders_and_sizes_by_claims_without_the_agent() -> None:
    claims = [claim("c", "n", "gpu-n-0-share", "3000Mi", "30", "a")]
    pod = raw_pod("a", "n")
    pod["spec"]["resourceClaims"] = [
        {"name": "gpu", "resourceClaimTemplateName": "divvy-1x3000m-30c"}
    ]
    pod["spec"]["containers"][0]["resources"] = {"claims": [{"name": "gpu"}]}
    pod["status"]["resourceClaimStatuses"] = [{"name": "gpu", "resourceClaimName": "c"}]
    gpus = claimed_gpus(slices("n", {"shares": {}}), claims)
    (node,) = usage([raw_node("n")], [pod], gpus=gpus, claims=claims).nodes
    (holding,) = node.gpus[0].holdings
    assert (holding.device, holding.holder, holding.container) == ("share", "team/a", "main")
    assert (holding.limit_mib, holding.cores, holding.used_mib) == (3000, 30, None)
    assert (node.gpus[0].total_mib, len(node.gpus), node.unplaced) == (40960, 2, ())
    place = {"uuid": "GPU-n-0", "namespace": "team", "pod": "a", "container": "main"}
    samples = [Sample("divvy_share_memory_used_mib", place, 700)]
    (node,) = usage([raw_node("n")], [pod], {"n": samples}, gpus=gpus, claims=claims).nodes
    assert [holding.used_mib for holding in node.holdings] == [700]
    other = {**place, "container": "sidecar"}
    samples += [Sample("divvy_container_gpu_utilisation", at, 21) for at in (place, other)]
    (node,) = usage([raw_node("n")], [pod], {"n": samples}, gpus=gpus, claims=claims).nodes
    assert [holding.utilisation for holding in node.holdings] == [21]


def test_shows_an_unclaimed_gpu_as_free() -> None:
    gpus = claimed_gpus(slices("n", {"shares": {}}, taints={1: "unhealthy"}, gpus=3), [])
    (node,) = usage([raw_node("n")], [], gpus=gpus).nodes
    assert [gpu.free for gpu in node.gpus] == [{"whole (claims)": 1}, {}, {"whole (claims)": 1}]
    gpus = claimed_gpus(
        slices("n", {"shares": {}}), [claim("c", "n", "gpu-n-0-share", "3000Mi", "30", "a")]
    )
    (node,) = usage([raw_node("n")], [raw_pod("a", "n")], gpus=gpus).nodes
    assert [gpu.free for gpu in node.gpus] == [{}, {"whole (claims)": 1}]


def test_shows_memory_of_a_claimed_mig_device_and_of_no_other_of_its_pod() -> None:
    offers = slices("n", {"mig": ["1g.5gb"]})
    first, second = "gpu-n-0-mig-1g5gb-0", "gpu-n-0-mig-1g5gb-1"
    claims = [claim(name, "n", name, pod="a") for name in (first, second)]
    labels = {"mode": "claims", "uuid": "MIG-1", "gpu": "GPU-n-0", "namespace": "team", "pod": "a"}
    samples = [Sample("divvy_pod_memory_used_mib", {**labels, "device": first}, 1500)]
    gpus = claimed_gpus(offers, claims)
    (node,) = usage([raw_node("n")], agents={"n": samples}, gpus=gpus, claims=claims).nodes
    used = {holding.claim: holding.used_mib for holding in node.holdings}
    assert used == {first: 1500, second: None}


def test_requests_no_resource_that_became_a_claim() -> None:
    pod = raw_pod("a", "n", {GPU: "1"})
    mapping = {"containerName": "main", "requestName": "r", "resourceName": GPU}
    extended = {"resourceClaimName": "c", "requestMappings": [mapping]}
    pod["status"]["extendedResourceClaimStatus"] = extended
    claims = [claim("c", "n", "gpu-n-0-share", "40960Mi", "100", "a")]
    gpus = claimed_gpus(slices("n", {"shares": {}}), claims)
    (node,) = usage([raw_node("n")], [pod], gpus=gpus, claims=claims).nodes
    assert node.resources == ()
    assert [holding.holder for holding in node.holdings] == ["team/a"]


def test_names_a_claim_that_no_pod_uses() -> None:
    held_by = claim("c", "n", "gpu-n-0-share", "3000Mi", "30")
    held_by["status"]["reservedFor"] = []
    gpus = claimed_gpus(slices("n", {"shares": {}}), [held_by])
    (holding,) = usage([raw_node("n")], gpus=gpus).nodes[0].holdings
    assert holding.holder == "claim team/c"


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({}, "no agent of Divvy runs on it"),
        ({"problems": {"a": "its agent does not answer"}}, "its agent does not answer"),
        ({"no_answer": "this user may not list the agents"}, "this user may not list the agents"),
    ],
)
def test_shows_pods_by_node_and_why_when_the_agent_is_unreachable(more, words) -> None:
    nodes = [raw_node("a", [raw_gpu("a", 0, GPU)], {GPU: "1"})]
    (node,) = usage(nodes, [raw_pod("train", "a", {GPU: "1"})], **more).nodes
    assert (node.unknown, node.gpus[0].used_mib, node.gpus[0].free) == (words, None, {})
    (pod,) = node.unplaced
    assert (pod.full_name, pod.requests) == ("team/train", (f"{GPU} ×1",))


def test_omits_requested_resources_without_the_right_to_read_pods() -> None:
    (node,) = usage([raw_node("a", [], {GPU: "1"})], has_all_pods=False).nodes
    assert node.resources[0].requested is None


def test_shows_pending_pods_with_the_schedulers_reason_and_omits_others() -> None:
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "no",
    }
    result = usage(
        [raw_node("cpu")],
        [
            raw_pod("w", None, {GPU: "1"}, conditions=[condition]),
            raw_pod("ended", "a", {GPU: "1"}, phase="Succeeded"),
            raw_pod("web", None, {"cpu": "1"}),
        ],
    )
    assert result.nodes == ()
    assert [(pod.name, pod.state, pod.reason) for pod in result.waiting] == [
        ("w", "Unschedulable", "no")
    ]


def test_omits_unknown_gpus_from_sums() -> None:
    nodes = two_nodes().nodes
    whole = sums(nodes)
    assert (whole.gpus, whole.used_mib, whole.total_mib) == (3, 33000, 3 * 40960)
    assert (whole.utilisation, whole.pods, whole.unknown) == (40, 2, 0)
    none = sums(usage([raw_node("a", [raw_gpu("a", 0, GPU)])]).nodes)
    assert (none.total_mib, none.utilisation, none.unknown) == (0, None, 1)


def test_selects_by_node_pod_and_namespace() -> None:
    nodes = two_nodes()
    only = selected(nodes, node="b")
    assert ([node.name for node in only.nodes], only.waiting) == (["b"], ())
    for pod in ("train", "team/train"):
        only = selected(nodes, pod=pod)
        assert [(node.name, [gpu.index for gpu in node.gpus]) for node in only.nodes] == [
            ("a", [0])
        ]
        assert only.waiting == ()
    only = selected(nodes, namespace="other")
    # Its agent does not say which GPU the pod holds.
    assert [(node.name, node.gpus, len(node.unplaced)) for node in only.nodes] == [("b", (), 1)]
    assert selected(nodes, namespace="team", pod="later").waiting == nodes.waiting
    assert selected(nodes, namespace="other", pod="train").nodes == ()


def test_orders_the_most_used_and_the_longest_held_first() -> None:
    cluster_usage = two_nodes()
    assert ordered(cluster_usage, "node") is cluster_usage
    for order, nodes, gpus in (
        ("memory", ["b", "a"], [1, 0]),
        ("utilisation", ["b", "a"], [1, 0]),
        ("age", ["a", "b"], [0, 1]),
    ):
        first = ordered(cluster_usage, order)
        assert [node.name for node in first.nodes] == nodes, order
        node = next(node for node in first.nodes if node.name == "a")
        assert [gpu.index for gpu in node.gpus] == gpus, order


HOSTILE = "\x1b[31m\u202e[bold]x\ud800"
ESCAPED = "\ufffd[31m\ufffd[bold]x\ufffd"


def test_strips_control_characters_from_outside_text() -> None:
    gpus = [raw_gpu("n", 0, GPU, reason=HOSTILE)]
    samples = [*gpu_samples("n", 0, 5), *held("n", 0, GPU, "whole", HOSTILE, used=5)]
    pod = raw_pod("p", "n", {GPU: "1"})
    pod["status"]["message"] = HOSTILE
    (node,) = usage([raw_node("n", gpus, reason=HOSTILE)], [pod], {"n": samples}).nodes
    assert (node.reason, node.gpus[0].reason) == (ESCAPED, ESCAPED)
    assert node.holdings[0].pod.name == ESCAPED
    assert node.unplaced[0].reason == ESCAPED


@pytest.mark.parametrize(
    "gpus",
    [None, 3, "x", [3], [{}], [{"uuid": 1, "index": 0}], [{"uuid": "x", "index": "0"}]],
)
def test_keeps_the_agents_metrics_beside_a_damaged_status(gpus) -> None:
    node = raw_node("n", [])
    node["metadata"]["annotations"]["divvy.gpu/status"] = f'{{"gpus": {gpus!r}}}'.replace("'", '"')
    (node_usage,) = usage([node], agents={"n": gpu_samples("n", 0, 5)}).nodes
    assert [gpu.used_mib for gpu in node_usage.gpus] == [5]


def test_ignores_samples_that_are_not_numbers() -> None:
    samples = [*gpu_samples("n", 0, float("nan"), float("inf")), *gpu_samples("n", 1, -1)]
    nodes = [raw_node("n", [raw_gpu("n", 0, GPU)])]
    (gpu,) = usage(nodes, agents={"n": samples}).nodes[0].gpus
    assert (gpu.used_mib, gpu.utilisation) == (None, None)
