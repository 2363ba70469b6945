"""Fixtures of the checks: pods that several of them read, started once and all at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

import pytest

from conformance.check import PARTITIONED
from conformance.cluster.cluster_under_test import CLUSTER, ClusterUnderTest
from conformance.cluster.inspectors import Inspectors
from conformance.cluster.namespaces import PodNamespaces, pod_namespaces
from conformance.cluster.pods import Outcome, PodNamespace
from conformance.evidence import Evidence, Verdict
from conformance.load.claim_probes import (
    ClaimProbe,
    look_by_claim,
    small_claim,
)
from conformance.load.claims import resource_claim
from conformance.load.fill import FillResult, fill
from conformance.load.known_images import BURN_ARGUMENTS
from conformance.load.neighbours import Figures, contended, measure
from conformance.load.overcommit import Overcommit, overcommit
from conformance.load.release import release
from conformance.observe.allocated import allocation
from conformance.observe.bare_look import (
    BareLook,
    classes_of,
    look_without_request,
    nvidia_runtime_classes,
)
from conformance.observe.claims import claimed_gpu_of
from conformance.observe.fresh_status import FreshStatus, ask_agent
from conformance.observe.gpu_condition import Conditions, read_conditions
from conformance.observe.holders import is_free, require_free, require_idle, require_idle_node
from conformance.observe.host_mounts import SCRIPT as FIND_MOUNTS
from conformance.observe.installed import Installation
from conformance.observe.probes import Part, Prefetched, is_simulated, look_around, part
from conformance.observe.scrape import MetricsSample, sample_metrics
from conformance.observe.sibling import look_beside
from conformance.promise import ClaimPromise, DevicePromise, NodePromise
from conformance.skips import CheckSkipped, NotApplicable, not_made

EVIDENCE = pytest.StashKey[Evidence]()
FreshStatuses = Prefetched[NodePromise, FreshStatus]
Bare = Prefetched[NodePromise, BareLook]
Probes = Prefetched[DevicePromise, Outcome]
ClaimProbes = Prefetched[ClaimPromise, ClaimProbe]
Fills = Prefetched[DevicePromise, FillResult]
Allocations = Prefetched[DevicePromise, Verdict]
Releases = Prefetched[DevicePromise, Verdict]
Overcommits = Prefetched[DevicePromise, Overcommit]
GpuConditions = Prefetched[NodePromise, Conditions | None]
MetricsSamples = Prefetched[NodePromise, MetricsSample | None]
_MAX_PODS = 16
# An answer of an agent needs no pod.
_MAX_ANSWERS = 64
# Simulated GPUs, of whichever node, are all the processors of one machine.
_FILLS_SIMULATED, _BURNS_SIMULATED = 4, 2
# How long pods come and go on each resource; all simulated nodes share one machine.
_ROW, _ROW_SIMULATED = 75.0, 20.0
_PATIENCE = 120
_PULLS = 300


@pytest.fixture(scope="session")
def target(pytestconfig: pytest.Config) -> ClusterUnderTest:
    """Give the cluster under test."""
    return pytestconfig.stash[CLUSTER]


@pytest.fixture(scope="session")
def namespaces(target: ClusterUnderTest) -> Iterator[PodNamespaces]:
    """Give namespaces for pods."""
    if target.image is None:
        not_made(target.no_image)
    secrets = target.cluster.image_pull_secrets
    with pod_namespaces(target.api, target.image, target.cluster.namespace, secrets) as own:
        yield own


@pytest.fixture(scope="session", autouse=True)
def inspectors(request: pytest.FixtureRequest) -> None:
    """Let pods of the suite look into nodes where another implementation shares the GPUs."""
    under_test = request.config.stash.get(CLUSTER, None)
    if under_test is None or under_test.implementation.is_divvy or under_test.image is None:
        return
    namespaces: PodNamespaces = request.getfixturevalue("namespaces")
    under_test.inspectors = Inspectors(lambda: namespaces.at("privileged"), under_test.cluster)


@pytest.fixture(scope="session")
def pods(namespaces: PodNamespaces) -> PodNamespace:
    """Give the namespace in which pods run with few rights, as tenants' should."""
    return namespaces.at("restricted")


@pytest.fixture(scope="session")
def installation(target: ClusterUnderTest) -> Installation:
    """Give what the program installs beside what the cluster has."""
    return Installation(target)


@pytest.fixture(scope="session")
def statuses(target: ClusterUnderTest) -> FreshStatuses:
    """Have every agent answer in its status."""
    return Prefetched(target.ready_nodes, lambda node: ask_agent(target, node), _MAX_PODS)


@pytest.fixture(scope="session")
def other_statuses(target: ClusterUnderTest) -> FreshStatuses:
    """Have the agents answer that the run leaves out."""
    others = target.unsampled_nodes
    return Prefetched(others, lambda node: ask_agent(target, node), _MAX_ANSWERS)


@pytest.fixture
def evidence(request: pytest.FixtureRequest) -> Evidence:
    """Give the place for what a check sees."""
    own = Evidence()
    request.node.stash[EVIDENCE] = own
    return own


def free(
    target: ClusterUnderTest, work: Callable[[DevicePromise], Outcome]
) -> Callable[[DevicePromise], Outcome]:
    """Do something with a device only if that disturbs no pod."""

    def guarded(promise: DevicePromise) -> Outcome:
        require_free(target, promise)
        return work(promise)

    return guarded


@pytest.fixture(scope="session")
def bare(target: ClusterUnderTest, pods: PodNamespace, namespaces: PodNamespaces) -> Bare:
    """Look around without a request on every node: with few rights, and with the usual ones."""
    classes = nvidia_runtime_classes(target.api)
    usual: PodNamespace | None = None
    with suppress(CheckSkipped):
        usual = namespaces.at("baseline")

    def look(node: NodePromise) -> BareLook:
        numbers: Outcome | None = None
        if usual is not None:
            with suppress(CheckSkipped):
                numbers = usual.run(node.name, ["open-devices"])
        fitting = classes_of(classes, node.labels)
        return BareLook(look_without_request(pods, node.name, fitting), numbers)

    return Prefetched(target.ready_nodes, look, _MAX_PODS)


def _note_driver(target: ClusterUnderTest, node: NodePromise, log: str) -> None:
    if (simulated := is_simulated(log)) is not None:
        target.drivers[node.name] = simulated


@pytest.fixture(scope="session")
def probes(target: ClusterUnderTest, pods: PodNamespace) -> Probes:
    """Look at one device of each resource on every node."""

    def work(promise: DevicePromise) -> Outcome:
        outcome = look_around(pods, promise)
        _note_driver(target, promise.node, outcome.log)
        return outcome

    return Prefetched(target.ready_devices, free(target, work), _MAX_PODS)


@pytest.fixture(scope="session")
def claim_probes(target: ClusterUnderTest, pods: PodNamespace) -> ClaimProbes:
    """Look at every GPU that pods claim, by a small share of it."""

    def work(promise: ClaimPromise) -> ClaimProbe:
        gpu = claimed_gpu_of(target, promise)
        probe = look_by_claim(pods, promise, gpu, small_claim(promise, gpu, target.implementation))
        _note_driver(target, promise.node, probe.outcome.log)
        return probe

    return Prefetched(target.ready_claims, work, _MAX_PODS)


@pytest.fixture(scope="session")
def claim_openings(target: ClusterUnderTest, namespaces: PodNamespaces) -> ClaimProbes:
    """Try every device number from a pod of the usual rights that has a small share."""
    usual = namespaces.at("baseline")

    def work(promise: ClaimPromise) -> ClaimProbe:
        gpu = claimed_gpu_of(target, promise)
        return look_by_claim(
            usual, promise, gpu, small_claim(promise, gpu, target.implementation), ["open-devices"]
        )

    return Prefetched(target.ready_claims, work, _MAX_PODS)


@dataclass(frozen=True)
class DriverLooks:
    """What pods saw of each node's driver, whichever way they got a GPU."""

    target: ClusterUnderTest
    probes: Probes
    claim_probes: ClaimProbes

    def of(self, node: NodePromise) -> Part:
        """Return what nvidia-smi said on a node; skips the check if no GPU was free."""
        skipped: CheckSkipped | None = None
        looks: list[Callable[[], Outcome]] = [
            *(partial(self.probes.__getitem__, device) for device in self.target.devices_of(node)),
            *(partial(self._by_claim, device) for device in self.target.claims_of(node)),
        ]
        for look in looks:
            try:
                return part(look(), "nvidia-smi")
            except CheckSkipped as why:
                skipped = why
        raise skipped or NotApplicable("the node offers no GPU to pods")

    def _by_claim(self, promise: ClaimPromise) -> Outcome:
        return self.claim_probes[promise].outcome


@pytest.fixture(scope="session")
def driver_looks(
    target: ClusterUnderTest, probes: Probes, claim_probes: ClaimProbes
) -> DriverLooks:
    """Give what pods saw of each node's driver."""
    return DriverLooks(target, probes, claim_probes)


@pytest.fixture(scope="session")
def past_scheduler(target: ClusterUnderTest, pods: PodNamespace) -> Probes:
    """Run vector-add on one device of each resource in pods that name their node."""
    command = ["cuda-vector-add"]
    work = free(
        target,
        lambda case: pods.run(
            case.node.name, command, case.resource, _PATIENCE, past_scheduler=True
        ),
    )
    return Prefetched(target.ready_devices, work, _MAX_PODS)


@pytest.fixture(scope="session")
def siblings(target: ClusterUnderTest, pods: PodNamespace) -> Probes:
    """Look from both containers of a pod of which one holds one device."""
    work = free(target, lambda case: look_beside(pods, case.node.name, case.resource))
    return Prefetched(target.ready_devices, work, _MAX_PODS)


@pytest.fixture(scope="session")
def claim_siblings(
    target: ClusterUnderTest, pods: PodNamespace
) -> Prefetched[ClaimPromise, Outcome]:
    """Look from both containers of a pod of which one uses its claim of a small share."""

    def work(promise: ClaimPromise) -> Outcome:
        spec, _ = small_claim(promise, claimed_gpu_of(target, promise), target.implementation)
        with resource_claim(pods, spec) as name:
            return look_beside(pods, promise.node.name, claim=name)

    return Prefetched(target.ready_claims, work, _MAX_PODS)


@pytest.fixture(scope="session")
def gpu_conditions(target: ClusterUnderTest) -> GpuConditions:
    """Read what makes a node's GPUs slow."""
    return Prefetched(
        target.ready_nodes, lambda node: read_conditions(target, node.name), _MAX_PODS
    )


@pytest.fixture(scope="session")
def openings(target: ClusterUnderTest, namespaces: PodNamespaces) -> Probes:
    """Try every device number from a pod of the usual rights that holds one device."""
    usual = namespaces.at("baseline")
    command = ["open-devices"]
    work = free(target, lambda case: usual.run(case.node.name, command, case.resource, _PATIENCE))
    return Prefetched(target.ready_devices, work, _MAX_PODS)


@pytest.fixture(scope="session")
def mountings(target: ClusterUnderTest, namespaces: PodNamespaces) -> Probes:
    """Try to write to whatever comes from the host, as root with the usual rights."""
    usual = namespaces.at("baseline")
    command = ["/bin/sh", "-c", FIND_MOUNTS]
    work = free(target, lambda case: usual.run(case.node.name, command, case.resource, _PATIENCE))
    return Prefetched(target.ready_devices, work, _MAX_PODS)


@pytest.fixture(scope="session")
def metrics_samples(target: ClusterUnderTest, pods: PodNamespace) -> MetricsSamples:
    """Hold memory on a device of each free kind, and read what the node's metrics say of it."""

    def work(node: NodePromise) -> MetricsSample | None:
        own = target.devices_of(node)
        return sample_metrics(
            target, pods, node.name, [promise for promise in own if is_free(target, promise)]
        )

    return Prefetched(target.ready_nodes, work, _MAX_PODS)


def _at_most(target: ClusterUnderTest, simulated: int) -> int:
    """Return how many do heavy work at once: real GPUs do not wait for each other."""
    return simulated if target.simulated else _MAX_PODS


@pytest.fixture(scope="session")
def allocations(target: ClusterUnderTest, pods: PodNamespace) -> Allocations:
    """Hold one device of each resource, and read what the kubelet says of it."""

    def work(promise: DevicePromise) -> Verdict:
        require_free(target, promise)
        return allocation(target, pods, promise)

    return Prefetched(target.ready_devices, work, _MAX_PODS)


@pytest.fixture(scope="session")
def fills(target: ClusterUnderTest, pods: PodNamespace) -> Fills:
    """Fill every resource on every node."""

    def work(promise: DevicePromise) -> FillResult:
        require_idle(target, promise)
        return fill(pods, promise, target.implementation.shortage(promise.resource))

    return Prefetched(target.ready_devices, work, _at_most(target, _FILLS_SIMULATED))


@pytest.fixture(scope="session")
def releases(target: ClusterUnderTest, pods: PodNamespace) -> Releases:
    """Have pods of several kinds come and go on every resource of every node."""

    def work(promise: DevicePromise) -> Verdict:
        require_idle(target, promise)
        return release(pods, promise, _ROW_SIMULATED if target.simulated else _ROW)

    return Prefetched(target.ready_devices, work, _MAX_PODS)


@pytest.fixture(scope="session")
def overcommits(target: ClusterUnderTest, pods: PodNamespace) -> Overcommits:
    """Ask for more memory than a MIG device has, on one of each resource on every node."""

    def work(promise: DevicePromise) -> Overcommit:
        require_idle(target, promise)
        return overcommit(pods, promise)

    cut = [
        ready_device for ready_device in target.ready_devices if ready_device.mode in PARTITIONED
    ]
    return Prefetched(cut, work, _at_most(target, _BURNS_SIMULATED))


@dataclass(frozen=True)
class KnownImages:
    """Images from elsewhere, and what came of them."""

    vector_add: str | None
    gpu_burn: str | None
    vector_adds: Prefetched[DevicePromise, Outcome]
    burns: Prefetched[DevicePromise, Outcome]


@pytest.fixture(scope="session")
def known_images(
    target: ClusterUnderTest, pods: PodNamespace, pytestconfig: pytest.Config
) -> KnownImages:
    """Run images from elsewhere on one device of each resource on every node."""
    vector_add = pytestconfig.getoption("--vector-add-image")
    gpu_burn = pytestconfig.getoption("--gpu-burn-image")

    def run(promise: DevicePromise, image: str | None, arguments: Sequence[str]) -> Outcome:
        more = {"image": image, "arguments": arguments}
        return pods.run(promise.node.name, None, promise.resource, _PULLS, **more)

    def burn(promise: DevicePromise) -> Outcome:
        require_idle(target, promise)
        return run(promise, gpu_burn, BURN_ARGUMENTS)

    add = free(target, lambda promise: run(promise, vector_add, ()))
    return KnownImages(
        vector_add,
        gpu_burn,
        Prefetched(target.ready_devices, add, _MAX_PODS),
        Prefetched(target.ready_devices, burn, _at_most(target, _BURNS_SIMULATED)),
    )


@dataclass
class Contention:
    """Figures of devices alone and among neighbours; all nodes are measured once per command."""

    target: ClusterUnderTest
    pods: PodNamespace
    _known: dict[tuple[str, ...], Prefetched[NodePromise, Mapping[str, Figures]]] = field(
        default_factory=dict
    )

    def of(self, promise: DevicePromise, command: tuple[str, ...]) -> Figures:
        """Return the figures of one kind of device."""
        if command not in self._known:
            nodes = [node for node in self.target.ready_nodes if self._devices(node)]
            work = partial(self._measure, command)
            self._known[command] = Prefetched(nodes, work, _at_most(self.target, 1))
        return self._known[command][promise.node][promise.resource]

    def _measure(self, command: tuple[str, ...], node: NodePromise) -> Mapping[str, Figures]:
        require_idle_node(self.target, node)
        return measure(self.pods, self._devices(node), command)

    def _devices(self, node: NodePromise) -> list[DevicePromise]:
        return contended(self.target.devices_of(node))


@pytest.fixture(scope="session")
def contention(target: ClusterUnderTest, pods: PodNamespace) -> Contention:
    """Measure devices alone and among neighbours."""
    return Contention(target, pods)
