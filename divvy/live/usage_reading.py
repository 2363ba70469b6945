"""Reads who holds which GPU from what the API and the agents' metrics say."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from divvy.live.agent_readings import HeldDevice, agent_readings, device_words
from divvy.live.live_diff import offered_resources
from divvy.live.observed_cluster import AgentAnswer, ObservedCluster, ObservedNode, gpu_entries
from divvy.live.pods import LivePod
from divvy.live.usage import Holding, ResourceUse, Usage, UsedGpu, UsedNode, UsingPod
from divvy.model import Cluster, NodeFacts, hardware_model, select_profile
from divvy.model.api_names import Mode, State
from divvy.model.gpu_models import gpu_models, is_memory_of
from divvy.model.problems import printable
from divvy.model.resource_names import SHARED_SUFFIX, VENDOR
from divvy.plan.fit.live_claims import ClaimedGpu, LiveDevice
from divvy.plan.fit.live_claims import Holder as ClaimHolder
from divvy.plan.predict.claimable import BY_CLAIMS

_PRODUCT, _MEMORY = f"{VENDOR}/gpu.product", f"{VENDOR}/gpu.memory"
_MIG = (Mode.MIG, Mode.MIG_TIME_SLICING, Mode.MIG_TIME_SLICING_LIMIT)


def read_usage(cluster: Cluster, name: str, observed: ObservedCluster, now: datetime) -> Usage:
    """Return who holds which GPU of a cluster, by node and index."""
    pods_of: dict[str | None, list[LivePod]] = defaultdict(list)
    for pod in sorted(observed.pods, key=lambda pod: pod.pod.full_name):
        pods_of[pod.node].append(pod)
    gpus_of: dict[str, list[ClaimedGpu]] = defaultdict(list)
    for gpu in observed.gpus:
        gpus_of[gpu.node].append(gpu)
    nodes = []
    for node in sorted(observed.nodes, key=lambda node: node.name):
        view = _View(
            cluster,
            node,
            pods_of.get(node.name, ()),
            gpus_of.get(node.name, ()),
            observed.agents.get(node.name, AgentAnswer(problem=observed.no_answer)),
        )
        if view.has_gpus:
            nodes.append(view.used_node(has_all_pods=observed.has_all_pods))
    waiting = tuple(pod.pod for pod in pods_of.get(None, ()) if pod.pod.requests)
    read = now.isoformat(timespec="seconds").replace("+00:00", "Z")
    return Usage(printable(name), read, tuple(nodes), waiting, observed.notes)


class _View:
    """One node, and all that was read of it."""

    def __init__(
        self,
        cluster: Cluster,
        node: ObservedNode,
        pods: Sequence[LivePod],
        claimed: Sequence[ClaimedGpu],
        answer: AgentAnswer,
    ) -> None:
        self.node = node
        self.pods = {(pod.pod.namespace, pod.pod.name): pod for pod in pods}
        self.claimed = {gpu.uuid: gpu for gpu in claimed}
        self.answer = answer
        self.readings = agent_readings(answer.samples)
        self.reported = {gpu.uuid: gpu for gpu in _reported_gpus(node.status)}
        self.offered = offered_resources(cluster, node.allocatable)
        self.selection = select_profile(cluster, NodeFacts(node.name, node.labels))
        pool = cluster.pools.get(self.selection.pool or "")
        hardware = None if pool is None else pool.hardware
        self.hardware_mib = None if hardware is None else hardware_model(hardware).memory_mib
        files = {device.resource for device in cluster.devices}
        self.has_gpus = bool(
            self.reported
            or self.claimed
            or self.readings.memory
            or any(count for resource, count in self.offered.items() if resource not in files)
        )

    def used_node(self, *, has_all_pods: bool) -> UsedNode:
        uuids = dict.fromkeys((*self.reported, *self.claimed, *self.readings.memory))
        gpus = sorted((self._gpu(uuid) for uuid in uuids), key=lambda gpu: (gpu.index, gpu.uuid))
        status = self.node.status
        placed = {holding.pod.full_name for gpu in gpus for holding in gpu.holdings}
        requested: dict[str, int] = defaultdict(int)
        for pod in self.pods.values():
            for resource, count in pod.requests.items():
                requested[resource] += count
        return UsedNode(
            name=printable(self.node.name),
            pool=_text(status.get("pool")) or self.selection.pool,
            profile=_text(status.get("profile")) or self.selection.profile,
            product=_product(self.node.labels),
            state=printable(status.get("state") or ""),
            reason=printable(status.get("reason") or ""),
            simulated=status.get("simulated") is True,
            gpu_count=len(gpus),
            unknown=printable(self.answer.problem),
            gpus=tuple(gpus),
            resources=tuple(
                ResourceUse(resource, count, requested[resource] if has_all_pods else None)
                for resource, count in sorted(self.offered.items())
                if count or requested[resource]
            ),
            unplaced=tuple(
                seen_pod.pod
                for seen_pod in self.pods.values()
                if seen_pod.pod.full_name not in placed
            ),
        )

    def _gpu(self, uuid: str) -> UsedGpu:
        reported = self.reported.get(uuid) or UsedGpu(
            self.readings.indices.get(uuid, 0), printable(uuid)
        )
        claimed = self.claimed.get(uuid)
        product = self.readings.products.get(uuid, "")
        total = self._total(product)
        if claimed is not None:
            product = product or printable(claimed.product)
            total = max((device.memory_mib for device in claimed.devices), default=0) or total
            reported = reported if uuid in self.reported else replace(reported, index=claimed.index)
        holdings = list(self._claims(claimed)) if claimed is not None else []
        known = {holding.pod.full_name for holding in holdings}
        holdings += [
            device for device in self._devices(uuid, total) if device.pod.full_name not in known
        ]
        return replace(
            reported,
            product=product or _product(self.node.labels),
            total_mib=total,
            used_mib=self.readings.memory.get(uuid),
            utilisation=self.readings.utilisation.get(uuid),
            holdings=tuple(sorted(holdings, key=lambda holding: (holding.device, holding.holder))),
            # While a change waits nothing new is given, and the status has the layout to come.
            free=self._free(uuid, claimed) if reported.state in ("", State.READY) else {},
        )

    def _total(self, product: str) -> int | None:
        """Return a GPU's memory. The node's label is of its first GPU, or of a MIG device."""
        text = self.node.labels.get(_MEMORY, "")
        label = int(text) if text.isdecimal() and len(text) < 12 else None
        if label is not None and "-MIG-" in self.node.labels.get(_PRODUCT, ""):
            label = None
        known = [gpu_model for gpu_model in gpu_models().values() if product in gpu_model.products]
        if label is not None and (not known or any(is_memory_of(model, label) for model in known)):
            return label
        return known[0].memory_mib if known else self.hardware_mib

    def _pod(self, namespace: str, name: str) -> UsingPod:
        seen_pod = self.pods.get((namespace, name))
        return UsingPod(namespace, name) if seen_pod is None else seen_pod.pod

    def _devices(self, uuid: str, total: int | None) -> Iterator[Holding]:
        """Yield what the agent says is held on a GPU."""
        readings = self.readings
        for held in readings.held:
            if held.gpu != uuid or held.mode == Mode.CLAIMS:
                continue
            _, namespace, name, container = held.place
            limit = readings.limits.get(held.place)
            if held.mode == Mode.WHOLE:
                limit = total
            elif held.mode == Mode.MIG:
                limit = self._device_memory(held)
            yield Holding(
                device=device_words(held),
                resource=held.resource,
                pod=self._pod(namespace, name),
                container=container,
                used_mib=readings.used.get(held.place),
                limit_mib=limit,
                over_mib=readings.over.get(held.place, 0),
                utilisation=readings.by_container.get(held.place),
            )

    def _device_memory(self, held: HeldDevice) -> int | None:
        label = self.node.labels.get(f"{held.resource.removesuffix(SHARED_SUFFIX)}.memory", "")
        return int(label) if label.isdecimal() and len(label) < 12 else None

    def _claims(self, gpu: ClaimedGpu) -> Iterator[Holding]:
        """Yield what claims hold of a GPU: a claim that several pods use, once for each."""
        for device, holder in gpu.holders:
            for name in holder.pods or ("",):
                yield self._claim(gpu.uuid, device, holder, name)

    def _claim(self, uuid: str, device: LiveDevice, holder: ClaimHolder, name: str) -> Holding:
        seen_pod = self.pods.get((holder.namespace, name))
        containers = () if seen_pod is None else seen_pod.claims.get(holder.claim, ())
        places = [
            place
            for place in self.readings.used
            if place[0] == uuid and place[1:3] == (holder.namespace, name)
        ]
        used = [self.readings.used[place] for place in places]
        alone = (uuid, device.name, holder.namespace, name)
        taken = [
            percent
            for (gpu, *pod, container), percent in self.readings.by_container.items()
            if (gpu, *pod) == (uuid, holder.namespace, name)
            and (not containers or container in containers)
        ]
        return Holding(
            device="whole" if device.kind == "gpu" else device.profile or "share",
            resource="",
            pod=self._pod(printable(holder.namespace), printable(name)),
            container=", ".join(containers or dict.fromkeys(place[3] for place in places)),
            used_mib=sum(used) if used else self.readings.claimed.get(alone),
            limit_mib=holder.memory_mib or device.memory_mib or None,
            cores=holder.cores,
            claim=printable(holder.claim),
            utilisation=sum(taken) if taken else None,
        )

    def _free(self, uuid: str, claimed: ClaimedGpu | None) -> Mapping[str, int]:
        """Count the free devices of a GPU, by kind, as far as the agent reports them.

        Who claims what is in the API. What is left beside a claim depends on what comes next.
        """
        if claimed is not None:
            whole = any(device.whole and not device.taints for device in claimed.devices)
            return {f"whole{BY_CLAIMS}": 1} if whole and not claimed.holders else {}
        if self.answer.problem:
            return {}
        gpu = next(
            (gpu_entry for gpu_entry in gpu_entries(self.node.status) if gpu_entry["uuid"] == uuid),
            {},
        )
        resources = [str(resource) for resource in gpu.get("resources") or ()]
        layout = gpu.get("mig") or {}
        free: dict[str, int] = {}
        for resource in resources:
            if self._lacks_holders(resource):
                continue
            mode = self.readings.modes.get(resource, "")
            held = [
                device
                for device in self.readings.held
                if (device.gpu, device.resource) == (uuid, resource)
            ]
            for kind, count in self._devices_of(resource, mode, layout):
                free[kind] = count - sum(device.count for device in held)
        return {kind: count for kind, count in sorted(free.items()) if count > 0}

    def _lacks_holders(self, resource: str) -> bool:
        """Return whether pods have more of a resource than the agent names holders of.

        It names none while its kubelet starts, and a device of theirs would look free.
        """
        held = sum(device.count for device in self.readings.held if device.resource == resource)
        return held < sum(pod.requests.get(resource, 0) for pod in self.pods.values())

    def _devices_of(
        self, resource: str, mode: str, layout: Mapping[str, Any]
    ) -> Iterator[tuple[str, int]]:
        kind = device_words(HeldDevice(resource, mode, "", ("", "", "", ""), 1))
        if mode == Mode.WHOLE:
            yield kind, 1
        elif mode == Mode.MIG and isinstance(layout.get(kind), int):
            yield kind, layout[kind]
        elif mode in (Mode.TIME_SLICING, Mode.TIME_SLICING_LIMIT):
            # A resource means the same on all of its GPUs: as many replicas of each. One that
            # waits for a change has it in its status, and does not offer it yet.
            gpus = sum(
                resource in (gpu_entry.get("resources") or ())
                and gpu_entry.get("state") in (None, "", State.READY)
                for gpu_entry in gpu_entries(self.node.status)
            )
            yield kind, self.readings.devices.get(resource, 0) // max(gpus, 1)


def _reported_gpus(status: Mapping[str, Any]) -> Iterable[UsedGpu]:
    return [
        UsedGpu(
            index=gpu_entry["index"],
            uuid=printable(gpu_entry["uuid"]),
            state=printable(gpu_entry.get("state") or ""),
            reason=printable(gpu_entry.get("reason") or ""),
        )
        for gpu_entry in gpu_entries(status)
    ]


def _product(labels: Mapping[str, str]) -> str:
    return printable(labels.get(_PRODUCT, "").partition("-MIG-")[0].removesuffix("-SHARED"))


def _text(value: object) -> str | None:
    return printable(value) if isinstance(value, str) and value else None
