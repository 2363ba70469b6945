"""Nodes: the agent, the driver, the labels, what is advertised."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping

import pytest

from conformance.check import EVERY, check
from conformance.checks.verdicts import nodes_amiss
from conformance.cluster.cluster_under_test import ClusterUnderTest
from conformance.cluster.last_look import last_look
from conformance.cluster.node_life import NodeLife
from conformance.evidence import Evidence
from conformance.fixtures import DriverLooks, FreshStatuses, GpuConditions
from conformance.observe.compute_mode import compute_modes, let_in
from conformance.observe.fabric import fabric_is_up, read_fabric
from conformance.observe.feature_labels import judge_labels, versions_are_advertised
from conformance.observe.fresh_status import FreshStatus, answers_of
from conformance.observe.gpu_condition import clocks_are_free, lanes_are_up, links_are_sound
from conformance.observe.gpu_memory_errors import memory_errors, memory_is_sound
from conformance.observe.identities import driver_version, libraries_version
from conformance.observe.runtime import driver_devices, kernel_module, runtime_lacks, specification
from conformance.promise import NO_POOL, NodePromise
from conformance.skips import not_applicable, not_made
from divvy.live.live_diff import compare_live
from divvy.model.api_names import STATUS_ANNOTATION
from divvy.model.conditions import is_ready
from divvy.model.versions import is_older

# A kubelet tells a changed list within its status period, 10 s by default; a busy one later.
_STATUS_PERIOD = 60.0


@check(
    "NODE-01",
    "the agent is ready, on the configuration of the stack file",
    "MUST",
    EVERY,
    "another configuration: `divvy up`, or verify the file that was deployed; no answer: the "
    f"agent's rights and log; else see the {STATUS_ANNOTATION} annotation",
    cncf=("driver_runtime_management",),
)
def test_the_agent_follows_the_stack_file(
    target: ClusterUnderTest, statuses: FreshStatuses, node: NodePromise, evidence: Evidence
) -> None:
    fresh = statuses[node]
    status = fresh.status
    evidence.add(json.dumps(status, indent=1))
    pod = target.agent(node.name)
    agent = "none" if pod is None else "ready" if is_ready(pod) else "not ready"
    is_explained = status.get("state") != "Ready" and status.get("reason")
    reason = f" ({status['reason']})" if is_explained else ""
    evidence.require(
        f"agent ready, answers, configuration {target.generation}, profile {node.profile}, "
        "state Ready",
        f"agent {agent}, {fresh.age}, configuration {status.get('generation')}, "
        f"profile {status.get('profile')}, state {status.get('state', 'unknown')}{reason}",
    )


@check(
    "NODE-05",
    "the nodes of each pool are there, and follow the stack file",
    "SHOULD",
    EVERY,
    "see `divvy diff --live`; a label on a node overrides the file until it is removed",
)
def test_the_nodes_of_a_pool_are_those_of_the_file(
    target: ClusterUnderTest, pool: str, evidence: Evidence
) -> None:
    if pool != NO_POOL and target.cluster.pools[pool].hardware is None:
        not_made("the stack file does not say which GPUs the pool has: its nodes are not checked")
    difference = compare_live(target.cluster, target.stack, target.all_nodes)
    unready = [node.unready for node in target.nodes if node.pool == pool and node.unready]
    amiss = [*nodes_amiss(difference, None if pool == NO_POOL else pool), *unready]
    evidence.require("nothing amiss", "; ".join(amiss) or "nothing amiss")


@check(
    "NODE-02",
    "feature labels describe the GPUs that are there",
    "MUST",
    EVERY,
    "another label writer may be running: see `kubectl get node --show-managed-fields`",
)
def test_labels_describe_the_gpus(
    target: ClusterUnderTest, node: NodePromise, evidence: Evidence
) -> None:
    labels = target.live(node.name)["metadata"]["labels"]
    driver = str(target.status(node.name).get("driver", ""))
    evidence.require(*judge_labels(node, labels, driver, target.implementation.free_labels))


@check(
    "NODE-04",
    "the CDI specification names every device, by files that exist",
    "MUST",
    EVERY,
    "the agent rewrites it within a minute; `runtime.configure` switches CDI on",
)
@pytest.mark.enters
def test_the_cdi_specification_names_every_device(
    target: ClusterUnderTest, node: NodePromise, evidence: Evidence
) -> None:
    missing = runtime_lacks(target, node.name)
    pool = target.cluster.pools[node.pool]
    if missing is None and pool.runtime.configure:
        missing = "the pod that prepares it"
    if missing is None:
        evidence.add("Divvy does not prepare this node's runtime; WORK-01 shows that it takes CDI")
    cdi = evidence.of_agent(specification(target, node.name))
    devices = evidence.of_agent(driver_devices(target, node.name))
    cut = sum(len(gpu.placements or ()) for gpu in node.plan.gpus)
    if any(gpu.claims is not None and gpu.claims.mig for gpu in node.plan.gpus):
        # Pods have them made, and may hold some now.
        cut = sum(uuid.startswith("MIG-") for uuid in devices)
    gpus = len(node.plan.gpus)
    if not target.implementation.names_partitioned_gpus:
        gpus = sum(not gpu.placements for gpu in node.plan.gpus)
        # Which of the driver's GPUs are not partitioned is in their number alone.
        devices = frozenset(
            uuid for uuid in devices if uuid in cdi.names or not uuid.startswith("GPU-")
        )
    evidence.add(f"{cdi.files} files are named; the driver lists {', '.join(sorted(devices))}")
    evidence.require(
        f"{gpus} GPUs, {cut} MIG devices, those of the driver; files that are gone: "
        "none; the runtime lacks: nothing",
        f"{cdi.gpus} GPUs, {cdi.mig_devices} MIG devices, {_those(cdi.names, devices)}; "
        f"files that are gone: {', '.join(cdi.gone) or 'none'}; "
        f"the runtime lacks: {missing or 'nothing'}",
    )


def _those(named: Collection[str], devices: Collection[str]) -> str:
    """Describe whether names are those of the driver's devices."""
    unknown, missing = sorted(set(named) - set(devices)), sorted(set(devices) - set(named))
    words = [f"unknown to the driver: {', '.join(unknown)}"] if unknown else []
    words += [f"not named: {', '.join(missing)}"] if missing else []
    return ", ".join(words) or "those of the driver"


@check(
    "NODE-03",
    "the driver is the version the stack file names",
    "SHOULD",
    EVERY,
    "install that driver, or write the installed version into `driver.version`",
    cncf=("driver_runtime_management",),
)
def test_the_driver_is_the_named_one(
    target: ClusterUnderTest, driver_looks: DriverLooks, node: NodePromise, evidence: Evidence
) -> None:
    wanted = target.cluster.driver
    if wanted.version is None and wanted.min_version is None:
        not_applicable("the stack file names no version of the driver")
    smi = driver_looks.of(node)
    evidence.add(smi.log)
    version = driver_version(smi.log)
    is_right = version is not None and (
        (wanted.version is None or version == wanted.version)
        and (wanted.min_version is None or not is_older(version, wanted.min_version))
    )
    named = [wanted.version] if wanted.version else []
    named += [f"at least {wanted.min_version}"] if wanted.min_version else []
    evidence.require_that(is_right, ", ".join(named), version or smi)


@check(
    "NODE-06",
    "the driver's kernel module and mounted libraries are of one version",
    "MUST",
    EVERY,
    "after an update of the driver, restart the machine or reload the kernel module",
    cncf=("driver_runtime_management",),
)
@pytest.mark.enters
def test_kernel_module_and_libraries_are_of_one_version(
    target: ClusterUnderTest, driver_looks: DriverLooks, node: NodePromise, evidence: Evidence
) -> None:
    kernel = kernel_module(target, node.name)
    smi = driver_looks.of(node)
    evidence.add(smi.log)
    libraries = libraries_version(smi.log)
    evidence.require(
        f"kernel module {kernel}, libraries in a pod {kernel}",
        f"kernel module {kernel or 'unknown'}, libraries in a pod {libraries or smi}",
    )


@check(
    "NODE-07",
    "no GPU's memory has errors that wait for a reset or a repair",
    "SHOULD",
    EVERY,
    "see `nvidia-smi -q -d ECC,ROW_REMAPPER,PAGE_RETIREMENT`; reset or replace it",
    cncf=("driver_runtime_management",),
)
@pytest.mark.enters
def test_no_memory_has_errors_that_wait(
    target: ClusterUnderTest, node: NodePromise, evidence: Evidence
) -> None:
    errors = evidence.of_agent(memory_errors(target, node.name))
    evidence.add(json.dumps(errors, indent=1))
    evidence.require(*memory_is_sound(errors, len(node.plan.gpus)))


@check(
    "NODE-08",
    "GPUs behind NVSwitches are part of their fabric",
    "SHOULD",
    EVERY,
    "see `nvidia-smi -q` (Fabric) and nvidia-fabricmanager: it is of the driver's version",
    cncf=("driver_runtime_management",),
)
@pytest.mark.enters
def test_gpus_behind_switches_are_in_their_fabric(
    target: ClusterUnderTest, node: NodePromise, evidence: Evidence
) -> None:
    fabric = evidence.of_agent(read_fabric(target, node.name))
    evidence.add(json.dumps(fabric, indent=1))
    evidence.require(*fabric_is_up(fabric))


@check(
    "NODE-09",
    "every GPU lets several processes in: compute mode Default, or an MPS daemon",
    "SHOULD",
    EVERY,
    "`nvidia-smi -c DEFAULT` on the node; another mode refuses the second "
    "process of a GPU. By MPS: `divvy status` says why the daemon does not answer",
)
@pytest.mark.enters
def test_several_processes_may_use_each_gpu(
    target: ClusterUnderTest, node: NodePromise, evidence: Evidence
) -> None:
    modes = evidence.of_agent(compute_modes(target, node.name))
    evidence.add(json.dumps(modes, indent=1))
    plans = node.plan.gpus
    by_mps = [any(offer.sharing.by_mps for offer in plan.offers) for plan in plans]
    evidence.require(*let_in(modes, by_mps))


@check(
    "NODE-10",
    "the node takes pods: it is not cordoned",
    "SHOULD",
    EVERY,
    "after its maintenance run `kubectl uncordon`; until then new pods get none of its GPUs",
)
def test_users_pods_are_scheduled_on_the_node(
    target: ClusterUnderTest, node: NodePromise, evidence: Evidence
) -> None:
    cordoned = target.live(node.name)["spec"].get("unschedulable")
    evidence.require("schedulable", "cordoned: no new pod is put there" if cordoned
                     else "schedulable")  # fmt: skip


@check(
    "NODE-11",
    "labels advertise the driver and CUDA versions that a pod finds",
    "MUST",
    EVERY,
    "something else writes the labels: see `kubectl get node --show-managed-fields`",
    cncf=("driver_runtime_management",),
)
def test_labels_advertise_the_versions_that_pods_find(
    target: ClusterUnderTest, driver_looks: DriverLooks, node: NodePromise, evidence: Evidence
) -> None:
    smi = driver_looks.of(node)
    evidence.add(smi.log)
    labels = target.live(node.name)["metadata"]["labels"]
    evidence.require(*versions_are_advertised(labels, smi.log))


@check(
    "NODE-12",
    "nothing holds the clocks of a GPU down",
    "SHOULD",
    EVERY,
    "see `nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER`: cooling, power supply",
)
@pytest.mark.enters
def test_nothing_holds_the_clocks_down(
    gpu_conditions: GpuConditions, node: NodePromise, evidence: Evidence
) -> None:
    conditions = evidence.of_agent(gpu_conditions[node])
    evidence.add(json.dumps(conditions, indent=1))
    evidence.require(*clocks_are_free(conditions))


@check(
    "NODE-13",
    "every GPU has all of its PCIe lanes",
    "SHOULD",
    EVERY,
    "see `nvidia-smi -q` (PCI, Link Width); reseat the GPU, or look for errors of the bus",
)
@pytest.mark.enters
def test_every_gpu_has_all_of_its_lanes(
    gpu_conditions: GpuConditions, node: NodePromise, evidence: Evidence
) -> None:
    conditions = evidence.of_agent(gpu_conditions[node])
    evidence.add(json.dumps(conditions, indent=1))
    evidence.require(*lanes_are_up(conditions))


@check(
    "NODE-14",
    "NVLinks are up, and without errors",
    "SHOULD",
    EVERY,
    "see `nvidia-smi nvlink -s` and `-e`; the counters go back to 0 with a reset of the GPU",
)
@pytest.mark.enters
def test_links_are_up_and_without_errors(
    gpu_conditions: GpuConditions, node: NodePromise, evidence: Evidence
) -> None:
    conditions = evidence.of_agent(gpu_conditions[node])
    evidence.add(json.dumps(conditions, indent=1))
    evidence.require(*links_are_sound(conditions))


@check(
    "NODE-15",
    "every node of a pool answers, also those that a sample leaves out",
    "MUST",
    EVERY,
    "see NODE-01 of the nodes that are named, and the logs of their agents",
    cncf=("driver_runtime_management",),
)
def test_every_node_of_a_pool_answers(
    target: ClusterUnderTest,
    statuses: FreshStatuses,
    other_statuses: FreshStatuses,
    pool: str,
    evidence: Evidence,
) -> None:
    if pool == NO_POOL:
        not_applicable("only nodes of pools have agents; NODE-05 names GPU nodes in none")
    life = NodeLife(target.api)
    answers: dict[str, FreshStatus] = {}
    for nodes, known in (
        (target.ready_nodes, statuses),
        (target.unsampled_nodes, other_statuses),
    ):
        own = (node for node in nodes if node.pool == pool)
        some, ended = answers_of(own, known.__getitem__, life)
        answers |= some
        for why in ended:
            evidence.add(why)
    if not answers:
        not_applicable("no node of the pool can run pods: see NODE-05")
    silent = [f"{name} {status.age}" for name, status in answers.items() if not status.answered]
    evidence.require(
        f"{len(answers)} of {len(answers)} nodes answer",
        "; ".join([f"{len(answers) - len(silent)} of {len(answers)} nodes answer", *silent]),
    )


@check(
    "PLUG-01",
    "nothing is advertised that the plan does not promise",
    "MUST",
    EVERY,
    "another device plugin may run on the node; a resource of an older profile shows 0",
)
def test_nothing_unpromised_is_advertised(
    target: ClusterUnderTest, node: NodePromise, evidence: Evidence
) -> None:
    unpromised = {
        name: count
        for name, count in target.advertised(node.name).items()
        if name not in node.plan.per_node
    }
    evidence.require("nothing else", _words(unpromised) or "nothing else")


@check(
    "PLUG-02",
    "allocatable is what the plan promises",
    "MUST",
    EVERY,
    "the status annotation says which GPU is not as it should be, and why",
    cncf=("gpu_sharing",),
)
def test_allocatable_is_the_plan(
    target: ClusterUnderTest, node: NodePromise, evidence: Evidence
) -> None:
    wanted = dict(node.plan.per_node)

    def allocatable() -> dict[str, int]:
        advertised = target.advertised(node.name)
        return {name: advertised.get(name, 0) for name in wanted}

    evidence.require(_words(wanted), _words(last_look(allocatable, wanted.__eq__, _STATUS_PERIOD)))


def _words(counts: Mapping[str, object]) -> str:
    return ", ".join(
        f"{count} {name.removeprefix('nvidia.com/')}" for name, count in counts.items()
    )
