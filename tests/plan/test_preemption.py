"""Who has to go for a pod that waits for a claim: no pod too many, and none in vain."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Mapping
from itertools import chain, combinations
from typing import Any
from unittest.mock import Mock

import pytest

from divvy.model import Cluster, gpu_model, parse_cluster
from divvy.model.claim_devices import claimable_gpu
from divvy.model.contract import CLAIMS_DRIVER, claims_pool
from divvy.model.offered_gpu import OfferedGpu
from divvy.model.slice_specs import slice_specs
from divvy.plan import plan, preemption
from divvy.plan.claim_requests import Request
from divvy.plan.fit import asking_pod, nodes_of_cluster
from divvy.plan.fit import fit as put
from divvy.plan.fit.claiming import Allocation, NodeDevices
from divvy.plan.fit.pods import Around
from divvy.plan.fit.room import room_of
from divvy.plan.live_claims import claimed_gpus, without_claims
from divvy.plan.preemption import Decision, Observed, decide
from tests.thoroughness import at_length

MODEL = "A100-SXM4-40GB"
CLAIMS = {"shares": {}, "mig": ["1g.5gb", "2g.10gb", "3g.20gb"]}
CLASSES = {"gpu": "divvy-gpu", "share": "divvy-share", "mig": "divvy-mig"}
WAITING = "urgent"


def cluster() -> Cluster:
    hardware = {"model": MODEL, "gpus": 2, "count": 2}
    pool = {"profile": "on-demand", "select": {"gpus": "yes"}, "hardware": hardware}
    return parse_cluster({"profiles": {"on-demand": {"claims": CLAIMS}}, "pools": {"p": pool}})


class State:
    """A small cluster as its API lists it."""

    def __init__(self, gpus: int = 1, nodes: int = 1) -> None:
        self.cluster = cluster()
        self.names = [f"node-{number}" for number in range(nodes)]
        self.nodes = [_node(name) for name in self.names]
        self.slices = [
            resource_slice
            for name in self.names
            for resource_slice in _slices(name, gpus, self.cluster)
        ]
        self.pods: list[dict[str, Any]] = []
        self.claims: list[dict[str, Any]] = []
        self.budgets: list[dict[str, Any]] = []
        self.quotas: list[dict[str, Any]] = []
        self.taint_rules: list[dict[str, Any]] = []

    def run(self, name: str, request: Request, priority: int = 0, **more: Any) -> bool:
        """Run a pod with a claim on the first node with room; return whether there is any."""
        gpus = claimed_gpus(self.slices, self.claims)
        for node in self.names:
            devices = NodeDevices([gpu for gpu in gpus if gpu.node == node]).claim([request])
            if devices is not None:
                pod = _pod(name, priority, created=len(self.pods), **more)
                pod["spec"]["nodeName"] = node
                pod["status"] = {"phase": "Running"}
                self.pods.append(pod)
                self.claims.append(_allocated(claim_of(name, request), node, devices, pod))
                return True
        return False

    def wait(self, request: Request, priority: int = 100, **spec: Any) -> None:
        """Let a pod wait that the scheduler has found no node for."""
        pod = waiting_pod(WAITING, priority)
        pod["spec"] |= spec
        self.pods.append(pod)
        self.claims.append(claim_of(WAITING, request))

    def end(self, name: str) -> None:
        """Let a pod end that still holds what it has."""
        self.pod(name)["metadata"]["deletionTimestamp"] = "2026-11-24T12:00:00Z"

    def pod(self, name: str) -> dict[str, Any]:
        return next(pod for pod in self.pods if pod["metadata"]["name"] == name)

    def observed(self) -> Observed:
        return Observed(
            *(self.nodes, self.pods, self.claims, self.slices),
            *(self.budgets, self.quotas, self.taint_rules),
        )

    def decision(self) -> Decision:
        listed = self.observed()
        (decision,) = (
            decision for decision in decide(self.cluster, listed) if decision.pod.name == WAITING
        )
        return decision

    def takes(self, gone: Collection[str], node: str | None = None) -> bool:
        """Return whether `divvy fit` places the waiting pod once some pods have gone."""
        waiting = self.pod(WAITING)
        pods = [pod for pod in self.pods if pod["metadata"]["name"] not in gone]
        claims = [claim for claim in self.claims if claim["metadata"]["name"] not in gone]
        gpus = claimed_gpus(self.slices, claims)
        listed = [
            node_object
            for node_object in self.nodes
            if node in (None, node_object["metadata"]["name"])
        ]
        live = nodes_of_cluster(self.cluster, plan(self.cluster, "x"), listed, pods, gpus)
        templates = {
            ("default", f"{WAITING}-template"): next(
                claim["spec"] for claim in self.claims if claim["metadata"]["name"] == WAITING
            )
        }
        asking = asking_pod(waiting, self.cluster, Around({}, {}, 0, {}, templates))
        return bool(put(self.cluster, "x", live, [asking]))

    def lower_on(self, node: str, priority: int = 100) -> list[dict[str, Any]]:
        return [
            pod
            for pod in self.pods
            if pod["spec"].get("nodeName") == node
            and pod["spec"]["priority"] < priority
            and self.within([pod])
        ]

    def within(self, pods: Collection[Mapping[str, Any]]) -> bool:
        """Return whether the budgets let these pods go."""
        return all(
            sum(
                pod["metadata"]["labels"] == budget["spec"]["selector"]["matchLabels"]
                for pod in pods
            )
            <= budget["status"]["disruptionsAllowed"]
            for budget in self.budgets
        )


def _node(name: str) -> dict[str, Any]:
    sizes = {"cpu": "100", "memory": "500Gi", "pods": "110"}
    metadata = {"name": name, "labels": {"gpus": "yes", "kubernetes.io/hostname": name}}
    return {"metadata": metadata, "spec": {}, "status": {"allocatable": sizes}}


def _slices(node: str, gpus: int, cluster: Cluster) -> list[dict[str, Any]]:
    model, (claims,) = gpu_model(MODEL), cluster.claims
    offered = [
        OfferedGpu(
            claimable_gpu(f"GPU-{node}-{index}", model.memory_mib, model, claims),
            index,
            model.product,
            model.architecture,
            simulated=True,
        )
        for index in range(gpus)
    ]
    specs = slice_specs(node, offered, {}, {}, {}, {}).values()
    return [{"spec": {**spec, "pool": {**spec["pool"], "generation": 1}}} for spec in specs]


def _pod(name: str, priority: int, created: int = 0, app: str = "") -> dict[str, Any]:
    entry = {"name": "gpus", "resourceClaimTemplateName": f"{name}-template"}
    claim_status = {"name": "gpus", "resourceClaimName": name}
    return {
        "metadata": {
            "namespace": "default",
            "name": name,
            "uid": f"uid-{name}",
            "labels": {"app": app},
            "creationTimestamp": f"2026-11-24T10:00:{created:02}Z",
        },
        "spec": {"priority": priority, "containers": [], "resourceClaims": [entry]},
        "status": {"resourceClaimStatuses": [claim_status]},
    }


def waiting_pod(name: str, priority: int) -> dict[str, Any]:
    """Return a pod with a claim that the scheduler has found no node for."""
    pod = _pod(name, priority)
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    pod["status"] |= {"phase": "Pending", "conditions": [condition]}
    return pod


def claim_of(name: str, request: Request) -> dict[str, Any]:
    """Return the claim that a pod has for itself."""
    device_class = CLASSES[request.kind] + (f"-{request.profile}" if request.profile else "")
    sizes = {}
    if request.memory_mib is not None:
        sizes = {"memory": f"{request.memory_mib}Mi", "cores": str(request.cores)}
    capacity = {"capacity": {"requests": sizes}} if sizes else {}
    exactly = {"deviceClassName": device_class, "count": request.count, **capacity}
    owner = {"kind": "Pod", "name": name, "uid": f"uid-{name}"}
    return {
        "metadata": {"namespace": "default", "name": name, "ownerReferences": [owner]},
        "spec": {"devices": {"requests": [{"name": "gpus", "exactly": exactly}]}},
    }


def _allocated(
    claim: dict[str, Any], node: str, devices: Collection[Allocation], pod: Mapping[str, Any]
) -> dict[str, Any]:
    results = []
    for allocated in devices:
        result = {
            "driver": CLAIMS_DRIVER,
            "pool": claims_pool(node),
            "device": allocated.device.name,
        }
        if allocated.device.kind == "share":
            sizes = {"memory": f"{allocated.memory_mib}Mi", "cores": str(allocated.cores)}
            result |= {"consumedCapacity": sizes}  # type: ignore[dict-item]
        results.append(result)
    meta = pod["metadata"]
    reserved = [{"resource": "pods", "name": meta["name"], "uid": meta["uid"]}]
    status = {"allocation": {"devices": {"results": results}}, "reservedFor": reserved}
    return {**claim, "status": status}


def _random_request(draw: random.Random) -> Request:
    kind = draw.choice(["gpu", "share", "share", "share", "mig", "mig"])
    if kind == "gpu":
        return Request(1, "gpu")
    if kind == "mig":
        return Request(1, "mig", profile=draw.choice(["1g.5gb", "2g.10gb", "3g.20gb", None]))
    memory = draw.choice([4000, 10000, 15000, 20000, 30000, 40960])
    return Request(1, "share", memory_mib=memory, cores=draw.choice([1, 20, 50, 100]))


def _random_state(seed: int) -> State:
    draw = random.Random(seed)
    state = State(gpus=draw.choice([1, 2]), nodes=draw.choice([1, 2]))
    for number in range(draw.randint(2, 9)):
        priority = draw.choice([0, 0, 0, 10, 50, 100, 200])
        state.run(f"pod-{number}", _random_request(draw), priority, app=draw.choice("ab"))
    if draw.random() < 0.3:
        state.budgets.append(_budget(draw.choice("ab"), draw.choice([0, 1, 2])))
    state.wait(_random_request(draw))
    return state


def _budget(app: str, allowed: int) -> dict[str, Any]:
    return {
        "metadata": {"namespace": "default", "name": app, "generation": 1},
        "spec": {"selector": {"matchLabels": {"app": app}}},
        "status": {"observedGeneration": 1, "disruptionsAllowed": allowed},
    }


def _cost(pods: Collection[Mapping[str, Any]]) -> tuple[int, int, int]:
    priorities = [pod["spec"]["priority"] for pod in pods]
    return max(priorities), len(pods), sum(priorities)


def _sets(pods: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], ...]]:
    return chain.from_iterable(combinations(pods, number) for number in range(1, len(pods) + 1))


def _names(pods: Collection[Mapping[str, Any]]) -> set[str]:
    return {pod["metadata"]["name"] for pod in pods}


@pytest.mark.parametrize("seed", range(at_length(100, 1000)))
def test_preempts_neither_needlessly_nor_in_vain(seed: int) -> None:
    state = _random_state(seed)
    decision = state.decision()
    if state.takes(()):
        assert not decision.victims
        return
    enough = [
        chosen
        for node in state.names
        for chosen in _sets(state.lower_on(node))
        if state.within(chosen) and state.takes(_names(chosen), node)
    ]
    if not enough:
        assert (decision.victims, decision.node) == ((), "")
        assert decision.reason
        return
    victims = {victim.name for victim in decision.victims}
    pods = [state.pod(name) for name in sorted(victims)]
    assert {pod["spec"]["nodeName"] for pod in pods} == {decision.node}
    assert state.within(pods)
    assert state.takes(victims, decision.node)
    for victim in victims:
        assert not state.takes(victims - {victim}, decision.node)
    assert _cost(pods) == min(map(_cost, enough))


WHOLE = Request(1, "gpu")


def test_spares_a_pod_of_the_same_priority() -> None:
    state = State()
    state.run("held", WHOLE, 100)
    state.wait(WHOLE, 100)
    assert state.decision().reason.startswith("no node takes it")


def test_preempts_no_pod_for_a_device_that_an_administrator_has_tainted() -> None:
    """Kubernetes 1.37 serves DeviceTaintRules: the pod would wait on."""
    state = State()
    state.run("low", WHOLE)
    state.wait(WHOLE)
    assert [victim.name for victim in state.decision().victims] == ["low"]
    taint = {"key": "example.com/repair", "effect": "NoSchedule"}
    state.taint_rules = [{"spec": {"deviceSelector": {"driver": CLAIMS_DRIVER}, "taint": taint}}]
    assert state.decision().victims == ()


def test_preempts_no_pod_while_terminating_pods_free_enough() -> None:
    """A victim may take its graceful period, and another pod may end by itself."""
    state = State(gpus=2)
    for name in ("one", "other"):
        state.run(name, WHOLE)
    state.wait(WHOLE)
    assert len(state.decision().victims) == 1
    state.end("one")
    decision = state.decision()
    assert (decision.victims, decision.reason) == ((), "it fits without victims")


def test_preempts_no_pod_while_the_claim_of_a_deleted_pod_is_released() -> None:
    """A claim outlives its pod for a moment, while it is taken back."""
    state = State(gpus=2)
    for name in ("one", "other"):
        state.run(name, WHOLE)
    state.wait(WHOLE)
    state.pods.remove(state.pod("one"))
    decision = state.decision()
    assert (decision.victims, decision.reason) == ((), "it fits without victims")


def test_promises_the_same_gpu_to_one_waiting_pod_only() -> None:
    state = State(gpus=2)
    state.run("one", WHOLE)
    state.run("other", WHOLE)
    state.wait(WHOLE)
    state.pods.append(waiting_pod("second", 50))
    state.claims.append(claim_of("second", WHOLE))
    state.end("one")
    first, later = decide(
        state.cluster, Observed(state.nodes, state.pods, state.claims, state.slices)
    )
    assert (first.pod.name, first.victims) == (WAITING, ())
    assert [victim.name for victim in later.victims] == ["other"]


@pytest.mark.parametrize(
    ("spec", "status", "reason"),
    [
        ({"preemptionPolicy": "Never"}, {}, "its preemptionPolicy is Never"),
        ({"schedulingGates": [{"name": "g"}]}, {}, "its scheduling gates are closed: g"),
        ({}, {"nominatedNodeName": "node-0"}, "the scheduler makes room for it on node-0"),
        ({}, {"resourceClaimStatuses": []}, "its claims have not been created yet"),
        ({"topologySpreadConstraints": [{}]}, {}, "not looked at: topologySpreadConstraints"),
    ],
)
def test_preempts_no_pod_for_a_pod_that_would_not_get_the_gpu(
    spec: dict[str, Any], status: dict[str, Any], reason: str
) -> None:
    state = State()
    state.run("held", WHOLE)
    state.wait(WHOLE, **spec)
    state.pod(WAITING)["status"] |= status
    decision = state.decision()
    assert (decision.victims, decision.reason) == ((), reason)


def test_preempts_no_pod_on_conditions_that_it_does_not_evaluate() -> None:
    state = State()
    state.run("held", WHOLE)
    state.wait(WHOLE)
    exactly = state.claims[-1]["spec"]["devices"]["requests"][0]["exactly"]
    exactly["selectors"] = [{"cel": {"expression": "false"}}]
    assert "conditions (CEL)" in state.decision().reason


def test_frees_a_shared_claim_when_all_its_pods_have_gone() -> None:
    state = State()
    state.run("one", WHOLE)
    state.pods.append({**_pod("two", 0), "spec": {**state.pod("one")["spec"]}})
    state.pods[-1]["status"] = {"phase": "Running"}
    claim = state.claims[0]
    claim["status"]["reservedFor"].append({"resource": "pods", "name": "two", "uid": "uid-two"})
    state.wait(WHOLE)
    assert [victim.name for victim in state.decision().victims] == ["one", "two"]


def test_preempts_no_pod_under_a_budget_not_yet_observed() -> None:
    state = State()
    state.run("held", WHOLE, app="a")
    state.budgets.append(_budget("a", 1))
    state.wait(WHOLE)
    assert state.decision().victims
    state.budgets[0]["metadata"]["generation"] = 2
    assert not state.decision().victims


def test_serves_others_beside_a_thousand_pods_that_fit_no_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A tenant's pods come in hundreds, and what has been read grows old meanwhile."""
    counted = Mock(side_effect=room_of)
    monkeypatch.setattr(preemption, "room_of", counted)
    state = State(gpus=8, nodes=4)
    for number in range(32):
        state.run(f"pod-{number}", WHOLE, app="a")
    state.budgets.append(_budget("a", 0))
    for number in range(1000):
        state.pods.append(waiting_pod(f"many-{number}", 200))
        state.claims.append(claim_of(f"many-{number}", Request(9, "gpu")))
    state.wait(WHOLE)
    assert state.decision().reason.startswith("no node takes it")
    assert counted.call_count < 100


def test_stops_deciding_on_stale_observations() -> None:
    state = State()
    state.run("held", WHOLE)
    state.wait(WHOLE)
    assert decide(state.cluster, state.observed(), 60.0)
    assert decide(state.cluster, state.observed(), 0.0) == ()


def test_names_each_victim_for_one_waiting_pod_only() -> None:
    state = State(gpus=2)
    for number in range(2):
        state.run(f"held-{number}", WHOLE)
        state.pods.append(waiting_pod(f"waits-{number}", 100 - number))
        state.claims.append(claim_of(f"waits-{number}", WHOLE))
    first, second = decide(state.cluster, state.observed())
    assert (len(first.victims), len(second.victims)) == (1, 1)
    assert first.victims != second.victims


def test_takes_the_first_victims_when_time_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each full node takes a while, and a fleet has thousands."""
    state = State(nodes=2)
    state.run("middle", WHOLE, 10)
    state.run("low", WHOLE, 0)
    state.wait(WHOLE)
    assert state.decision().node == "node-1"
    clock = Mock(side_effect=[0.0, 0.0, 2.0, 2.0])
    monkeypatch.setattr(preemption.time, "monotonic", clock)
    (decision,) = decide(state.cluster, state.observed(), 1.0)
    assert [victim.name for victim in decision.victims] == ["middle"]


def _ask_by_name(pod: dict[str, Any], resource: str) -> None:
    """Let a pod request an extended resource in place of its claim."""
    container = {"name": "main", "resources": {"limits": {resource: "1"}}}
    pod["spec"] = {"priority": pod["spec"]["priority"], "containers": [container]}
    pod["status"].pop("resourceClaimStatuses")


QUOTA = "divvy-gpu.deviceclass.resource.k8s.io/devices"


def _limit(state: State, hard: int, used: int) -> None:
    """Limit the GPUs that the namespace claims."""
    status = {"hard": {QUOTA: str(hard)}, "used": {QUOTA: str(used)}}
    meta = {"namespace": "default", "name": "gpus"}
    state.quotas = [{"metadata": meta, "spec": {}, "status": status}]


def _move(state: State, name: str) -> None:
    """Let a pod and its claim be in another namespace."""
    claims = [claim for claim in state.claims if claim["metadata"]["name"] == name]
    for part in (state.pod(name), *claims):
        part["metadata"]["namespace"] = "other"


def test_preempts_no_pod_for_a_claim_that_a_quota_refuses() -> None:
    """The scheduler creates it after the victims have gone, and the API server refuses it then."""
    state = State()
    state.run("held", WHOLE)
    state.pods.append(waiting_pod(WAITING, 100))
    _ask_by_name(state.pod(WAITING), "nvidia.com/gpu")
    _limit(state, hard=1, used=2)
    assert state.decision().reason == f"the ResourceQuota gpus has no {QUOTA} left for its claim"
    assert not state.decision().victims
    # What the victim has counts no more when it has gone.
    _limit(state, hard=1, used=1)
    assert state.decision().victims
    state.end("held")
    assert state.decision().reason == "it fits without victims"


def test_counts_no_claim_of_a_pod_that_stays_as_freed() -> None:
    state = State(gpus=2)
    state.run("low", WHOLE)
    state.run("high", WHOLE, 200)
    state.pods.append(waiting_pod(WAITING, 100))
    _ask_by_name(state.pod(WAITING), "nvidia.com/gpu")
    _limit(state, hard=1, used=2)
    assert not state.decision().victims
    _limit(state, hard=2, used=2)
    assert [victim.name for victim in state.decision().victims] == ["low"]


def test_counts_no_claim_of_another_namespace_as_freed() -> None:
    state = State()
    state.run("held", WHOLE)
    _move(state, "held")
    state.pods.append(waiting_pod(WAITING, 100))
    _ask_by_name(state.pod(WAITING), "nvidia.com/gpu")
    _limit(state, hard=1, used=1)
    assert not state.decision().victims
    _limit(state, hard=1, used=0)
    assert state.decision().victims


@pytest.mark.parametrize("nominated", [False, True])
def test_preempts_for_no_more_pods_than_a_quota_admits(*, nominated: bool) -> None:
    state = State(gpus=2)
    for number in range(2):
        state.run(f"held-{number}", WHOLE)
        _move(state, f"held-{number}")
        state.pods.append(waiting_pod(f"waits-{number}", 100 - number))
        _ask_by_name(state.pod(f"waits-{number}"), "nvidia.com/gpu")
    if nominated:
        state.pod("waits-0")["status"]["nominatedNodeName"] = "node-0"
    _limit(state, hard=1, used=0)
    decisions = decide(state.cluster, state.observed())
    assert [len(decision.victims) for decision in decisions] == [int(not nominated), 0]


def test_charges_no_quota_for_what_a_device_plugin_serves() -> None:
    state = State(nodes=2)
    state.run("held", WHOLE)
    state.slices = [item for item in state.slices if item["spec"]["nodeName"] == "node-0"]
    state.nodes[1]["status"]["allocatable"]["nvidia.com/gpu"] = "1"
    for number in range(2):
        state.pods.append(waiting_pod(f"waits-{number}", 100 - number))
        _ask_by_name(state.pod(f"waits-{number}"), "nvidia.com/gpu")
    _limit(state, hard=1, used=1)
    first, second = decide(state.cluster, state.observed())
    assert (first.node, first.reason) == ("node-1", "it fits without victims")
    assert (second.node, len(second.victims)) == ("node-0", 1)


def test_keeps_a_gpu_unchanged_when_none_of_its_claims_goes() -> None:
    """A node full of shares is looked at hundreds of times, and copies took nearly all of it."""
    state = State()
    while state.run(f"pod-{len(state.pods)}", Request(1, "share", memory_mib=2000, cores=1)):
        pass
    (gpu,) = claimed_gpus(state.slices, state.claims)
    assert without_claims(gpu, {("default", "another")}) is gpu
    changed = without_claims(gpu, {("default", "pod-0")})
    assert [device for device in changed.devices if device not in gpu.devices] == [
        device for device in changed.devices if device.kind == "share"
    ]


@pytest.mark.parametrize(("priority", "victims"), [(500, []), (100, []), (50, ["held"])])
def test_respects_what_the_scheduler_nominated_for_another_pod(
    priority: int, victims: list[str]
) -> None:
    state = State()
    state.nodes[0]["status"]["allocatable"]["cpu"] = "4"
    state.run("held", WHOLE)
    nominated = waiting_pod("nominated", priority)
    nominated["status"] |= {"nominatedNodeName": "node-0", "resourceClaimStatuses": []}
    nominated["spec"] |= {"containers": [_asking("4")], "resourceClaims": []}
    state.pods.append(nominated)
    state.wait(WHOLE, containers=[_asking("1")])
    assert [victim.name for victim in state.decision().victims] == victims


def _asking(cpu: str) -> dict[str, Any]:
    return {"name": "main", "resources": {"requests": {"cpu": cpu}}}


def test_spares_a_pod_of_two_budgets() -> None:
    """The API server evicts no such pod, whatever the two of them let go."""
    state = State(gpus=2)
    state.run("budgeted", WHOLE, app="a")
    state.run("other", WHOLE, priority=50)
    state.budgets += [_budget("a", 1), _budget("a", 1)]
    state.wait(WHOLE)
    assert [victim.name for victim in state.decision().victims] == ["other"]


def test_preempts_the_youngest_of_equal_pods() -> None:
    state = State(gpus=2, nodes=2)
    for number in range(4):
        state.run(f"pod-{number}", WHOLE)
    state.wait(WHOLE)
    assert [victim.name for victim in state.decision().victims] == ["pod-3"]


def test_frees_one_gpu_for_two_waiting_pods_of_one_claim() -> None:
    state = State(gpus=2)
    for name in ("one", "other"):
        state.run(name, WHOLE)
    claim = claim_of("shared", WHOLE)
    del claim["metadata"]["ownerReferences"]
    state.claims.append(claim)
    for name in ("first", "second"):
        pod = waiting_pod(name, 100)
        pod["spec"]["resourceClaims"] = [{"name": "gpus", "resourceClaimName": "shared"}]
        del pod["status"]["resourceClaimStatuses"]
        state.pods.append(pod)
    decisions = decide(state.cluster, Observed(state.nodes, state.pods, state.claims, state.slices))
    assert sum(len(decision.victims) for decision in decisions) <= 1


def test_preempts_no_pod_if_a_resident_pod_repels_the_waiting_one() -> None:
    state = State()
    state.run("held", WHOLE)
    state.pods.append(_repelling_pod(""))
    state.wait(WHOLE)
    assert not state.decision().victims


def test_preempts_for_a_pod_beside_one_like_it_that_a_resident_pod_repels() -> None:
    state = State()
    state.run("held", WHOLE)
    state.pods.append(_repelling_pod("batch"))
    repelled = waiting_pod("repelled", 100)
    repelled["metadata"]["labels"] = {"app": "batch"}
    repelled["metadata"]["creationTimestamp"] = "2026-11-24T08:00:00Z"
    state.pods.append(repelled)
    state.claims.append(claim_of("repelled", WHOLE))
    state.wait(WHOLE)
    first, second = decide(state.cluster, state.observed())
    assert (first.pod.name, first.victims) == ("repelled", ())
    assert [victim.name for victim in second.victims] == ["held"]


def _repelling_pod(app: str) -> dict[str, Any]:
    """Return a pod on node-0 that wants no pod of an app there."""
    resident = _pod("resident", 1000)
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": "kubernetes.io/hostname"}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    resident["spec"] |= {
        "nodeName": "node-0",
        "resourceClaims": [],
        "affinity": {"podAntiAffinity": required},
    }
    resident["status"] = {"phase": "Running"}
    return resident


@pytest.mark.parametrize(
    "spec",
    [
        {"volumes": [{"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}]},
        {"initContainers": [{"name": "x", "restartPolicy": "Always", "ports": [{"hostPort": 80}]}]},
    ],
    ids=["an ephemeral volume's claim", "a sidecar's host port"],
)
def test_preempts_no_pod_for_conditions_in_other_fields(spec: dict[str, Any]) -> None:
    state = State()
    state.run("held", WHOLE)
    state.wait(WHOLE, **spec)
    assert not state.decision().victims
