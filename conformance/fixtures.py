"""What the checks share: pods that several of them read, started once and all at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import pytest

from conformance.catalogue import MIG, MIG_SLICED
from conformance.evidence import Evidence
from conformance.fill import Filled, fill
from conformance.known_images import BURN_ARGUMENTS
from conformance.neighbours import Figures, crowded, measure
from conformance.overdraw import Overdraw, overdraw
from conformance.pods import Outcome, Workplace
from conformance.probes import LOOK, AtOnce, look_around
from conformance.promise import DevicePromise, NodePromise
from conformance.scrape import Told, told_of_pods
from conformance.site import SITE, Site
from conformance.tenants import is_free, require_free, require_idle, require_idle_node
from conformance.workplaces import Workplaces, workplaces

EVIDENCE = pytest.StashKey[Evidence]()
Bare = AtOnce[NodePromise, tuple[Outcome, Outcome | None]]
Probes = AtOnce[DevicePromise, Outcome]
Fills = AtOnce[DevicePromise, Filled]
Overdraws = AtOnce[DevicePromise, Overdraw]
Tellings = AtOnce[NodePromise, Told | None]
_BURN = ("gpu-burn", "-m", "64", "-stts", "1", "3")
_MOST_PODS = 16
# Simulated GPUs, of whichever node, are all the processors of one machine.
_FILLS_SIMULATED, _BURNS_SIMULATED = 4, 2
_PATIENCE = 120
_PULLS = 300


@pytest.fixture(scope="session")
def site(pytestconfig: pytest.Config) -> Site:
    """Give the cluster under test."""
    return pytestconfig.stash[SITE]


@pytest.fixture(scope="session")
def places(site: Site) -> Iterator[Workplaces]:
    """Give namespaces for pods."""
    if site.image is None:
        pytest.skip("no workload image: give --workload-image, or plugin.image.registry")
    with workplaces(site.client, site.image) as found:
        yield found


@pytest.fixture(scope="session")
def pods(places: Workplaces) -> Workplace:
    """Give the namespace in which pods run with few rights, as tenants' should."""
    return places.at("restricted")


@pytest.fixture
def evidence(request: pytest.FixtureRequest) -> Evidence:
    """Give the place for what a check sees."""
    found = Evidence()
    request.node.stash[EVIDENCE] = found
    return found


def free(
    site: Site, work: Callable[[DevicePromise], Outcome]
) -> Callable[[DevicePromise], Outcome]:
    """Do something with a device only where that disturbs nobody."""

    def guarded(promise: DevicePromise) -> Outcome:
        require_free(site, promise)
        return work(promise)

    return guarded


@pytest.fixture(scope="session")
def bare(site: Site, pods: Workplace, places: Workplaces) -> Bare:
    """Look around without a request on every node: with few rights, and with the usual ones."""
    usual = places.at("baseline")

    def look(node: NodePromise) -> tuple[Outcome, Outcome | None]:
        seen = pods.run(node.name, ["/bin/sh", "-c", LOOK])
        try:
            return seen, usual.run(node.name, ["open-devices"])
        except pytest.skip.Exception:
            return seen, None

    return AtOnce(site.nodes, look, _MOST_PODS)


@pytest.fixture(scope="session")
def probes(site: Site, pods: Workplace) -> Probes:
    """Look at one device of each resource on every node."""
    work = free(site, lambda promise: look_around(pods, promise))
    return AtOnce(site.devices, work, _MOST_PODS)


@pytest.fixture(scope="session")
def past_scheduler(site: Site, pods: Workplace) -> Probes:
    """Run vector-add on one device of each resource in pods that name their node."""
    command = ["cuda-vector-add"]
    work = free(
        site,
        lambda one: pods.run(one.node.name, command, one.resource, _PATIENCE, past_scheduler=True),
    )
    return AtOnce(site.devices, work, _MOST_PODS)


@pytest.fixture(scope="session")
def openings(site: Site, places: Workplaces) -> Probes:
    """Try every device number from a pod of the usual rights that holds one device."""
    usual = places.at("baseline")
    command = ["open-devices"]
    work = free(site, lambda one: usual.run(one.node.name, command, one.resource, _PATIENCE))
    return AtOnce(site.devices, work, _MOST_PODS)


@pytest.fixture(scope="session")
def tellings(site: Site, pods: Workplace) -> Tellings:
    """Hold memory on a device of each free kind, and read what the node's metrics say of it."""

    def work(node: NodePromise) -> Told | None:
        own = [one for one in site.devices if one.node.name == node.name]
        return told_of_pods(site, pods, node.name, [one for one in own if is_free(site, one)])

    return AtOnce(site.nodes, work, _MOST_PODS)


def _most(site: Site, simulated: int) -> int:
    """Return how many do heavy work at once: real GPUs do not wait for each other."""
    return simulated if site.simulated else _MOST_PODS


@pytest.fixture(scope="session")
def fills(site: Site, pods: Workplace) -> Fills:
    """Fill every resource on every node."""

    def work(promise: DevicePromise) -> Filled:
        require_idle(site, promise)
        return fill(pods, promise)

    return AtOnce(site.devices, work, _most(site, _FILLS_SIMULATED))


@pytest.fixture(scope="session")
def overdraws(site: Site, pods: Workplace) -> Overdraws:
    """Ask for more memory than a MIG device has, on one of each resource on every node."""

    def work(promise: DevicePromise) -> Overdraw:
        require_idle(site, promise)
        return overdraw(pods, promise)

    cut = [one for one in site.devices if one.mode in (MIG, MIG_SLICED)]
    return AtOnce(cut, work, _most(site, _BURNS_SIMULATED))


@dataclass(frozen=True)
class Burns:
    """A short burn on one device of each resource."""

    command: tuple[str, ...]
    outcomes: AtOnce[DevicePromise, Outcome]


@pytest.fixture(scope="session")
def burns(site: Site, pods: Workplace) -> Burns:
    """Burn one device of each resource on every node."""

    def work(promise: DevicePromise) -> Outcome:
        require_idle(site, promise)
        return pods.run(promise.node.name, _BURN, promise.resource, _PATIENCE)

    return Burns(_BURN, AtOnce(site.devices, work, _most(site, _BURNS_SIMULATED)))


@dataclass(frozen=True)
class KnownImages:
    """Images from elsewhere, and what came of them."""

    vector_add: str | None
    gpu_burn: str | None
    vector_adds: AtOnce[DevicePromise, Outcome]
    burns: AtOnce[DevicePromise, Outcome]


@pytest.fixture(scope="session")
def known_images(site: Site, pods: Workplace, pytestconfig: pytest.Config) -> KnownImages:
    """Run images from elsewhere on one device of each resource on every node."""
    vector_add = pytestconfig.getoption("--vector-add-image")
    gpu_burn = pytestconfig.getoption("--gpu-burn-image")

    def run(promise: DevicePromise, image: str | None, arguments: Sequence[str]) -> Outcome:
        more = {"image": image, "arguments": arguments}
        return pods.run(promise.node.name, None, promise.resource, _PULLS, **more)

    def burn(promise: DevicePromise) -> Outcome:
        require_idle(site, promise)
        return run(promise, gpu_burn, BURN_ARGUMENTS)

    add = free(site, lambda promise: run(promise, vector_add, ()))
    return KnownImages(
        vector_add,
        gpu_burn,
        AtOnce(site.devices, add, _MOST_PODS),
        AtOnce(site.devices, burn, _most(site, _BURNS_SIMULATED)),
    )


@dataclass
class Crowds:
    """Figures of devices alone and among neighbours; all nodes are measured once per command."""

    site: Site
    pods: Workplace
    _known: dict[tuple[str, ...], AtOnce[NodePromise, Mapping[str, Figures]]] = field(
        default_factory=dict
    )

    def of(self, promise: DevicePromise, command: tuple[str, ...]) -> Figures:
        """Return the figures of one kind of device."""
        if command not in self._known:
            nodes = [node for node in self.site.nodes if self._devices(node)]
            work = partial(self._measure, command)
            self._known[command] = AtOnce(nodes, work, _most(self.site, 1))
        return self._known[command][promise.node][promise.resource]

    def _measure(self, command: tuple[str, ...], node: NodePromise) -> Mapping[str, Figures]:
        require_idle_node(self.site, node)
        return measure(self.pods, self._devices(node), command)

    def _devices(self, node: NodePromise) -> list[DevicePromise]:
        return crowded([one for one in self.site.devices if one.node.name == node.name])


@pytest.fixture(scope="session")
def crowds(site: Site, pods: Workplace) -> Crowds:
    """Measure devices alone and among neighbours."""
    return Crowds(site, pods)
