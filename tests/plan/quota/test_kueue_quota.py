"""What Kueue counts of a plan's pools: its charge is what a claim takes, or a note says otherwise.

The charge is Kueue's own rule (``kueue_charge``), what a claim takes is the model's allocation.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from typing import Any

import yaml

from divvy.model import Cluster, gpu_model, parse_cluster
from divvy.model.claim_names import MEMORY, UUID
from divvy.plan import plan
from divvy.plan.fit.claim_allocation import NodeDevices
from divvy.plan.fit.claim_requests import requests_of
from divvy.plan.fit.live_claims import claimed_gpus
from divvy.plan.predict.node_templates import node_templates
from divvy.plan.quota.kueue_quota import KueueQuota, kueue_quota
from divvy.render.exports.kueue import kueue_objects
from tests.plan.quota.kueue_charge import charge
from tests.plan.stacks import planned, pool

WORKLOADS = 10_000
MODELS = ("A100-SXM4-40GB", "A100-SXM4-80GB", "H100-80GB-HBM3", "A30", "L40S", "T4")
SHARES, MIG, GPUS = "divvy.gpu/share-memory", "divvy.gpu/mig-memory", "nvidia.com/gpu"


def quota_of(cluster: Cluster) -> KueueQuota:
    return kueue_quota(plan(cluster, "test"), cluster.names)


def slices_of(cluster: Cluster) -> list[dict[str, Any]]:
    """Return the slices of a node of each pool, with UUIDs as they stand for them."""
    listed = []
    for template in node_templates(plan(cluster, "test")):
        for spec in template.slices.values():
            devices = [
                {
                    **device,
                    "attributes": {
                        **device["attributes"],
                        UUID: {"string": f"gpu-{device['attributes']['index']['int']}"},
                    },
                }
                for device in spec.get("devices", ())
            ]
            listed.append(
                {
                    "spec": {
                        **spec,
                        **({"devices": devices} if devices else {}),
                        "pool": {**spec["pool"], "generation": 1},
                    }
                }
            )
    return listed


def random_cluster(draw: random.Random) -> Cluster:
    """Return a cluster of up to three pools, whose shares may differ in steps and defaults."""
    pools = {}
    profiles = {}
    for name in ("a", "b", "c")[: draw.choice([1, 1, 2, 3])]:
        model = draw.choice(MODELS)
        geometry = gpu_model(model).mig
        claims: dict[str, Any] = {}
        if draw.random() < 0.8:
            claims["shares"] = {
                "memory": {"step": draw.choice(["1Mi", "1Mi", "500Mi", "1000Mi"])},
                "default": draw.choice(["all", "all", "4000Mi"]),
            }
            if draw.random() < 0.2:
                claims["shares"]["memory"]["oversubscribe"] = 2
            if draw.random() < 0.2:
                claims["tenants"] = ["dev", "prod"]
        if geometry is not None and draw.random() < 0.6:
            names = [profile.name for profile in geometry.profiles]
            claims["mig"] = draw.sample(names, draw.randint(1, len(names)))
        profiles[name] = {"claims": claims}
        pools[name] = {"select": {"pool": name}, **pool(name, model=model, gpus=draw.randint(1, 4))}
    return parse_cluster({"profiles": profiles, "pools": pools})


def random_request(draw: random.Random, classes: list[str]) -> dict[str, Any]:
    exactly: dict[str, Any] = {"deviceClassName": draw.choice(classes)}
    if draw.random() < 0.2:
        exactly["count"] = 2
    if exactly["deviceClassName"].startswith("divvy-share"):
        sizes = {"cores": str(draw.randint(1, 50))}
        if draw.random() < 0.9:
            sizes[MEMORY] = draw.choice(
                [
                    f"{draw.randint(1, 15_000)}Mi",
                    f"{draw.randint(1, 14)}Gi",
                    str(draw.randint(1, 15 << 30)),
                    f"{draw.randint(1, 15_000)}M",
                    f"{draw.randint(1, 99)}.5Gi",
                ]
            )
        exactly["capacity"] = {"requests": sizes}
    return exactly


def used(cluster: Cluster, node: NodeDevices, spec: Mapping[str, Any]) -> Counter[str] | None:
    """Return what the model allocates to a claim, by resource; None if it has no room."""
    pod = {"spec": {"resourceClaims": [{"name": "gpu"}]}}
    claim = {"metadata": {"name": "gpu"}, "spec": spec}
    requests = requests_of(pod, [claim], cluster.names)
    taken: Counter[str] = Counter()
    for request in requests:
        allocations = node.claim([request])
        if allocations is None:
            return None
        for allocation in allocations:
            if request.kind == "gpu":
                taken[GPUS] += 1
            elif request.kind == "share":
                taken[SHARES] += allocation.memory_mib << 20
            else:
                taken[MIG] += allocation.device.memory_mib << 20
    return taken


def merged(charged: Counter[str]) -> Counter[str]:
    """Add up the names that more than eight classes of a kind have."""
    total: Counter[str] = Counter()
    for resource, amount in charged.items():
        name = next((known for known in (SHARES, MIG) if resource.startswith(known)), resource)
        total[name] += amount
    return total


def test_charges_ten_thousand_random_workloads_what_they_take() -> None:
    draw = random.Random(37)
    equal = noted = 0
    kinds: Counter[str] = Counter()
    while equal < WORKLOADS:
        cluster = random_cluster(draw)
        quota = quota_of(cluster)
        configuration = next(yaml.safe_load_all(kueue_objects(quota)))
        classes = [name for mapping in quota.mappings for name in mapping.classes]
        slices = slices_of(cluster)
        gpus = claimed_gpus(slices, ())
        for _ in range(40):
            node = draw.choice(sorted({gpu.node for gpu in gpus}))
            listed = [random_request(draw, classes) for _ in range(draw.choice([1, 1, 1, 2]))]
            spec = {"devices": {"requests": [{"name": "r", "exactly": e} for e in listed]}}
            devices = NodeDevices([gpu for gpu in gpus if gpu.node == node])
            taken = used(cluster, devices, spec)
            if taken is None:
                continue
            charged = merged(charge(configuration, slices, spec))
            if any(_is_noted(quota, exactly) for exactly in listed):
                noted += 1
                assert all(charged[name] >= taken[name] for name in taken)
            else:
                equal += 1
                assert charged == taken, (listed, quota)
                kinds.update(taken.keys())
    assert min(kinds[name] for name in (SHARES, MIG, GPUS)) > WORKLOADS // 10
    assert noted > WORKLOADS // 100


def _is_noted(quota: KueueQuota, exactly: Mapping[str, Any]) -> bool:
    name = exactly["deviceClassName"]
    without = MEMORY not in exactly.get("capacity", {}).get("requests", {})
    starts = [f"A claim of {name} is charged "]
    if name.startswith("divvy-share") and without:
        starts.append(f"A claim of {name} without memory ")
    return any(note.startswith(tuple(starts)) for note in quota.notes)


def test_charges_cores_if_the_source_names_them() -> None:
    profiles = {"sized": {"claims": {"shares": {}}}}
    pools = {"a": {"select": {"pool": "a"}, **pool("sized")}}
    cluster = parse_cluster({"profiles": profiles, "pools": pools})
    text = kueue_objects(quota_of(cluster)).replace("name: memory", "name: cores")
    configuration = next(yaml.safe_load_all(text))
    (node,) = {gpu.node for gpu in claimed_gpus(slices_of(cluster), ())}
    for sizes, count in (({"cores": "30", MEMORY: "1Gi"}, 2), ({MEMORY: "1Gi"}, 1)):
        exactly = {
            "deviceClassName": "divvy-share",
            "count": count,
            "capacity": {"requests": sizes},
        }
        spec = {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}
        (request,) = requests_of(
            {"spec": {}}, [{"metadata": {"name": "c"}, "spec": spec}], cluster.names
        )
        gpus = claimed_gpus(slices_of(cluster), ())
        allocations = NodeDevices([gpu for gpu in gpus if gpu.node == node]).claim([request])
        assert allocations is not None
        charged = charge(configuration, slices_of(cluster), spec)
        assert charged == {SHARES: sum(allocation.cores for allocation in allocations)}


def test_offers_every_pool_with_what_its_nodes_have() -> None:
    profiles = {
        "sized": {"claims": {"shares": {"memory": {"oversubscribe": 2}}}},
        "demand": {"claims": {"shares": {}, "mig": ["1g.5gb"], "tenants": ["dev", "prod"]}},
        "sliced": {"timeSlicing": {"replicas": 4}},
    }
    cluster = parse_cluster(
        {
            "profiles": profiles,
            "pools": {
                "sizes": {"select": {"pool": "s"}, **pool("sized", count=3, model="T4", gpus=2)},
                "mixed": {"select": {"pool": "m"}, **pool("demand", count=2, gpus=1)},
                "plain": {"select": {"pool": "p"}, **pool("sliced", count=5)},
                "unknown": {"profile": "sized"},
            },
        }
    )
    quota = quota_of(cluster)
    assert [(m.resource, m.classes, m.source) for m in quota.mappings] == [
        (GPUS, ("divvy-gpu",), "count"),
        (SHARES, ("divvy-share", "divvy-share-dev", "divvy-share-prod"), "capacity"),
        (MIG, ("divvy-mig", "divvy-mig-1g.5gb"), "counter"),
    ]
    offered = {flavor.pool: dict(flavor.quota) for flavor in quota.flavors}
    shared = "nvidia.com/gpu.shared"
    assert offered == {
        "sizes": {SHARES: 3 * 2 * 2 * 15360, MIG: 0, GPUS: 6, shared: 0},
        "mixed": {SHARES: 2 * 40960, MIG: 2 * 40960, GPUS: 2, shared: 0},
        "plain": {SHARES: 0, MIG: 0, GPUS: 0, shared: 80},
    }
    assert [flavor.labels for flavor in quota.flavors][:1] == [{"pool": "s"}]
    assert quota.unknown == ("unknown",)


def test_counts_a_node_with_a_profile_of_its_own() -> None:
    cluster = parse_cluster(
        {
            "profiles": {"whole": {}, "sized": {"claims": {"shares": {}}}},
            "pools": {
                "a": {
                    "select": {"pool": "a"},
                    **pool("whole", count=3, gpus=2, overrides={"n": "sized"}),
                }
            },
        }
    )
    (flavor,) = quota_of(cluster).flavors
    assert dict(flavor.quota) == {SHARES: 2 * 40960, GPUS: 6}


def test_divides_more_classes_than_kueue_takes_under_one_name() -> None:
    tenants = [f"t{number}" for number in range(8)]
    profiles = {
        "tenants": {"claims": {"shares": {}, "tenants": tenants}},
        "all": {"claims": {"shares": {}}},
    }
    mappings = kueue_quota(
        planned(profiles, a=pool("tenants"), b=pool("all")), parse_cluster(_EMPTY).names
    ).mappings
    assert [(m.resource, len(m.classes)) for m in mappings] == [
        (GPUS, 1),
        (SHARES, 8),
        (f"{SHARES}-2", 1),
    ]


_EMPTY = {"profiles": {"p": {}}, "pools": {"p": {"profile": "p"}}}


def test_notes_what_is_charged_more_than_it_takes() -> None:
    claims = {
        "fine": {"claims": {"shares": {"memory": {"step": "1Mi"}}, "mig": ["1g.10gb"]}},
        "coarse": {"claims": {"shares": {"memory": {"step": "256Mi"}}, "mig": ["1g.10gb"]}},
    }
    small = pool("fine", model="A100-SXM4-80GB")
    large = pool("coarse", model="H100-80GB-HBM3")
    notes = quota_of(
        parse_cluster(
            {
                "profiles": claims,
                "pools": {
                    "small": {"select": {"pool": "s"}, **small},
                    "large": {"select": {"pool": "l"}, **large},
                },
            }
        )
    ).notes
    text = "\n".join(notes)
    assert "steps of 256 MiB (large), 1 MiB (small)" in text
    assert "A claim of divvy-share without memory is charged the largest default" in text
    assert "A claim of divvy-mig-1g.10gb is charged the largest of" in text


def test_notes_resources_that_kueue_refuses() -> None:
    profiles = {
        "cut": {"mig": {"1g.5gb": 7}},
        "demand": {"claims": {"mig": ["1g.5gb"]}},
    }
    notes = kueue_quota(
        planned(profiles, a=pool("cut"), b=pool("demand")), parse_cluster(_EMPTY).names
    ).notes
    assert notes == (
        "Kueue refuses pods that request nvidia.com/mig-1g.5gb, also of a: it is the resource of "
        "divvy-mig-1g.5gb, which is counted by memory.",
    )
