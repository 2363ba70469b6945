"""Prometheus metrics of a node: our own, and the DCGM names that the usual dashboard reads.

Every metric of ours names its node, so that a scraper needs no relabelling. Scrape with
`honor_labels`: `namespace` and `pod` are those of the pod that holds a device, not the agent's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from time import monotonic

from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from divvy.agent.agent import Agent
from divvy.agent.claims.offers import CLAIM_ID
from divvy.agent.claims.record import ClaimRecord
from divvy.agent.containers import Container
from divvy.agent.gpu.device_id import is_share, physical
from divvy.agent.gpu.hardware import Gpu
from divvy.agent.gpu.holders import Holder
from divvy.agent.gpu.status import NodeStatus
from divvy.agent.inject.share import share_holders
from divvy.agent.memory.memory_limit import Excess
from divvy.agent.memory.shares import ShareFigures
from divvy.agent.metrics.allocated import allocated, allocated_gauges
from divvy.agent.metrics.claims import claim_gauges, memory_of_claims
from divvy.agent.metrics.container_utilisation import utilisation_gauge
from divvy.agent.metrics.page import NodeGauge, Page
from divvy.agent.mps.service import MpsFigures
from divvy.agent.nvml.process import DriverProblem
from divvy.agent.plugin.device_holders import HoldersUnknown
from divvy.agent.plugin.inventory import Resource
from divvy.model.api_names import Mode, State

# name of the reading → (DCGM's name, help)
_DCGM = {
    "temperature_celsius": ("DCGM_FI_DEV_GPU_TEMP", "GPU temperature in degrees Celsius."),
    "power_watts": ("DCGM_FI_DEV_POWER_USAGE", "Power draw in watts."),
    "sm_clock_mhz": ("DCGM_FI_DEV_SM_CLOCK", "SM clock in MHz."),
    "gpu_utilisation": ("DCGM_FI_DEV_GPU_UTIL", "GPU utilisation in per cent."),
    "memory_used_mib": ("DCGM_FI_DEV_FB_USED", "Used device memory in MiB."),
}
_HOLDER = ["resource", "mode", "device", "uuid", "gpu", "namespace", "pod", "container"]


async def metrics_page(agent: Agent, node: str) -> bytes:
    """Render all metrics now."""
    page = Page(node)
    resources = agent.plugins.advertised()
    _devices(page, resources)
    _excesses(page, agent.memory_watch.excesses)
    _conformance(page, agent.conformance_success)
    _daemons(page, agent.mps.figures)
    if agent.status is not None:
        _states(page, agent.status)
        page.registry.register(_StateSeconds(node, agent.status, agent.state_seconds(monotonic())))
    snapshot = agent.driver.snapshot
    memory: Mapping[str, float] = {}
    if snapshot is not None and not agent.driver.problem:
        memory = await _readings(page.registry, agent, snapshot.gpus, node)
    try:
        named = await agent.holders.of_pods()
    except HoldersUnknown:
        named = ()  # the kubelet is restarting: better no holders than old ones
    gpus = () if snapshot is None else snapshot.gpus
    using = page.gauge(
        "divvy_pod_memory_used_mib",
        "Memory in use on a device that this pod holds alone, in MiB.",
        _HOLDER,
    )
    held = [*_held_devices(resources, named, gpus)]
    _holders(page, using, held, memory)
    claimed, holders_of_claims = await agent.claims.users()
    if not agent.driver.problem:
        users = _users(held, claimed, holders_of_claims)
        await utilisation_gauge(page, agent.driver, gpus, agent.container_logs, users)
    memory_of_claims(using, claimed, gpus, memory)
    claim_gauges(page, agent.claims.record)
    allocated_gauges(page, allocated(resources, named, claimed, gpus))
    page.registry.register(agent.claims.prepare_seconds)
    all_holders = (*named, *holders_of_claims)
    _shares(page, agent.share_accounts.figures, all_holders)
    _unreadable(page, agent.share_accounts.unreadable, all_holders)
    return generate_latest(page.registry)


def mode(resource: Resource) -> Mode:
    """Return how a resource's devices are shared."""
    if resource.kind == "file":
        return Mode.FILES
    is_mig = resource.kind == "mig"
    if not resource.sharing.is_shared:
        return Mode.MIG if is_mig else Mode.WHOLE
    if resource.sharing.by_mps:
        return Mode.MPS_LIMIT if resource.sharing.is_prevented else Mode.MPS
    if resource.sharing.is_prevented:
        return Mode.MIG_TIME_SLICING_LIMIT if is_mig else Mode.TIME_SLICING_LIMIT
    return Mode.MIG_TIME_SLICING if is_mig else Mode.TIME_SLICING


def _devices(page: Page, resources: Sequence[Resource]) -> None:
    gauge = page.gauge(
        "divvy_devices", "Devices offered, by health.", ["resource", "mode", "healthy"]
    )
    for resource in resources:
        healthy = sum(device.unhealthy is None for device in resource.devices)
        gauge.set(healthy, resource.name, mode(resource), "true")
        gauge.set(len(resource.devices) - healthy, resource.name, mode(resource), "false")


@dataclass(frozen=True)
class _HeldDevice:
    """A device, its mode and its holder."""

    holder: Holder
    mode: Mode
    uuid: str
    gpu: str


def _held_devices(
    resources: Sequence[Resource], held: Iterable[Holder], gpus: Sequence[Gpu]
) -> Iterator[_HeldDevice]:
    """Yield what is held of the node's devices.

    A pod keeps what is no longer offered: while a change waits for it, nothing else tells whom
    it waits for. How such a device was limited is not known.
    """
    offered = {
        (resource.name, device.id): (resource, device)
        for resource in resources
        for device in resource.devices
    }
    parents = {gpu.uuid: gpu.uuid for gpu in gpus}
    parents |= {part.uuid: gpu.uuid for gpu in gpus for part in gpu.instances if part.uuid}
    for holder in held:
        match = offered.get((holder.resource, holder.device_id))
        uuid = physical(holder.device_id)
        if match is not None:
            resource, device = match
            yield _HeldDevice(holder, mode(resource), device.uuid, device.gpu)
        elif uuid in parents:
            shared = is_share(holder.device_id)
            if uuid == parents[uuid]:
                earlier_mode = Mode.TIME_SLICING if shared else Mode.WHOLE
            else:
                earlier_mode = Mode.MIG_TIME_SLICING if shared else Mode.MIG
            yield _HeldDevice(holder, earlier_mode, uuid, parents[uuid])


def _holders(
    page: Page, using: NodeGauge, held: Iterable[_HeldDevice], memory: Mapping[str, float]
) -> None:
    """Show who holds what; memory where a pod is alone on the device, so that it is the pod's."""
    holding = page.gauge(
        "divvy_device_held",
        "Always 1; the labels name a device and the pod that holds it.",
        _HOLDER,
    )
    for device in held:
        holder = device.holder
        namespace, _, pod = holder.pod.partition("/")
        labels = (
            holder.resource,
            device.mode,
            holder.device_id,
            device.uuid,
            device.gpu,
            namespace,
            pod,
            holder.container,
        )
        holding.set(1, *labels)
        if not is_share(holder.device_id) and device.uuid in memory:
            using.set(memory[device.uuid], *labels)


def _users(
    held: Iterable[_HeldDevice], claimed: ClaimRecord, holders_of_claims: Iterable[Holder]
) -> Mapping[str, Set[Container]]:
    """Return the containers that have something of each GPU, by its UUID."""
    gpus = {f"{CLAIM_ID}{claim.uid}": claim.gpus for claim in claimed.claims.values()}
    users: dict[str, set[Container]] = {}
    for holder, uuids in (
        *((device.holder, [device.gpu]) for device in held),
        *((holder, gpus.get(holder.device_id, ())) for holder in holders_of_claims),
    ):
        # Several containers of a pod may have a claim.
        names = [name for name in holder.container.split(", ") if name and holder.pod]
        for uuid in uuids:
            users.setdefault(uuid, set()).update(Container(holder.pod, name) for name in names)
    return users


def _shares(page: Page, shares: Mapping[str, ShareFigures], held: Iterable[Holder]) -> None:
    """Show what the limiter in each container says, by its own account."""
    labels = ["uuid", "namespace", "pod", "container"]
    used = page.gauge("divvy_share_memory_used_mib", "Memory that a share uses, in MiB.", labels)
    limit = page.gauge("divvy_share_memory_limit_mib", "Memory limit of a share, in MiB.", labels)
    refused = page.gauge(
        "divvy_share_refusals", "Requests for memory that the limiter has refused.", labels
    )
    waited = page.gauge(
        "divvy_share_waited_seconds", "Time that launches have waited at the compute gate.", labels
    )
    opened = page.gauge(
        "divvy_share_gate_opened",
        "Launches let through before another share's turn had ended.",
        labels,
    )
    to_host = page.gauge(
        "divvy_share_requests_to_host_memory",
        "Allocations that did not fit into GPU memory and were placed in host memory.",
        labels,
    )
    holders = share_holders(held)
    for share in shares.values():
        holder = holders.get(frozenset(share.device_ids))
        if holder is None:
            continue
        namespace, _, pod = holder.pod.partition("/")
        for at, (uuid, size) in enumerate(share.limits.items()):
            where = (uuid, namespace, pod, holder.container)
            used.set(share.figures.used[at] >> 20, *where)
            limit.set(size >> 20, *where)
            refused.set(share.figures.refused[at], *where)
            waited.set(share.figures.waited[at], *where)
            opened.set(share.figures.opened[at], *where)
            to_host.set(share.figures.to_host[at], *where)


def _unreadable(page: Page, shares: Mapping[str, tuple[str, ...]], held: Iterable[Holder]) -> None:
    """Show whose limiter writes an account that this agent does not read."""
    gauge = page.gauge(
        "divvy_share_account_unreadable",
        "1 for a container whose account has a different format from the agent's.",
        ["namespace", "pod", "container"],
    )
    holders = share_holders(held)
    for device_ids in shares.values():
        holder = holders.get(frozenset(device_ids))
        if holder is not None:
            namespace, _, pod = holder.pod.partition("/")
            gauge.set(1, namespace, pod, holder.container)


def _excesses(page: Page, excesses: Sequence[Excess]) -> None:
    gauge = page.gauge(
        "divvy_memory_over_limit_mib",
        "GPU memory that a container uses beyond the memoryLimit of its shares, in MiB.",
        ["namespace", "pod", "container", "resource", "uuid"],
    )
    for excess in excesses:
        namespace, _, pod = excess.pod.partition("/")
        over = excess.used_mib - excess.limit_mib
        gauge.set(over, namespace, pod, excess.container, excess.resource, excess.uuid)


def _daemons(page: Page, daemons: Sequence[MpsFigures]) -> None:
    """Show the MPS daemons that the node is to have; a node without any shows nothing."""
    if not daemons:
        return
    ready = page.gauge(
        "divvy_mps_daemon_ready", "1 while a GPU's MPS daemon answers, 0 otherwise.", ["uuid"]
    )
    starts = page.gauge(
        "divvy_mps_daemon_starts",
        "How often this agent has started a GPU's MPS daemon; each start after the first ended all "
        "its clients.",
        ["uuid"],
    )
    memory = page.gauge(
        "divvy_mps_shared_memory_used_ratio",
        "How much is taken of the /dev/shm that a GPU's clients of MPS have in common, 0 to 1.",
        ["uuid"],
    )
    for daemon in daemons:
        memory.set(daemon.memory_used, daemon.uuid)
        ready.set(daemon.ready, daemon.uuid)
        starts.set(daemon.starts, daemon.uuid)


def _conformance(page: Page, success: float | None) -> None:
    """Give no time where no run has found the node sound yet: 0 would be one."""
    gauge = page.gauge(
        "divvy_conformance_last_success_seconds",
        "When divvy verify last found nothing wrong on this node, as Unix time.",
        [],
    )
    if success is not None:
        gauge.set(success)


def _states(page: Page, status: NodeStatus) -> None:
    gauge = page.gauge(
        "divvy_gpu_state", "1 for the GPU's current state, 0 otherwise.", ["gpu", "uuid", "state"]
    )
    for gpu in status.gpus:
        for state in State:
            gauge.set(state == gpu.state, str(gpu.index), gpu.uuid, state)
    node = page.gauge("divvy_node_state", "1 for the worst state on the node.", ["state"])
    for state in State:
        node.set(state == status.state, state)
    info = page.gauge(
        "divvy_node_profile",
        "Always 1; the labels name the node's profile and configuration.",
        ["pool", "profile", "source", "generation"],
    )
    info.set(1, status.pool or "", status.profile or "", status.source, status.generation)


class _StateSeconds(Collector):
    """Time per state as a counter; it starts at 0 with the agent."""

    def __init__(
        self, node: str, status: NodeStatus, seconds: Mapping[tuple[str, str], float]
    ) -> None:
        self._node = node
        self._indices = {gpu.uuid: str(gpu.index) for gpu in status.gpus}
        self._seconds = seconds

    def collect(self) -> Iterable[CounterMetricFamily]:
        family = CounterMetricFamily(
            "divvy_gpu_state_seconds",
            "Seconds that a GPU has spent in a state since the agent's start.",
            labels=["node", "gpu", "uuid", "state"],
        )
        for uuid, index in self._indices.items():
            for state in State:
                spent = self._seconds.get((uuid, state), 0.0)
                family.add_metric([self._node, index, uuid, state], spent)
        return [family]


async def _readings(
    registry: CollectorRegistry, agent: Agent, gpus: Sequence[Gpu], node: str
) -> dict[str, float]:
    """Show what the driver reads; return memory in use by GPU and MIG UUID, in MiB."""
    names = ["gpu", "UUID", "device", "modelName", "hostname"]
    gauges = {
        reading: Gauge(name, text, names, registry=registry)
        for reading, (name, text) in _DCGM.items()
    }
    memory: dict[str, float] = {}
    for gpu in gpus:
        if not gpu.present:
            continue
        labels = (str(gpu.index), gpu.uuid, f"nvidia{gpu.minor}", gpu.product, node)
        try:
            readings = await agent.driver.readings(gpu)
        except DriverProblem:
            continue
        for reading, value in readings.get(gpu.uuid, {}).items():
            gauges[reading].labels(*labels).set(value)
        for uuid, values in readings.items():
            if "memory_used_mib" in values:
                memory[uuid] = values["memory_used_mib"]
    return memory
