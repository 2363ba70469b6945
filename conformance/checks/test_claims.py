"""GPUs by claims: whole, by size and as MIG devices, when a pod asks for them."""

from __future__ import annotations

import json
from functools import partial

import pytest

from conformance.check import CLAIMED, check
from conformance.checks.verdicts import opens_nothing_by_number
from conformance.cluster.cluster_under_test import ClusterUnderTest
from conformance.cluster.namespaces import PodNamespaces
from conformance.cluster.pods import Outcome, PodNamespace
from conformance.evidence import Evidence
from conformance.fixtures import ClaimProbes
from conformance.load.claim_probes import (
    computes,
    has_its_size,
    look_by_claim,
    sees_its_gpu_only,
    whole_claim,
)
from conformance.load.claims import (
    Size,
    ask_and_exceed,
    burst,
    burst_sizes,
    gpus_of_tenants,
    judge_size,
    limits,
    memory_sizes_in,
    open_shares,
    refused_for_gpus,
    requested_share,
    shares_of,
    tenants_without_gpu,
    usual_size,
)
from conformance.observe.claims import (
    claimed_gpu_of,
    claimed_now,
    divisible_by,
    overcommitted,
    require_unclaimed,
    tenants_together,
)
from conformance.observe.identities import visible_gpus
from conformance.observe.kubelet_settings import kubelet_settings, syncs_soon
from conformance.observe.probes import Prefetched, part
from conformance.observe.sibling import sibling_sees_nothing
from conformance.promise import ClaimPromise, NodePromise
from conformance.skips import not_applicable
from divvy.model import mig_resource
from divvy.model.api_names import TENANT_LABEL
from divvy.model.gpu_models import GpuModel
from divvy.plan.fit.live_claims import offered_kinds

_STARTED = 90
_HELD = 120


@check(
    "CLM-01",
    "claims get every GPU, in each way that the plan promises",
    "MUST",
    CLAIMED,
    "the status annotation says which GPU is not as it should be; see `divvy diff --live`",
    cncf=("dra_support",),
)
def test_claims_get_every_gpu(
    target: ClusterUnderTest, node: NodePromise, evidence: Evidence
) -> None:
    gpus = claimed_now(target, node)
    for gpu in gpus:
        evidence.add(f"{gpu.name}: {gpu.uuid}, {len(gpu.devices)} devices")
    expected = {kind.name: kind.gpus for kind in node.plan.claimable}
    uuids = len({gpu.uuid for gpu in gpus})
    evidence.require(
        f"{len(node.plan.gpus)} GPUs: {_listed(expected)}",
        f"{uuids} GPUs: {_listed(dict(offered_kinds(gpus, target.cluster.names)))}",
    )


@check(
    "CLM-02",
    "a share has the size that its pod asked for, and refuses more",
    "MUST",
    CLAIMED,
    "the limiter's libraries must come before the driver's: see docs/limiter.md",
    cncf=("gpu_sharing",),
)
@pytest.mark.exclusive
def test_a_share_has_its_size(
    target: ClusterUnderTest, pods: PodNamespace, node: NodePromise, evidence: Evidence
) -> None:
    size = usual_size(node, _share_step(target, node))
    require_unclaimed(target, node)
    with requested_share(pods, target.implementation, target.cluster.names, size) as request:
        outcome = ask_and_exceed(pods, node, size, request)
    evidence.add(outcome.log)
    evidence.add(outcome)
    evidence.require(*judge_size(size, outcome))


@check(
    "CLM-03",
    "two shares of one container are on two GPUs, each with its size",
    "MUST",
    CLAIMED,
    "see the claim of the pod: its results name the devices",
)
@pytest.mark.exclusive
def test_two_shares_of_a_container_are_on_two_gpus(
    target: ClusterUnderTest, pods: PodNamespace, node: NodePromise, evidence: Evidence
) -> None:
    if len(node.plan.gpus) < 2:
        not_applicable("the node has one GPU")
    size = usual_size(node, _share_step(target, node))
    if len(open_shares(node)) < 2:
        not_applicable("one GPU of the node alone has shares for any pod")
    require_unclaimed(target, node)
    resources = limits(target.cluster.names, 2, size)
    command = ["/bin/sh", "-c", "nvidia-smi; nvidia-smi -L"]
    outcome = pods.run(node.name, command, None, _STARTED, resources=resources)
    evidence.add(outcome.log)
    evidence.add(outcome)
    evidence.require(
        f"2 GPUs of {size.memory_mib}, {size.memory_mib} MiB",
        f"{len(set(visible_gpus(outcome.log)))} GPUs of "
        f"{', '.join(map(str, memory_sizes_in(outcome.log)))} MiB",
    )


@check(
    "CLM-04",
    "what no GPU can give is refused when the pod is created, with the reason",
    "MUST",
    CLAIMED,
    "the admission policies of Divvy are missing or not bound: `divvy up`",
)
def test_what_no_gpu_can_give_is_refused(
    target: ClusterUnderTest, pods: PodNamespace, node: NodePromise, evidence: Evidence
) -> None:
    names, size = target.cluster.names, usual_size(node, _share_step(target, node))
    bodies = {
        "more memory than any GPU has": limits(names, 1, Size(10**8)),
        "a unit": {"limits": {names.gpu: "1", names.memory: "4Gi"}},
        "more time than a GPU has": limits(names, 1, Size(size.memory_mib, 101)),
        "no memory at all": limits(names, 1, Size(0)),
    }
    refusals = {what: pods.denial(node.name, body) for what, body in bodies.items()}
    evidence.add("\n".join(f"{what}: {refusal}" for what, refusal in refusals.items()))
    evidence.require(*refused_for_gpus(refusals, (names.memory, names.cores)))


@check(
    "CLM-05",
    "each GPU, claimed whole, is whole and computes",
    "MUST",
    CLAIMED,
    "see `divvy why` for a pod that waits; compare with CLM-02",
    cncf=("secure_accelerator_access",),
)
@pytest.mark.exclusive
def test_a_whole_gpu_is_whole(
    target: ClusterUnderTest, pods: PodNamespace, claimed_gpu: ClaimPromise, evidence: Evidence
) -> None:
    require_unclaimed(target, claimed_gpu.node)
    gpu = claimed_gpu_of(target, claimed_gpu)
    probe = look_by_claim(pods, claimed_gpu, gpu, (whole_claim(gpu, target.implementation), None))
    evidence.add(probe.outcome.log)
    evidence.add(probe.outcome)
    verdicts = (computes(probe), sees_its_gpu_only(probe), has_its_size(probe, _model(claimed_gpu)))
    evidence.require(
        "; ".join(expected for expected, _ in verdicts), "; ".join(actual for _, actual in verdicts)
    )


@check(
    "CLM-10",
    "every GPU computes in a small share of it",
    "MUST",
    CLAIMED,
    "a GPU that computes wrongly must be taken out of service; the case names it",
    cncf=("gpu_sharing",),
)
def test_every_gpu_computes_in_a_small_share(
    claim_probes: ClaimProbes, claimed_gpu: ClaimPromise, evidence: Evidence
) -> None:
    probe = claim_probes[claimed_gpu]
    evidence.command = "cuda-vector-add"
    evidence.add(part(probe.outcome, "vector-add").log)
    evidence.require(*computes(probe))


@check(
    "CLM-11",
    "a pod sees the GPU of its claim and no other",
    "MUST",
    CLAIMED,
    "compare the claim's result with the specifications of claims in the CDI folder",
    cncf=("secure_accelerator_access",),
)
def test_a_pod_sees_the_gpu_of_its_claim_only(
    claim_probes: ClaimProbes, claimed_gpu: ClaimPromise, evidence: Evidence
) -> None:
    probe = claim_probes[claimed_gpu]
    evidence.add(part(probe.outcome, "look").log)
    evidence.require(*sees_its_gpu_only(probe))


@check(
    "CLM-12",
    "CUDA and nvidia-smi show the share that was claimed, exactly",
    "MUST",
    CLAIMED,
    "the limiter's libraries must come before the driver's: see docs/limiter.md",
    cncf=("gpu_sharing",),
)
def test_a_small_share_has_its_size(
    claim_probes: ClaimProbes, claimed_gpu: ClaimPromise, evidence: Evidence
) -> None:
    probe = claim_probes[claimed_gpu]
    evidence.add(probe.outcome.log)
    evidence.require(*has_its_size(probe, _model(claimed_gpu)))


@check(
    "CLM-13",
    "a pod with a share opens no device by its number",
    "MUST",
    CLAIMED,
    "the container runtime must confine devices by control group: is the pod privileged?",
    cncf=("secure_accelerator_access",),
)
def test_a_pod_with_a_share_opens_no_device_by_its_number(
    claim_openings: ClaimProbes, claimed_gpu: ClaimPromise, evidence: Evidence
) -> None:
    outcome = claim_openings[claimed_gpu].outcome
    evidence.command = "open-devices"
    evidence.add(outcome.log)
    evidence.require(*opens_nothing_by_number(outcome))


def _model(promise: ClaimPromise) -> GpuModel:
    return promise.node.plan.gpus[promise.index].model


@check(
    "CLM-06",
    "a burst of shares of many sizes never takes more than a GPU has",
    "MUST",
    CLAIMED,
    "shares need Kubernetes 1.36.2 or newer: older ones allocate a device twice",
)
@pytest.mark.exclusive
def test_a_burst_never_takes_more_than_there_is(
    target: ClusterUnderTest, pods: PodNamespace, node: NodePromise, evidence: Evidence
) -> None:
    sizes = burst_sizes(node, _share_step(target, node))
    require_unclaimed(target, node)
    request = partial(requested_share, pods, target.implementation, target.cluster.names)
    with burst(pods, node, sizes, request, _HELD) as started:
        gpus = claimed_now(target, node)
        held = [holder.words for gpu in gpus for _, holder in gpu.holders]
        evidence.add("\n".join(held))
        ran = {name: memory_sizes_in(pods.log(name)) for name in started}
        wrong = [
            f"{name} shows {memory_sizes} MiB, not {started[name].memory_mib}"
            for name, memory_sizes in ran.items()
            if memory_sizes and memory_sizes != [started[name].memory_mib]
        ]
        waiting = [name for name, memory_sizes in ran.items() if not memory_sizes]
        undecided = [name for name in waiting if not pods.unschedulable(name)]
        problems = [*overcommitted(gpus, node), *wrong, *(f"{name} hangs" for name in undecided)]
        evidence.add(f"{len(started) - len(waiting)} run, {len(waiting)} wait")
        if len(waiting) == len(started):
            problems.append("no pod runs")
        evidence.require("nothing wrong", "; ".join(problems) or "nothing wrong")


@check(
    "CLM-07",
    "a MIG device is made when a pod asks for it, and goes with the pod",
    "MUST",
    CLAIMED,
    "the pod's events name what the node's driver waits for",
)
@pytest.mark.exclusive
def test_a_mig_device_comes_and_goes_with_its_pod(
    target: ClusterUnderTest, pods: PodNamespace, node: NodePromise, evidence: Evidence
) -> None:
    profiles = {name for gpu in node.plan.gpus if gpu.claims for name in gpu.claims.mig}
    if not profiles:
        not_applicable("the profile has no MIG devices")
    require_unclaimed(target, node)
    command = ["/bin/sh", "-c", "nvidia-smi -L; cuda-vector-add"]
    seen = []
    for profile in sorted(profiles):
        outcome = pods.run(node.name, command, mig_resource(profile), _STARTED)
        evidence.add(f"{profile}: {outcome.log}{outcome}")
        there = f" MIG {profile} " in outcome.log and "Test PASSED" in outcome.log
        seen.append(f"{profile} {'computes' if there else f'does not: {outcome}'}")
    # All GPUs at once, whole: no instance is left on any of them, nor MIG mode.
    every = len(node.plan.gpus)
    whole = pods.run(node.name, command, target.cluster.names.gpu, _STARTED, count=every)
    evidence.add(f"whole: {whole.log}{whole}")
    left = " MIG " in whole.log or whole.code != 0
    free = "held or divided" if left else f"{len(set(visible_gpus(whole.log)))} GPUs whole"
    evidence.require(
        f"{', '.join(f'{profile} computes' for profile in sorted(profiles))}, then "
        f"{every} GPUs whole",
        f"{', '.join(seen)}, then {free}",
    )


@check(
    "CLM-08",
    "shares of two tenants are never on one GPU",
    "MUST",
    CLAIMED,
    "is the namespace labelled divvy.gpu/tenant? see the classes of the pod's claims",
    cncf=("gpu_sharing",),
)
@pytest.mark.exclusive
def test_tenants_are_never_on_one_gpu(
    target: ClusterUnderTest, namespaces: PodNamespaces, node: NodePromise, evidence: Evidence
) -> None:
    tenants = [name for gpu in node.plan.gpus if gpu.claims for name in gpu.claims.tenants]
    two = list(dict.fromkeys(tenants))[:2]
    if len(two) < 2:
        not_applicable("the profile does not have two tenants")
    shares = shares_of(node)
    assert shares is not None, "tenants without shares are not a valid profile"
    require_unclaimed(target, node)
    size = usual_size(node, shares.memory.step_mib)
    places = dict(zip(two, (namespaces.at("restricted"), namespaces.at("baseline")), strict=True))
    started: dict[str, list[str]] = {tenant: [] for tenant in two}
    resources = limits(target.cluster.names, 1, Size(size.memory_mib, 10))
    script = ["/bin/sh", "-c", f"nvidia-smi -L; sleep {_HELD}"]
    try:
        for tenant, place in places.items():
            namespaces.label(place, {TENANT_LABEL: tenant})
        for _ in node.plan.gpus:
            for tenant, place in places.items():
                started[tenant].append(place.start(node.name, script, None, resources=resources))
        for tenant, place in places.items():
            for name in started[tenant]:
                place.until(partial(_decided, place, name), _STARTED)
        gpus = claimed_now(target, node)
        seen = {
            tenant: {uuid for name in started[tenant] for uuid in visible_gpus(place.log(name))}
            for tenant, place in places.items()
        }
        evidence.add(seen)
        together = [*tenants_together(gpus), *sorted(set.intersection(*seen.values()))]
        waiting = tenants_without_gpu(seen, gpus_of_tenants(node, two))
        together += [f"no pod of {tenant} runs" for tenant in waiting]
        evidence.require("apart", "; ".join(together) or "apart")
    finally:
        for tenant, place in places.items():
            place.remove(*started[tenant])
            namespaces.label(place, {TENANT_LABEL: None})


def _decided(place: PodNamespace, name: str) -> bool:
    """Return whether a pod has seen its GPU, or the scheduler has found none for it."""
    return bool(visible_gpus(place.log(name)) or place.unschedulable(name))


def _share_step(target: ClusterUnderTest, node: NodePromise) -> int:
    """Return the MiB that shares are rounded up to; skips if the suite's pods can have none."""
    if not target.implementation.is_divvy:
        return divisible_by(claimed_now(target, node))
    if shares_of(node) is None:
        not_applicable("the profile has no shares")
    if not (shares := open_shares(node)):
        not_applicable("the profile's shares are only for its tenants: CLM-08 has some")
    return max(gpu_shares.memory.step_mib for gpu_shares in shares)


def _listed(kinds: dict[str, int]) -> str:
    return ", ".join(f"{name} on {number}" for name, number in sorted(kinds.items())) or "nothing"


@check(
    "CLM-09",
    "a kubelet that asked about a claim too early asks again within seconds",
    "SHOULD",
    CLAIMED,
    "set `syncFrequency: 10s` in the kubelet's configuration",
)
def test_a_kubelet_asks_again_soon(
    target: ClusterUnderTest, node: NodePromise, evidence: Evidence
) -> None:
    settings = kubelet_settings(target.api, node.name)
    evidence.add(json.dumps(settings, indent=1))
    evidence.require(*syncs_soon(settings))


@check(
    "CLM-14",
    "a container that does not use the claim of its pod sees no GPU",
    "MUST",
    CLAIMED,
    "does a webhook, or the runtime, give devices to every container of a pod?",
    cncf=("secure_accelerator_access",),
)
def test_a_container_without_the_claim_sees_no_gpu(
    claim_siblings: Prefetched[ClaimPromise, Outcome], claimed_gpu: ClaimPromise, evidence: Evidence
) -> None:
    evidence.add(claim_siblings[claimed_gpu].log)
    evidence.require(*sibling_sees_nothing(claim_siblings[claimed_gpu]))
