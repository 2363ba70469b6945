"""Where pods go, and the sentence that says what is in the way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from divvy.model import Cluster, parse_cluster
from divvy.model.stack import Names
from divvy.plan import plan
from divvy.plan.fit import (
    Fit,
    asking_pod,
    fit,
    nodes_of_cluster,
    nodes_of_plan,
    read_manifests,
)
from divvy.plan.fit.live_claims import Holder
from divvy.plan.fit.manifest_kinds import Document
from divvy.plan.fit.pods import Around

SHARED = "nvidia.com/gpu.shared"
PROFILES = {
    "whole": {},
    "slices": {"timeSlicing": {"replicas": 4}},
    "mix": {"mig": {"2g.10gb": 2, "1g.5gb": 3}},
    "by-size": {"claims": {"shares": {"memory": {"step": "256Mi"}, "max": 3}}},
    "on-demand": {"claims": {"mig": ["1g.5gb", "2g.10gb", "3g.20gb"]}},
    "apart": {"claims": {"shares": {}, "tenants": ["prod", "dev"]}},
}


def cluster(**pools: Any) -> Cluster:
    """Return a cluster of pools: profile, GPUs, nodes, and what else a pool has."""
    value = {}
    for name, (profile, gpus, count, *more) in pools.items():
        hardware = {"model": "A100-SXM4-40GB", "gpus": gpus, "count": count}
        rest = more[0] if more else {}
        value[name] = {"select": {"pool": name}, "profile": profile, "hardware": hardware, **rest}
    return parse_cluster({"profiles": PROFILES, "pools": value})


def pod(name: str = "train", *, limits: Any = None, **more: Any) -> dict[str, Any]:
    """Return a pod; ``requests`` and ``annotations`` beside what its spec has."""
    metadata = {"name": name, "annotations": more.pop("annotations", {})}
    resources = {"limits": limits or {}, "requests": more.pop("requests", {})}
    containers = [{"name": "main", "image": "image", "resources": resources}]
    return {"kind": "Pod", "metadata": metadata, "spec": {"containers": containers, **more}}


def deployment(copies: int, limits: Any, name: str = "web") -> dict[str, Any]:
    spec = {"replicas": copies, "template": pod(limits=limits)}
    return {"kind": "Deployment", "metadata": {"name": name, "namespace": "team"}, "spec": spec}


def fitted(
    known: Cluster, *manifests: Any, nodes: Any = None, quotas: Sequence[dict[str, Any]] = ()
) -> Fit:
    """Put the pods of manifests on some nodes, else on those of the plan."""
    documents = [
        Document(f"pods.yaml: document {n}", manifest) for n, manifest in enumerate(manifests, 1)
    ]
    nodes = nodes or nodes_of_plan(known, plan(known, "test"))
    return fit(known, "test", nodes, read_manifests(documents, known).pods, quotas)


def reason(known: Cluster, *manifests: Any) -> str:
    return fitted(known, *manifests).pods[-1].reason


def test_fits_a_pod_where_its_resource_is_offered() -> None:
    known = cluster(research=("mix", 1, 1), training=("whole", 4, 2))
    fit = fitted(known, pod(limits={"nvidia.com/gpu": 2}))
    assert fit
    (place,) = fit.pods[0].places
    assert (place.pool, place.count, place.devices) == ("training", 1, ("nvidia.com/gpu ×2",))


def test_names_the_nearest_of_a_resource_that_no_pool_offers() -> None:
    known = cluster(research=("mix", 1, 1))
    assert reason(known, pod(limits={"nvidia.com/mig-9g.40gb": 1})) == (
        "no pool offers nvidia.com/mig-9g.40gb; did you mean nvidia.com/mig-2g.10gb?"
    )


def test_reports_that_nothing_is_offered_at_all() -> None:
    """As on a cluster before its first `divvy up`."""
    known = cluster(training=("whole", 4, 1))
    (node,) = nodes_of_plan(known, plan(known, "test"))
    empty = [replace(node, capacity={}, is_live=True)]
    (report,) = fitted(known, pod(limits={SHARED: 1}), nodes=empty).pods
    assert report.reason == f"no node offers {SHARED}; no node offers any GPU resource"


def test_distinguishes_too_large_a_request_from_too_little_left() -> None:
    known = cluster(training=("whole", 4, 2))
    eight = pod(limits={"nvidia.com/gpu": 8})
    assert reason(known, eight) == "pool training offers 4 nvidia.com/gpu, it needs 8"
    three, four = pod("three", limits={"nvidia.com/gpu": 1}), pod(limits={"nvidia.com/gpu": 4})
    fit = fitted(known, three, pod("other", limits={"nvidia.com/gpu": 1}), four)
    # The least loaded node is taken first, so that both have one pod, as the scheduler does.
    assert fit.pods[-1].reason == (
        "pool training offers 4 nvidia.com/gpu, 3 are free, it needs 4; held by default/three"
    )


def test_counts_how_many_pods_of_a_workload_fit() -> None:
    fit = fitted(cluster(research=("mix", 1, 2)), deployment(5, {"nvidia.com/mig-2g.10gb": 1}))
    (pod_fit,) = fit.pods
    assert (pod_fit.fitting, pod_fit.left, pod_fit.pod.full_name) == (4, 1, "team/web")
    assert not fit


def test_fits_a_higher_priority_first() -> None:
    low, high = deployment(4, {"nvidia.com/gpu": 1}), pod("high", limits={"nvidia.com/gpu": 1})
    high["spec"]["priorityClassName"] = "urgent"
    urgent = {"kind": "PriorityClass", "metadata": {"name": "urgent"}, "value": 10}
    fit = fitted(cluster(training=("whole", 4, 1)), low, high, urgent)
    assert [(pod_fit.pod.name, pod_fit.left) for pod_fit in fit.pods] == [("high", 0), ("web", 1)]


def test_respects_taints_labels_and_node_names() -> None:
    tainted = {"tolerations": [{"key": "team", "operator": "Exists", "effect": "NoSchedule"}]}
    known = cluster(training=("whole", 4, 1, {**tainted, "overrides": {"n-1": "slices"}}))
    gpu = {SHARED: 1}
    assert reason(known, pod(limits=gpu)) == (
        "node n-1 (training) has the taint team, which the pod does not tolerate"
    )
    tolerating = {"tolerations": [{"key": "team", "value": "any"}]}
    assert fitted(known, pod(limits=gpu, **tolerating))
    elsewhere = pod(limits=gpu, nodeSelector={"pool": "research"}, **tolerating)
    assert "has pool=training, but the pod requires research" in reason(known, elsewhere)
    named = pod(limits=gpu, nodeName="n-2")
    assert "node n-1 (training) is not n-2, which the pod names" in reason(known, named)


def test_reports_node_facts_missing_from_the_stack_file_as_conditions() -> None:
    known = cluster(training=("whole", 4, 1))
    limits = {"nvidia.com/gpu": 1}
    (pod_fit,) = fitted(known, pod(limits=limits, nodeSelector={"disk": "ssd"})).pods
    assert pod_fit.places[0].unless == ("have the label disk=ssd",)
    product = "nvidia.com/gpu.product"
    other = pod(limits=limits, nodeSelector={product: "Tesla-T4"})
    assert "but the pod requires Tesla-T4" in reason(known, other)
    same = pod(limits=limits, nodeSelector={product: "NVIDIA-A100-SXM4-40GB"})
    assert fitted(known, same)


def test_gives_a_container_one_replica_when_more_are_refused() -> None:
    known = cluster(notebooks=("slices", 1, 1))
    assert reason(known, pod(limits={SHARED: 2})) == (
        f"pool notebooks gives a container 1 {SHARED}, it asks for 2 (failRequestsGreaterThanOne)"
    )
    two = pod(limits={SHARED: 1})
    two["spec"]["containers"] *= 2
    assert fitted(known, two)


@pytest.mark.parametrize(
    ("inits", "needed"),
    [
        ([(3, False)], 3),
        ([(1, True)], 3),
        ([(2, False), (2, True)], 4),
        ([(2, True), (2, False)], 4),
        ([(3, False), (1, True)], 3),
    ],
)
def test_counts_init_containers_and_sidecars_as_the_scheduler_does(
    inits: list[tuple[int, bool]], needed: int
) -> None:
    asking = pod(limits={"nvidia.com/gpu": 2})
    asking["spec"]["initContainers"] = [
        {
            "name": f"init-{number}",
            "resources": {"limits": {"nvidia.com/gpu": count}},
            **({"restartPolicy": "Always"} if stays else {}),
        }
        for number, (count, stays) in enumerate(inits)
    ]
    for gpus in (needed - 1, needed):
        assert bool(fitted(cluster(training=("whole", gpus, 1)), asking)) == (gpus == needed)


def test_fits_shares_until_every_gpu_is_full() -> None:
    known = cluster(shared=("by-size", 2, 1))
    sized = {"nvidia.com/gpumem": 30000, "nvidia.com/gpucores": 60}
    fit = fitted(known, deployment(3, sized))
    (pod_fit,) = fit.pods
    assert [place.devices for place in pod_fit.places] == [
        ("GPU 0: 30,208 MiB, 60 %",),
        ("GPU 1: 30,208 MiB, 60 %",),
    ]
    assert pod_fit.reason == (
        "pool shared has no room left for 1 share of 30,000 MiB and 60 % of a GPU's time; "
        "held by team/web"
    )
    whole = pod(limits={"nvidia.com/gpu": 1})
    assert not fitted(known, deployment(2, sized), whole)
    assert fitted(known, deployment(1, sized), whole)


def test_reuses_a_containers_claim_for_a_like_init_container() -> None:
    known = cluster(shared=("by-size", 1, 1))
    asking = pod(limits={"nvidia.com/gpumem": 30000})
    resources = {"limits": {"nvidia.com/gpumem": 30000}}
    asking["spec"]["initContainers"] = [{"name": "init", "resources": resources}] * 2
    assert fitted(known, asking)
    asking["spec"]["initContainers"] = [
        {"name": "sidecar", "restartPolicy": "Always", "resources": resources}
    ]
    assert not fitted(known, asking)
    resources["limits"]["nvidia.com/gpumem"] = 20000
    asking["spec"]["initContainers"] = [{"name": "init", "resources": resources}]
    assert not fitted(known, asking)


def test_withholds_the_whole_gpu_while_mig_devices_are_claimed() -> None:
    known = cluster(demand=("on-demand", 1, 1))
    slices = deployment(7, {"nvidia.com/mig-1g.5gb": 1})
    assert fitted(known, slices)
    assert not fitted(known, slices, pod(limits={"nvidia.com/gpu": 1}))
    assert reason(known, pod(limits={"nvidia.com/gpu.shared": 1})).startswith("no pool offers")


@pytest.mark.parametrize(("first", "fits"), [("1g.5gb", True), ("3g.20gb", False)])
def test_serves_claims_in_container_order(first: str, fits: bool) -> None:
    """The instance of 1g lies at slice 0 before one of 3g, and behind it at slice 4."""
    known = cluster(demand=("on-demand", 1, 1))
    both = pod()
    both["spec"]["containers"] = [
        {"name": profile, "resources": {"limits": {f"nvidia.com/mig-{profile}": 1}}}
        for profile in sorted(("1g.5gb", "3g.20gb"), key=lambda profile: profile != first)
    ]
    assert bool(fitted(known, both, pod("next", limits={"nvidia.com/mig-2g.10gb": 1}))) == fits


def test_keeps_tenants_shares_to_namespaces_with_their_label() -> None:
    known = cluster(apart=("apart", 1, 1))
    labels = {"divvy.gpu/tenant": "prod"}
    namespace = {"kind": "Namespace", "metadata": {"name": "default", "labels": labels}}
    asking = pod(limits={"nvidia.com/gpumem": 1000})
    assert fitted(known, namespace, asking)
    assert reason(known, asking) == "pool apart offers no share to claims"


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ({"nvidia.com/gpucores": 200}, "nvidia.com/gpucores is 200; 1 to 100 is expected"),
        ({"nvidia.com/gpumem": 0}, "nvidia.com/gpumem is 0; 1 or more is expected"),
        ({"nvidia.com/gpumem": 1, "nvidia.com/gpu": 33}, "nvidia.com/gpu is 33; 1 to 32"),
        ({"nvidia.com/gpumem": 1, "nvidia.com/gpumem-percentage": 5}, "leave one of them out"),
        ({"nvidia.com/gpumem": "1e30"}, "but counts MiB"),
    ],
)
def test_reports_sizes_that_the_cluster_would_refuse(sizes: Any, words: str) -> None:
    refusal = reason(cluster(shared=("by-size", 1, 1)), pod(limits=sizes))
    assert refusal.startswith("it would be refused: ")
    assert words in refusal
    # If nothing is served by claims, no node offers these resources.
    without = parse_cluster({"profiles": {"whole": {}}, "pools": {"all": {"profile": "whole"}}})
    assert reason(without, pod(limits=sizes)) == "there are no nodes"


@pytest.mark.parametrize("limits", [{"nvidia.com/gpu": 1}, {"nvidia.com/gpumem": 1000}])
@pytest.mark.parametrize(
    ("annotation", "value", "words"),
    [
        ("nvidia.com/vgpu-mode", "mig", "is mig; request a MIG device by its resource name"),
        ("nvidia.com/use-gpuuuid", "GPU-1", "nvidia.com/use-gpuuuid is not supported"),
        ("nvidia.com/nouse-gpuuuid", "GPU-1", "nvidia.com/nouse-gpuuuid is not supported"),
    ],
)
def test_refuses_annotations_of_hami_that_cannot_be_followed(
    limits: Any, annotation: str, value: str, words: str
) -> None:
    known = cluster(shared=("by-size", 1, 1))
    asking = pod(limits=limits, annotations={annotation: value})
    assert reason(known, asking).startswith("it would be refused: ")
    assert words in reason(known, asking)
    assert fitted(known, pod(limits={"cpu": 1}, annotations={annotation: value}))


def test_ignores_hamis_priority_and_cores_of_zero() -> None:
    known = cluster(shared=("by-size", 1, 1))
    ignored = {"nvidia.com/priority": 1, "nvidia.com/gpucores": 0}
    assert fitted(known, pod(limits={"nvidia.com/gpumem": 1000, **ignored}))
    whole = pod("whole", limits={"nvidia.com/gpu": 1, **ignored})
    assert fitted(known, whole)
    assert not fitted(known, whole, pod("another", limits={"nvidia.com/gpu": 1}))


def test_gives_pods_of_kai_shares_where_the_stack_file_names_its_annotation() -> None:
    known = cluster(shared=("by-size", 1, 1))
    pods = [pod(f"half-{n}", annotations={"gpu-fraction": "0.5"}) for n in range(3)]
    assert fitted(known, pods[0]).pods[0].unknown == 1  # somebody else may read it
    named = known.model_copy(update={"names": Names(fraction="gpu-fraction")})
    assert fitted(named, *pods[:2])
    assert reason(named, *pods) == (
        "pool shared has no room left for 1 share of 50 % of a GPU's memory and 1 % of a "
        "GPU's time; held by default/half-0, default/half-1"
    )
    kai = pod("kai", annotations={"gpu-fraction": "0.5"}, schedulerName="kai-scheduler")
    assert fitted(named, kai).pods[0].unknown == 1


def test_matches_types_as_whole_words_of_a_models_name() -> None:
    known = cluster(shared=("by-size", 1, 1))
    for limit in ("nvidia.com/gpumem", "nvidia.com/gpu"):
        for types, fits in (("A100", True), ("A10", False)):
            asking = pod(limits={limit: 1}, annotations={"nvidia.com/use-gputype": types})
            assert bool(fitted(known, asking)) == fits


@pytest.mark.parametrize(
    ("use", "no", "words"),
    [
        ("use", "", "nvidia.com/use-gputype has 'use'; GPU types such as A100 are expected"),
        ("A100;H100", "", "nvidia.com/use-gputype has 'A100;H100'; GPU types such as A100"),
        ("", "\x1b[31m", "nvidia.com/nouse-gputype has '\\x1b[31m'; GPU types such as A100"),
        (",".join(["A100"] * 17), "", "has 17 GPU types; 16 at most are possible"),
        ("A100", "a100", "a100 is in nvidia.com/use-gputype and in nvidia.com/nouse-gputype"),
        ("a" * 999, "a" * 999, f": {'a' * 40} is in nvidia.com/use-gputype"),
    ],
)
def test_reports_types_that_the_cluster_would_refuse(use: str, no: str, words: str) -> None:
    annotations = {"nvidia.com/use-gputype": use, "nvidia.com/nouse-gputype": no}
    known = cluster(shared=("by-size", 1, 1))
    refusal = reason(known, pod(limits={"nvidia.com/gpu": 1}, annotations=annotations))
    assert refusal.startswith("it would be refused: ")
    assert words in refusal
    assert fitted(known, pod(limits={"nvidia.com/gpu": 0}, annotations=annotations))


@pytest.mark.parametrize(
    ("profile", "device_class", "fits"),
    [
        ("by-size", "divvy-gpu", True),
        ("by-size", "divvy-share", True),
        ("by-size", "divvy-mig-1g.5gb", False),
        ("on-demand", "divvy-mig-1g.5gb", True),
        ("on-demand", "divvy-mig", True),
        ("apart", "divvy-share-prod", True),
        ("apart", "divvy-share", False),
    ],
)
def test_serves_the_extended_resource_of_each_class(
    profile: str, device_class: str, *, fits: bool
) -> None:
    """Kubernetes' implicit one, which needs no name in the class (DRAExtendedResource)."""
    asking = pod(limits={f"deviceclass.resource.kubernetes.io/{device_class}": 1})
    known = cluster(training=(profile, 1, 1))
    assert bool(fitted(known, asking)) == fits
    if device_class == "divvy-gpu":
        more = reason(known, asking, pod("more", limits={"nvidia.com/gpu": 1}))
        assert "has no room left for 1 whole GPU; held by default/train" in more


def test_names_the_nearest_resource_that_claims_serve() -> None:
    known = cluster(training=("by-size", 1, 1))
    assert reason(known, pod(limits={"nvidia.com/gpus": 1})) == (
        "no pool offers nvidia.com/gpus; did you mean nvidia.com/gpu?"
    )
    assert reason(known, pod(limits={"example.com/fpga": 1})) == (
        "no pool offers example.com/fpga; known: nvidia.com/gpu, nvidia.com/gpu.shared"
    )


def test_counts_a_claim_whose_template_is_in_the_file() -> None:
    known = cluster(shared=("by-size", 1, 1))
    template, claiming = by_hand(deviceClassName="divvy-gpu", count=2)
    assert "2 whole GPUs, even with nothing held" in reason(known, template, claiming)
    missing = "there is no ResourceClaimTemplate mine in namespace default"
    assert reason(known, claiming) == missing


def by_hand(**exactly: Any) -> list[dict[str, Any]]:
    """Return a template of a claim, and a pod with it, of this request, or these constraints."""
    constraints = exactly.pop("constraints", ())
    request = exactly.pop("request", None) or {
        "exactly": {"deviceClassName": "divvy-share", **exactly}
    }
    devices = {"requests": [{"name": "gpu", **request}], "constraints": constraints}
    template = {
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "mine"},
        "spec": {"spec": {"devices": devices}},
    }
    return [template, pod(resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "mine"}])]


def sizes(**requests: str) -> dict[str, Any]:
    return {"requests": requests}


@pytest.mark.parametrize(
    ("capacity", "words"),
    [
        (
            {"divvy.gpu/memory": "1Gi", "cores": "1"},
            "pool shared has no divvy.gpu/memory; the claim must call it memory",
        ),
        ({"tflops": "1"}, "pool shared has no tflops, only memory and cores"),
        (
            {"memory": "41Gi"},
            "pool shared has no GPU that gives 1 share of 41,984 MiB: "
            "41,984 MiB are more than its 40,960",
        ),
        (
            {"memory": "1Gi", "cores": "101"},
            "pool shared has no GPU that gives 1 share of 1,024 MiB and 101 % of a GPU's time: "
            "101 % of its time is requested",
        ),
        (
            {"shares": "2"},
            "pool shared has no GPU that gives 1 share of the default size: "
            "a claim gets one share of it, not 2",
        ),
    ],
)
def test_refuses_a_handwritten_claim_that_no_gpu_satisfies(
    capacity: dict[str, str], words: str
) -> None:
    known = cluster(shared=("by-size", 2, 1))
    assert fitted(known, *by_hand(capacity=sizes(memory="1Gi", cores="1", shares="1")))
    result = fitted(known, *by_hand(capacity=sizes(**capacity)))
    assert (result.pods[0].left, result.pods[0].unknown) == (1, 0)
    assert result.pods[0].reason == words


_CONDITIONS = {"selectors": [{"cel": {"expression": "device.driver == 'x'"}}]}
_BOTH = [
    {"name": "one", "deviceClassName": "divvy-gpu"},
    {"name": "two", "deviceClassName": "divvy-share"},
]


@pytest.mark.parametrize(
    ("exactly", "words"),
    [
        (_CONDITIONS, "conditions (CEL)"),
        ({"constraints": [{"matchAttribute": "divvy.gpu/type"}]}, "constraints"),
        ({"allocationMode": "All"}, "all devices of a kind (allocationMode)"),
        ({"adminAccess": True}, "devices that others have (adminAccess)"),
        ({"tolerations": [{"operator": "Exists"}]}, "devices with taints (tolerations)"),
        ({"request": {"firstAvailable": _BOTH}}, "alternatives (firstAvailable)"),
        ({"deviceClassName": "nic.example.com"}, "devices of the class nic.example.com"),
    ],
)
def test_reports_a_claim_as_unknown_when_it_asks_what_fit_does_not_read(
    exactly: dict[str, Any], words: str
) -> None:
    result = fitted(cluster(shared=("by-size", 1, 1)), *by_hand(**exactly))
    (pod_fit,) = result.pods
    assert (pod_fit.wanted, pod_fit.fitting, pod_fit.unknown, pod_fit.left) == (1, 0, 1, 0)
    assert pod_fit.reason == f"not looked at in claim mine: {words}"
    assert not result


def test_refuses_a_claim_that_no_condition_could_make_fit() -> None:
    known = cluster(shared=("by-size", 1, 1))
    large = by_hand(capacity=sizes(memory="41Gi"), **_CONDITIONS)
    (pod_fit,) = fitted(known, *large).pods
    assert (pod_fit.unknown, pod_fit.left) == (0, 1)
    # One that may have another's device, or another alternative, is not known either way.
    admin = by_hand(capacity=sizes(memory="41Gi"), adminAccess=True)
    assert fitted(known, *admin).pods[0].unknown == 1


def test_reports_a_claim_shared_by_pods_as_unknown() -> None:
    known = cluster(shared=("by-size", 1, 1))
    template, by_claim = by_hand(capacity=sizes(memory="30Gi", cores="1"))
    claim = {
        "kind": "ResourceClaim",
        "metadata": {"name": "mine", "namespace": "team"},
        "spec": template["spec"]["spec"],
    }
    web = deployment(2, {})
    named = [{"name": "gpu", "resourceClaimName": "mine"}]
    web["spec"]["template"]["spec"]["resourceClaims"] = named
    (pod_fit,) = fitted(known, claim, web).pods
    assert (pod_fit.wanted, pod_fit.unknown) == (2, 2)
    assert pod_fit.reason == "not looked at in claim mine: which pods share it"
    web["spec"]["replicas"] = 1
    assert fitted(known, claim, web)
    other = {**by_claim, "metadata": {**by_claim["metadata"], "namespace": "team"}}
    other["spec"] = {**other["spec"], "resourceClaims": named}
    assert [pod_fit.unknown for pod_fit in fitted(known, claim, web, other).pods] == [1, 1]


def test_holds_back_a_pod_with_closed_scheduling_gates() -> None:
    gated = pod(limits={"nvidia.com/gpu": 1}, schedulingGates=[{"name": "quota"}])
    gates = "its scheduling gates are closed: quota"
    assert reason(cluster(training=("whole", 4, 1)), gated) == gates


def test_fits_a_daemon_set_on_every_node_open_to_it() -> None:
    known = cluster(research=("mix", 1, 1), training=("whole", 2, 3))
    daemon = {
        "kind": "DaemonSet",
        "metadata": {"name": "probe"},
        "spec": {"template": pod(limits={"nvidia.com/gpu": 1}, nodeSelector={"pool": "training"})},
    }
    (pod_fit,) = fitted(known, daemon).pods
    assert (pod_fit.wanted, pod_fit.fitting) == (3, 3)
    web = deployment(6, {"nvidia.com/gpu": 1})
    result = fitted(known, web, daemon)
    assert (result.pods[1].left, result.pods[1].obstacles[0].count) == (3, 3)


def live_node(name: str, *, gpus: int, **spec: Any) -> dict[str, Any]:
    allocatable = {"nvidia.com/gpu": str(gpus), "cpu": "4", "memory": "16Gi", "pods": "5"}
    metadata = {"name": name, "labels": {"pool": "training"}}
    return {"metadata": metadata, "spec": spec, "status": {"allocatable": allocatable}}


def beside(known: Cluster, nodes: list[Any], held: list[Any], asking: Any) -> Fit:
    live = nodes_of_cluster(known, plan(known, "test"), nodes, held, ())
    return fitted(known, asking, nodes=live)


def test_counts_held_gpus_and_unschedulable_nodes_as_taken() -> None:
    known = cluster(training=("whole", 2, 2))
    nodes = [live_node("a", gpus=2), live_node("b", gpus=2, unschedulable=True)]
    held = pod("old", limits={"nvidia.com/gpu": 1}, nodeName="a", priority=0)
    held["metadata"]["namespace"] = "team"
    ended = {**held, "status": {"phase": "Succeeded"}}
    asking = pod(limits={"nvidia.com/gpu": 2})
    assert beside(known, nodes, [ended], asking)
    result = beside(known, nodes, [held], asking)
    assert result.pods[0].reason == (
        "node a (training) offers 2 nvidia.com/gpu, 1 is free, it needs 2; held by team/old"
    )
    words = "is cordoned"
    assert words in {obstacle.reason for obstacle in result.pods[0].obstacles}
    asking["spec"]["priority"] = 5
    assert "may end pods of a lower priority" in beside(known, nodes, [held], asking).pods[0].reason


def test_predicts_no_preemption_for_a_claim() -> None:
    """The scheduler preempts for the device plugin's resources, and for none of a claim."""
    known = cluster(training=("by-size", 1, 1))
    held = pod("old", nodeName="a", priority=0)
    held["metadata"]["namespace"] = "team"
    nodes = nodes_of_cluster(known, plan(known, "test"), [live_node("a", gpus=0)], [held], ())
    gpus = nodes_of_plan(known, plan(known, "test"))[0].gpus
    holder = Holder("team", "old", ("old",), 40000, 100)
    busy = [
        replace(gpu, devices=tuple(replace(device, holders=(holder,)) for device in gpu.devices))
        for gpu in gpus
    ]
    template, asking = by_hand(capacity=sizes(memory="20Gi"))
    asking["spec"]["priority"] = 5
    result = fitted(known, template, asking, nodes=[replace(nodes[0], gpus=tuple(busy))])
    assert "has no room left for 1 share" in result.pods[0].reason
    assert "may end pods" not in result.pods[0].reason


def test_counts_cpu_memory_and_pods_on_live_nodes() -> None:
    known = cluster(training=("whole", 2, 2))
    many = {"cpu": "3500m", "memory": "20Gi"}
    assert fitted(known, pod(requests=many))
    nodes = [live_node("a", gpus=2)]
    result = beside(known, nodes, [], pod(requests=many))
    assert result.pods[0].reason == (
        "node a (training) offers 16,384 MiB memory, it needs 20,480 MiB"
    )
    full = [pod(f"p{number}", nodeName="a") | {"status": {}} for number in range(5)]
    for bound_pod in full:
        bound_pod["metadata"]["namespace"] = "team"
    assert "5 pods, 0 are free" in beside(known, nodes, full, pod()).pods[0].reason


@pytest.mark.parametrize(
    "limits",
    [
        {"nvidia.com/gpumem": 3000},
        {SHARED: 1},
        {"deviceclass.resource.kubernetes.io/divvy-share": 1},
    ],
)
def test_refuses_shares_that_need_a_quota_without_the_label(
    limits: dict[str, Any],
) -> None:
    value = {
        "profiles": {"by-size": {"claims": {"shares": {"default": "1Gi"}}}},
        "pools": {
            "a": {
                "profile": "by-size",
                "hardware": {"model": "A100-SXM4-40GB", "gpus": 1, "count": 1},
            }
        },
        "quota": {"shares": "required"},
    }
    known = parse_cluster(value)
    asking = pod(limits=limits)
    asking["metadata"]["namespace"] = "team"
    namespace = {"kind": "Namespace", "metadata": {"name": "team", "labels": {}}}
    refusal = reason(known, namespace, asking)
    assert refusal.startswith(
        "it would be refused: shares need a quota, and the namespace team has"
    )
    whole = pod(limits={"nvidia.com/gpu": 1})
    assert reason(known, namespace, whole | {"metadata": asking["metadata"]}) == ""
    # A namespace that is not described may have its label.
    (unknown,) = fitted(known, asking).pods
    assert unknown.reason == ""
    assert "shares are refused unless its namespace has the label" in unknown.pod.notes[0]
    namespace["metadata"]["labels"] = {"divvy.gpu/share-quota": "true"}
    (labelled,) = fitted(known, namespace, asking).pods
    assert (labelled.reason, labelled.pod.notes) == ("", ())


def quota(name: str, hard: int, used: int = 0) -> dict[str, Any]:
    """Return a quota of the namespace ``default``."""
    status = {"hard": {name: str(hard)}, "used": {name: str(used)}}
    return {"metadata": {"namespace": "default", "name": "gpus"}, "spec": {}, "status": status}


DEVICES = "deviceclass.resource.k8s.io/devices"
IMPLICIT = "deviceclass.resource.kubernetes.io"
COUNT = "count/resourceclaims.resource.k8s.io"


@pytest.mark.parametrize(
    ("limits", "names"),
    [
        ({"nvidia.com/gpu": 1}, [f"divvy-gpu.{DEVICES}", f"requests.{IMPLICIT}/divvy-gpu", COUNT]),
        ({f"{IMPLICIT}/divvy-gpu": 1}, [f"divvy-gpu.{DEVICES}", "requests.nvidia.com/gpu", COUNT]),
        (
            {"nvidia.com/gpumem": 1000},
            [f"divvy-share.{DEVICES}", f"requests.{IMPLICIT}/divvy-share", f"requests.{SHARED}"],
        ),
        ({}, [f"divvy-gpu.{DEVICES}", "requests.nvidia.com/gpu", COUNT]),
    ],
    ids=["by name", "by class", "by size", "by template"],
)
def test_refuses_a_claim_that_a_quota_refuses(limits: dict[str, int], names: list[str]) -> None:
    known = cluster(training=("by-size", 2, 1))
    template, claiming = by_hand()
    template["spec"]["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] = "divvy-gpu"
    asking = pod(limits=limits) if limits else claiming
    for name in names:
        assert fitted(known, template, asking, quotas=[quota(name, 1)])
        (refused,) = fitted(known, template, asking, quotas=[quota(name, 1, 1)]).pods
        assert refused.reason == (
            "pool training cannot serve it: "
            f"the ResourceQuota gpus has no {name} left for its claim"
        )
    # The pod itself counts for what it requests, and was admitted with it.
    for resource in limits:
        assert fitted(known, asking, quotas=[quota(f"requests.{resource}", 1, 1)])


def test_fits_no_more_pods_than_a_quota_has_claims_for() -> None:
    known = cluster(training=("by-size", 2, 1))
    web = deployment(3, {"nvidia.com/gpumem": 1000})
    web["metadata"]["namespace"] = "default"
    (pods,) = fitted(known, web, quotas=[quota(COUNT, 2)]).pods
    assert (pods.fitting, pods.left) == (2, 1)
    daemon = {**web, "kind": "DaemonSet"}
    assert not fitted(known, daemon, quotas=[quota(COUNT, 1, 1)])


def test_charges_no_quota_of_claims_for_what_the_device_plugin_serves() -> None:
    known = cluster(training=("whole", 1, 1))
    none = [quota(f"divvy-gpu.{DEVICES}", 0)]
    assert fitted(known, pod(limits={"nvidia.com/gpu": 1}), quotas=none)


@pytest.mark.parametrize("created", [False, True])
def test_counts_a_claim_that_has_been_made_once(*, created: bool) -> None:
    known = cluster(training=("by-size", 1, 1))
    template, asking = by_hand()
    statuses = [{"name": entry["name"]} for entry in asking["spec"]["resourceClaims"]]
    asking["status"] = {"resourceClaimStatuses": statuses if created else []}
    name = asking["spec"]["resourceClaims"][0]["resourceClaimTemplateName"]
    around = Around({}, {}, 0, {}, {("default", name): template["spec"]["spec"]})
    pods = [asking_pod(asking, known, around)]
    nodes = nodes_of_plan(known, plan(known, "test"))
    assert bool(fit(known, "test", nodes, pods, [quota(COUNT, 1, 1)])) == created


def test_speaks_of_nodes_alike_in_the_plural() -> None:
    known = cluster(training=("whole", 2, 2))
    nodes = [live_node("a", gpus=2), live_node("b", gpus=2)]
    asking = pod(limits={"nvidia.com/gpu": 4})
    (both,) = beside(known, nodes, [], asking).pods
    assert both.reason == ("node a (training) and 1 more each offer 2 nvidia.com/gpu, it needs 4")
    assert [obstacle.words for obstacle in both.obstacles] == [both.reason]
    (alone,) = beside(known, nodes[:1], [], asking).pods
    assert alone.reason == "node a (training) offers 2 nvidia.com/gpu, it needs 4"
