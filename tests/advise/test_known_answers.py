"""Traces whose answer an administrator knows."""

import pytest

from divvy.advise.advice import PoolAdvice
from divvy.advise.adviser import advise
from divvy.model import parse_cluster
from tests.advise.traces import DAY, GPU_MIB, HOUR, advised, cluster, pod, trace

ALL = ("memory", "compute", "faults")
NOTEBOOKS = [pod(f"notebook-{number}") for number in range(10)]


def profile(advice: PoolAdvice) -> object:
    assert advice.recommended is not None, advice.reason or advice.unknown
    return advice.recommended.profile


def test_ten_notebooks_on_whole_gpus_need_two_with_mig() -> None:
    advice = advised(trace(*NOTEBOOKS))
    assert advice.today is not None
    assert (advice.today.gpus, advice.today.nodes, advice.today.spare_nodes) == (10, 3, 0)
    # The only pool: its pods ask for nvidia.com/gpu, and can go on doing so.
    assert profile(advice) == {"mig": {"layout": {"1g.5gb": 7}, "strategy": "single"}}
    best = advice.recommended
    assert best is not None
    assert (best.gpus, best.nodes, best.spare_nodes) == (2, 1, 2)
    assert (best.requests, best.lost) == ({}, ())
    # 12 GPUs for a day, or 4, less ten times a tenth of one.
    assert (round(advice.today.idle_hours), round(best.idle_hours)) == (264, 72)
    assert advice.reason == (
        "with 7 × 1g.5gb the pods need 2 GPUs at the peak instead of 10, 2 of 3 nodes could go, "
        "and no guarantee gets weaker"
    )


def test_weaker_guarantees_are_taken_only_where_they_are_allowed() -> None:
    advice = advised(trace(*NOTEBOOKS), allow=ALL)
    assert advice.recommended is not None
    assert advice.recommended.gpus == 1
    assert profile(advice) == {
        "timeSlicing": {
            "replicas": 10,
            "memoryLimit": {"limit": "auto", "action": "prevent"},
            "compute": "share",
            "renameByDefault": False,
        }
    }
    levels = {change.guarantee: (change.before, change.after) for change in advice.recommended.lost}
    assert levels == {
        "memory": ("exclusive", "prevented"),
        "compute": ("exclusive", "weighted"),
        "faults": ("isolated", "shared"),
    }
    assert advice.reason.endswith("memory, compute and faults get weaker, as allowed")
    for allow in (("memory",), ("memory", "compute"), ("faults",)):
        kept = advised(trace(*NOTEBOOKS), allow=allow).recommended
        assert kept is not None
        assert set(kept.to_allow) <= set(allow)


def test_a_bursty_inference_pool_needs_what_its_bursts_need_and_not_the_mean() -> None:
    always = [pod(f"api-{number}", peak_mib=2048, cores=8) for number in range(4)]
    bursts = [
        pod(f"burst-{hour}-{number}", hour * HOUR, hour * HOUR + 600, peak_mib=2048, cores=8)
        for hour in range(24)
        for number in range(36)
    ]
    advice = advised(trace(*always, *bursts), cluster(nodes=10))
    assert advice.today is not None
    assert advice.today.gpus == 40
    # In the mean ten pods run, for which two GPUs would do; forty take six.
    assert advice.recommended is not None
    assert (advice.recommended.words, advice.recommended.gpus) == ("7 × 1g.5gb", 6)


def test_a_tenant_that_needs_mig_keeps_mig() -> None:
    given = {"resource": "nvidia.com/mig-1g.5gb", "kind": "mig", "given_mib": 4864}
    pods = [
        pod(f"model-{number}", namespace=f"bank-{number % 2}", peak_mib=500, cores=2, **given)
        for number in range(28)
    ]
    pods = [known._replace(given_cores=100 / 7) for known in pods]
    of = cluster({"mig": {"1g.5gb": 7}})
    advice = advised(trace(*pods), of)
    assert advice.recommended is None
    assert advice.today is not None
    assert advice.today.gpus == 4
    assert "no profile that keeps every guarantee needs fewer than the 4 GPUs" in advice.reason
    assert "--allow memory --allow compute --allow faults" in advice.reason
    assert advised(trace(*pods), of, allow=("memory", "compute")).recommended is None
    shared = advised(trace(*pods), of, allow=ALL).recommended
    assert shared is not None
    assert shared.gpus == 1


def test_tenants_that_share_no_gpu_get_no_share_beside_another_tenant() -> None:
    share = {"resource": "claims", "kind": "share", "given_mib": 20_000, "given_cores": 50}
    pods = [pod(f"s-{number}", peak_mib=2000, cores=2, **share) for number in range(8)]
    of = cluster({"claims": {"shares": {}, "tenants": ["a", "b"]}})
    kept = advised(trace(*pods), of).recommended
    assert kept is not None
    assert "mig" in str(kept.profile)
    weaker = advised(trace(*pods), of, allow=ALL).best
    shared = [option for option in weaker if "shares" in option.words]
    assert shared
    assert all("faults" in option.to_allow for option in shared)


def test_pods_that_the_profile_of_today_would_refuse_are_a_reason_to_change_it() -> None:
    pods = [pod("large", peak_mib=30_000, cores=5), pod("small", peak_mib=1000, cores=5)]
    advice = advised(trace(*pods), cluster({"mig": {"1g.5gb": 7}}))
    assert advice.today is not None
    assert advice.today.refused == ("team/large",)
    assert advice.recommended is not None
    assert "none is refused where 1 pod would be" in advice.reason


def test_pods_that_use_their_gpus_have_nothing_to_gain() -> None:
    pods = [pod(f"train-{number}", peak_mib=38_000, cores=95) for number in range(6)]
    advice = advised(trace(*pods), allow=ALL)
    assert (advice.recommended, advice.best) == (None, ())
    assert advice.reason.startswith("no profile that keeps every guarantee needs fewer")
    # What they had is enough, however little is above the peak.
    assert advice.today is not None
    assert advice.today.gpus == 6


def test_pods_with_several_gpus_keep_whole_ones_beside_the_parts_of_others() -> None:
    pods = [pod("train", devices=4, peak_mib=3000, cores=5), *NOTEBOOKS]
    advice = advised(trace(*pods), cluster(nodes=2, gpus=8))
    assert advice.recommended is not None
    assert advice.recommended.gpus == 6
    assert profile(advice) == [
        {"devices": [0, 1], "mig": {"1g.5gb": 7}},
    ]
    assert advice.recommended.requests == {("nvidia.com/gpu", "nvidia.com/mig-1g.5gb"): 10}


def test_keeps_no_name_that_another_pool_offers_too() -> None:
    value = {
        "profiles": {"now": {}},
        "pools": {
            name: {
                "select": {"pool": name},
                "hardware": {"model": "A100-SXM4-40GB", "gpus": 4, "count": 3},
                "profile": "now",
            }
            for name in ("a100", "other")
        },
    }
    advice = advised(trace(*NOTEBOOKS), parse_cluster(value))
    assert profile(advice) == {"mig": {"1g.5gb": 7}}
    assert advice.recommended is not None
    assert advice.recommended.requests == {("nvidia.com/gpu", "nvidia.com/mig-1g.5gb"): 10}


def test_a_pool_that_is_too_small_gets_a_profile_with_which_nobody_waits() -> None:
    pods = [pod(f"job-{number}", 0, 2 * HOUR) for number in range(8)]
    advice = advised(trace(*pods), cluster(nodes=1))
    assert advice.today is not None
    # Four run at once; the others come when these end.
    assert len(advice.today.waiting) == 4
    assert advice.today.longest_wait == 2 * HOUR
    assert advice.today.gpus == 8
    assert advice.recommended is not None
    assert advice.recommended.waiting == ()
    assert "none waits where 4 pods would" in advice.reason


def test_a_pool_that_is_much_too_small_is_no_reason_to_keep_its_profile() -> None:
    pods = [pod(f"job-{number}", number, 20 * HOUR) for number in range(1500)]
    advice = advised(trace(*pods), cluster(nodes=2))
    assert advice.today is not None
    assert (advice.today.gpus, len(advice.today.waiting) > 1000) == (1500, True)
    assert advice.recommended is not None
    assert (advice.recommended.gpus, advice.recommended.waiting[0][1]) == (215, float("inf"))
    assert "52 nodes more than the pool has" in advice.reason


def test_a_pod_that_no_node_of_the_profile_has_room_for_waits_for_ever() -> None:
    wide = pod("wide", devices=3)
    advice = advised(trace(wide, *NOTEBOOKS), cluster(gpus=2, nodes=8))
    assert advice.today is not None
    assert advice.today.waiting == (("team/wide", float("inf")),)
    assert advice.today.gpus == 10
    assert advice.recommended is not None
    assert advice.recommended.gpus == 2


def test_says_what_waited_for_another_reason() -> None:
    advice = advised(trace(*[known._replace(waited=1800.0) for known in NOTEBOOKS]))
    assert advice.today is not None
    assert advice.today.notes == (
        "10 pods waited, up to 30 min, though this pool had room for them: for another reason than "
        "its profile",
    )


def test_names_the_few_pods_that_are_in_the_way() -> None:
    pods = [pod(f"n-{number}") for number in range(20)]
    pods += [pod("large", peak_mib=30_000)]
    advice = advised(trace(*pods), cluster(nodes=6))
    refused = {option.words: option.refused for option in advice.best if option.refused}
    assert list(refused.values()) == [("team/large",)]
    assert advice.recommended is not None
    assert advice.recommended.refused == ()


def test_names_who_could_be_left_without_memory() -> None:
    pods = [pod(f"n-{number}", peak_mib=2000, cores=1) for number in range(40)]
    pods += [pod("large", peak_mib=25_000, cores=1), pod("other", peak_mib=20_000, cores=1)]
    advice = advised(trace(*pods), cluster(nodes=12), allow=ALL)
    named = [name for option in advice.best for name in (*option.killed, *option.refused)]
    assert {"team/large", "team/other"} == set(named)
    assert advice.recommended is not None
    assert advice.recommended.is_harmless


def test_shows_no_profile_that_refuses_few_and_kills_many() -> None:
    pods = [pod(f"small-{number}", cores=1) for number in range(12)]
    pods += [pod(f"large-{number}", peak_mib=15_000, cores=1) for number in range(8)]
    advice = advised(trace(*pods, pod("wide", devices=2)), cluster(nodes=12), allow=ALL)
    assert {name for option in advice.best for name in option.refused} <= {"team/wide"}
    assert all(len(option.killed) <= 2 for option in advice.best)


def test_slowing_pods_has_to_be_allowed() -> None:
    pods = [pod(f"n-{number}", cores=60) for number in range(6)]
    advice = advised(trace(*pods))
    # Seven parts of a GPU have too little; those with four slices of seven are nearest.
    for option in advice.best:
        assert bool(option.slowed) == ("compute" in option.to_allow)
    assert advice.recommended is None
    slowed = advised(trace(*pods), allow=("compute",)).recommended
    assert slowed is not None
    assert len(slowed.slowed) == 6


def test_what_is_unknown_counts_with_all_that_was_given() -> None:
    unknown = [known._replace(peak_mib=None, cores=None) for known in NOTEBOOKS]
    advice = advised(trace(*unknown), allow=ALL)
    assert (advice.unmeasured, advice.recommended) == (10, None)
    # That nothing is known is no reason to leave it as it is.
    assert "how much 10 pods of 10 used is unknown" in advice.unknown
    advice = advised(trace(*unknown[:2], *NOTEBOOKS[2:]))
    assert advice.unknown == ""
    assert advice.recommended is not None
    # Two whole GPUs, and two of which eight pods have parts.
    assert advice.recommended.gpus == 4


@pytest.mark.parametrize(
    ("hours", "words"),
    [
        (3, "too little data: 3 h of 1 d are recorded, and half of it would be enough"),
        (11.9, "--since 714m takes this as enough"),
        (12, ""),
    ],
)
def test_says_when_there_is_too_little_data(hours: float, words: str) -> None:
    advice = advised(trace(pod("a", 0, HOUR), end=hours * HOUR))
    assert words in advice.unknown
    assert bool(advice.unknown) == bool(words)
    gap = (0.0, (24 - hours) * HOUR)
    assert words in advised(trace(pod("a", 23 * HOUR, DAY), gaps=(gap,))).unknown


def test_says_what_it_leaves_out() -> None:
    value = {
        "profiles": {"now": {}, "cut": {"mig": {"1g.5gb": 7}}},
        "pools": {
            "a100": {
                "select": {"pool": "a100"},
                "hardware": {"model": "A100-SXM4-40GB", "gpus": 4, "count": 3},
                "profile": "now",
                "overrides": {"odd": "cut"},
            },
            "bare": {"profile": "now"},
        },
    }
    pods = [*NOTEBOOKS, pod("x", node="odd"), pod("y", pool="gone")]
    of = parse_cluster(value)
    advice = advise(of, trace(*pods, gaps=((0.0, 2 * HOUR),)), of.pools, DAY)
    first, bare = advice.pools
    assert (first.pods, first.nodes) == (10, 2)
    assert "odd" in first.notes[0]
    assert "1 pod" in first.notes[0]
    assert "does not say which hardware it has" in bare.unknown
    assert advice.notes == (
        "1 pod of no pool of the stack file left out",
        "nothing is known of 2 h of this time",
    )


def test_a_pool_that_nobody_used_is_left_as_it_is() -> None:
    advice = advised(trace(pod("x", pool="other")))
    assert advice.unknown == ""
    assert advice.recommended is None
    assert advice.today is not None
    assert (advice.today.gpus, advice.today.spare_nodes) == (0, 3)


def test_an_older_profile_of_the_pods_is_named() -> None:
    old = pod("old", resource="nvidia.com/gpu.shared", kind="share", given_mib=10_240)
    advice = advised(trace(old, *NOTEBOOKS))
    assert advice.today is not None
    assert (advice.today.refused, advice.today.gpus) == ((), 11)
    assert "1 pod held what the stack file no longer offers" in advice.today.notes[0]
    # What its share guaranteed is unknown: no less than any share can.
    shared = {"resource": "nvidia.com/gpu.shared", "kind": "share", "given_mib": 10_240}
    advice = advised(trace(*[pod(f"old-{number}", **shared) for number in range(4)]), cluster())
    lost = {option.words: option.to_allow for option in advice.best}
    assert all("replicas" not in words or lost[words] for words in lost)
    assert any("replicas" in words for words in lost)


def test_the_timeline_has_the_most_of_each_time() -> None:
    advice = advised(trace(pod("a", 0, HOUR), pod("b", 600, DAY, peak_mib=GPU_MIB, cores=50)))
    assert advice.times is not None
    given, needed = advice.times.given, advice.times.needed
    assert max(given[:7]) == 2
    assert set(given[8:]) == {1}
    assert needed[-1] == 1
    assert round(max(needed), 1) == 1.1


def test_the_timeline_begins_with_what_ran_before_it() -> None:
    times = advised(trace(pod("a", -HOUR, DAY), pod("b", 2 * HOUR, 3 * HOUR))).times
    assert times is not None
    assert times.given[0] == 1


def test_a_device_whose_compute_no_driver_tells_is_enough_again() -> None:
    """In MIG mode there is no utilisation, and a recording of `top` has no part of the compute."""
    given = {"resource": "nvidia.com/mig-1g.5gb", "kind": "mig", "given_mib": 4864, "cores": None}
    for cores in (100 / 7, None):
        pods = [pod(f"m-{number}", given_cores=cores, **given) for number in range(3)]
        of = cluster({"mig": {"3g.20gb": 1, "2g.10gb": 1, "1g.5gb": 1}})
        advice = advised(trace(*pods), of)
        assert advice.today is not None
        assert advice.today.gpus == 3
        assert advice.recommended is not None
        assert (advice.recommended.words, advice.recommended.gpus) == ("7 × 1g.5gb", 1)


def test_replicas_without_a_limit_count_with_their_part() -> None:
    replica = {"resource": "nvidia.com/gpu.shared", "kind": "share", "peak_mib": None}
    unknown = {"cores": None, "given_mib": None, "given_cores": None}
    pods = [pod(f"r-{number}", **replica, **unknown) for number in range(8)]
    advice = advised(trace(*pods), cluster({"timeSlicing": {"replicas": 4}}))
    assert advice.today is not None
    assert advice.today.gpus == 2
    assert advice.times is not None
    assert max(advice.times.given) == 2


def test_says_that_claims_come_in_place_of_the_device_plugin() -> None:
    large = [
        pod(f"l-{number}", number * 6 * HOUR, (number + 1) * 6 * HOUR, peak_mib=15_000, cores=40)
        for number in range(4)
    ]
    # Sizes that take turns: instances on demand are the one way on a single GPU.
    pods = [known for known in large if known.begin % (12 * HOUR) == 0]
    pods += [
        pod(f"s-{hour}-{number}", hour * HOUR, (hour + 6) * HOUR, cores=5)
        for hour in (6, 18)
        for number in range(7)
    ]
    advice = advised(trace(*pods))
    assert advice.recommended is not None
    assert advice.recommended.gpus == 1
    assert advice.recommended.words.startswith("on demand")
    assert any("served by claims" in note for note in advice.recommended.notes)


def test_counts_each_pod_that_has_had_the_same_name() -> None:
    pods = [pod("web-0", 0, 2 * HOUR) for _ in range(8)]
    advice = advised(trace(*pods), cluster(nodes=1))
    assert advice.today is not None
    assert advice.today.waiting == (("team/web-0", 2 * HOUR),) * 4


def test_says_how_many_nodes_could_go_without_a_change() -> None:
    few = [pod(f"n-{number}") for number in range(2)]
    assert "2 of 3 nodes could go (2 without a change)" in advised(trace(*few)).reason
    # Fewer GPUs, on as many nodes.
    pods = [*(known._replace(cores=99) for known in NOTEBOOKS[:6]), *NOTEBOOKS[6:]]
    assert "no node could go, and no guarantee" in advised(trace(*pods), cluster(nodes=2)).reason
    busy = pod("busy", peak_mib=39_000, cores=99)
    assert advised(trace(busy)).reason.endswith("; 2 of 3 nodes could go")


def test_more_nodes_for_fewer_gpus_are_not_advised() -> None:
    pods = [*NOTEBOOKS[:2], *(pod(f"wide-{number}", devices=4) for number in range(2))]
    advice = advised(trace(*pods))
    # A wide pod passes by the GPUs that are left beside small ones: these hold nothing.
    (on_demand,) = [option for option in advice.best if "on demand" in option.words]
    assert on_demand.gpus == 9
    # The scheduler may spread the small ones, so that a wide one needs one more node.
    assert on_demand.nodes == 4
    assert advice.recommended is None
    assert advice.reason == (
        "no profile that keeps every guarantee needs fewer than the 10 GPUs that the pods take at "
        "the peak today, without more nodes or longer waits"
    )


def test_a_profile_that_leaves_too_few_whole_gpus_on_a_node_refuses_wide_pods() -> None:
    pods = [*NOTEBOOKS[:6], *(pod(f"wide-{number}", number, devices=4) for number in range(2))]
    advice = advised(trace(*pods), cluster(nodes=2))
    assert advice.today is not None
    assert advice.today.waiting
    for option in advice.best:
        fewest = 1 if option.refused else 9
        assert option.gpus >= fewest
        assert set(option.refused) <= {"team/wide-0", "team/wide-1"}
        assert not [name for name, _ in option.waiting if name in option.refused]
    assert advice.recommended is not None
    assert (advice.recommended.words, advice.recommended.gpus) == ("on demand: 1g.5gb", 9)
    assert advice.recommended.longest_wait <= advice.today.longest_wait


def test_says_who_still_waits_on_the_nodes_of_the_pool() -> None:
    pods = [pod(f"job-{number}", number, number + 600, cores=25) for number in range(20)]
    advice = advised(trace(*pods), cluster(nodes=1))
    assert advice.recommended is not None
    assert advice.recommended.waiting
    assert (
        "on its 1 node 8 pods (up to 9.8 min) would wait instead of 16 pods (up to 39.7 min)"
        in advice.reason
    )


def test_names_who_used_all_the_memory_that_a_limit_gave() -> None:
    share = {"resource": "nvidia.com/gpu.shared", "kind": "share", "given_mib": 10_240}
    pods = [pod(f"s-{number}", given_cores=25, peak_mib=9000, **share) for number in range(3)]
    pods += [pod("ended", given_cores=25, peak_mib=10_200, **share)]
    advice = advised(trace(*pods), cluster({"timeSlicing": {"replicas": 4, "memoryLimit": "auto"}}))
    assert advice.today is not None
    assert advice.today.notes == (
        "1 pod used all the memory that was given, and may need more: team/ended",
    )


def test_what_is_not_recorded_is_not_idle() -> None:
    used = {"peak_mib": 39_000, "cores": 100}
    pods = [pod(f"a-{number}", 0, 6 * HOUR, **used) for number in range(4)]
    pods += [pod("b", 3 * HOUR, DAY, **used)]
    gaps = ((6 * HOUR, 12 * HOUR), (12 * HOUR, 18 * HOUR))
    today = advised(trace(*pods, gaps=gaps), cluster(nodes=2), wanted=12 * HOUR).today
    assert today is not None
    # Of 8 GPUs, 12 hours are recorded: 4 × 6 of them, and of the last pod 3 and 6.
    assert today.idle_hours == 8 * 12 - 4 * 6 - 3 - 6


def test_says_that_tenants_are_not_recorded() -> None:
    share = {"resource": "claims", "kind": "share", "given_mib": 6000, "given_cores": 10}
    pods = [pod(f"s-{number}", namespace=f"t-{number}", **share) for number in range(2)]
    advice = advised(trace(*pods), cluster({"claims": {"shares": {}, "tenants": ["a", "b"]}}))
    assert advice.today is not None
    assert "which tenant a pod has is not recorded" in advice.today.notes[0]
    assert "could go" not in advice.reason


def test_unknown_compute_is_no_reason_to_leave_a_pool_as_it_is() -> None:
    advice = advised(trace(*[known._replace(cores=None) for known in NOTEBOOKS]))
    assert (advice.unmeasured, advice.recommended) == (10, None)
    assert "how much 10 pods of 10 used is unknown" in advice.unknown


def test_says_how_much_more_pods_took_in_bursts() -> None:
    best = advised(trace(*NOTEBOOKS)).recommended
    assert best is not None
    assert best.notes == (
        "in bursts, up to 5 % of the time, 10 pods took more of a GPU's compute than they would "
        "have: up to 90 %, and would have 14 %",
    )
