"""The cluster under test: its plan, its live nodes, how to reach it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pytest
import testinfra

from conformance.cluster.api import Api
from conformance.cluster.inspectors import Inspectors
from conformance.cluster.slices import offered_devices
from conformance.implementation import DIVVY, Implementation
from conformance.promise import (
    ClaimPromise,
    DevicePromise,
    NodePromise,
    claim_promises,
    device_promises,
)
from conformance.skips import not_made
from divvy.kube import kind
from divvy.kube.errors import ApiError
from divvy.kube.kind import DEVICE_CLASS, NODE, POD, RESOURCE_SLICE
from divvy.live.live_diff import LiveNode, device_counts, node_status, offered_resources
from divvy.model import (
    Cluster,
    ClusterDocument,
    InvalidCluster,
    NewerSchema,
    generation,
    parse_canonical,
)
from divvy.model.api_names import CONFIG_KEY, CONFIG_MAP, Component, component_labels
from divvy.model.conditions import condition_of
from divvy.render.objects.cluster import configuration_of

# What kubectl says of a command that it has run; of all else it could not.
_RAN = "command terminated with exit code"
_PAUSES = (1.0, 3.0)


class CommandFailed(Exception):
    """A command in a pod of Divvy's that could not be run, or failed: one sentence."""


@dataclass
class ClusterUnderTest:
    """Everything the checks share.

    ``all_nodes`` are the cluster's nodes when the run began; ``pool`` limits the checks to one.
    ``reported`` is what the agents said then; ``image`` has the workloads, ``no_image`` says why
    it is missing; ``drivers`` tells by node whether a pod has found the simulated driver;
    ``revision``, ``versions`` and ``node_versions`` are of what was tested. ``gone`` says of nodes
    how they have left or died since the run began. ``pool_nodes`` are the nodes of the pools, also
    those that a sample leaves out. ``implementation`` is what shares the GPUs; where it is not
    Divvy, ``inspectors`` look into nodes.
    """

    stack: str
    document: ClusterDocument
    api: Api
    nodes: list[NodePromise]
    all_nodes: Sequence[LiveNode] = ()
    unready: Mapping[str, str] = field(default_factory=dict)
    reported: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    pool: str | None = None
    image: str | None = None
    no_image: str = ""
    kubeconfig: str | None = None
    revision: str = ""
    versions: Mapping[str, Any] = field(default_factory=dict)
    node_versions: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    gone: dict[str, str] = field(default_factory=dict)
    pool_nodes: Sequence[NodePromise] = ()
    implementation: Implementation = DIVVY
    inspectors: Inspectors | None = None
    devices: list[DevicePromise] = field(init=False)
    drivers: dict[str, bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.limit_to(self.nodes)

    def limit_to(self, nodes: list[NodePromise]) -> None:
        """Check these nodes alone."""
        self.nodes = nodes
        self.devices = device_promises(nodes)

    @property
    def cluster(self) -> Cluster:
        """Return what the stack file says."""
        return self.document.cluster

    @cached_property
    def configuration(self) -> str:
        """Return the configuration that the agents should follow: the stack file's.

        If the cluster's means the same in other words, it is the cluster's.
        """
        own = configuration_of(self.document)
        try:
            live = self.api.get(kind.CONFIG_MAP, CONFIG_MAP, self.cluster.namespace)
            text = str((live.get("data") or {}).get(CONFIG_KEY, ""))
            same = _as_agents_read(text) == _as_agents_read(own)
        except (ApiError, InvalidCluster, NewerSchema):
            return own
        return text if same else own

    @property
    def generation(self) -> str:
        """Return the short name of the configuration that the agents should follow."""
        return generation(self.configuration)

    @property
    def ready_nodes(self) -> list[NodePromise]:
        """Return the nodes on which pods can run."""
        return [node for node in self.nodes if not node.unready and node.name not in self.gone]

    @property
    def unsampled_nodes(self) -> list[NodePromise]:
        """Return the nodes on which pods can run and that are not of the sample."""
        sampled = {node.name for node in self.nodes}
        return [node for node in self.pool_nodes if not node.unready and node.name not in sampled]

    @property
    def ready_devices(self) -> list[DevicePromise]:
        """Return the resources of the nodes on which pods can run."""
        ready = {node.name for node in self.ready_nodes}
        return [device for device in self.devices if device.node.name in ready]

    @property
    def ready_claims(self) -> list[ClaimPromise]:
        """Return the GPUs that pods claim, of the nodes on which pods can run."""
        return self._claims(self.ready_nodes)

    @property
    def claims(self) -> list[ClaimPromise]:
        """Return the GPUs that pods claim."""
        return self._claims(self.nodes)

    def claims_of(self, node: NodePromise) -> list[ClaimPromise]:
        """Return the GPUs of one node that pods claim."""
        return self._claims([node])

    def _claims(self, nodes: Sequence[NodePromise]) -> list[ClaimPromise]:
        all_by_claims = self.implementation.dra_driver is not None
        return claim_promises(nodes, all_by_claims=all_by_claims)

    def devices_of(self, node: NodePromise) -> list[DevicePromise]:
        """Return the resources of one node."""
        return [device for device in self.devices if device.node.name == node.name]

    def live(self, node: str) -> Mapping[str, Any]:
        """Read a node now."""
        live: Mapping[str, Any] = self.api.get(NODE, node)
        return live

    def status(self, node: str) -> Mapping[str, Any]:
        """Return what the agent says of a node, {} if it says nothing."""
        return node_status(self.live(node)["metadata"].get("annotations") or {})

    def advertised(self, node: str) -> dict[str, int]:
        """Return the node's allocatable resources that the stack file speaks about, without 0.

        Of a DRA driver: what its slices offer, by the resources of device classes.
        """
        driver = self.implementation.dra_driver
        if driver is not None:
            slices, classes = map(self.api.find_known, (RESOURCE_SLICE, DEVICE_CLASS))
            return dict(offered_devices(slices, classes, driver, node))
        counts = device_counts(self.live(node)["status"].get("allocatable") or {})
        offered = offered_resources(self.cluster, counts)
        return {name: count for name, count in sorted(offered.items()) if count}

    def heartbeat(self, node: str) -> str:
        """Return when the kubelet last told the node's status."""
        return str(condition_of(self.live(node), "Ready").get("lastHeartbeatTime", ""))

    def agent(self, node: str, component: Component = Component.AGENT) -> Any | None:
        """Return the agent's pod on a node, or that of another component; None without one.

        If another implementation shares the GPUs, its pod is the agent's.
        """
        on_node: Any = {"spec.nodeName": node}
        implementation = self.implementation
        if implementation.namespace is None or component is not Component.AGENT:
            labels: Any = component_labels(component)
            namespace = self.cluster.namespace
            pods = self.api.find(POD, namespace=namespace, labels=labels, fields=on_node)
        else:
            owner = ("DaemonSet", implementation.daemon_set)
            all_pods = self.api.find(POD, namespace=implementation.namespace, fields=on_node)
            pods = [pod for pod in all_pods if _owner(pod) == owner]
        staying = (pod for pod in pods if not pod["metadata"].get("deletionTimestamp"))
        return next(staying, None)

    def enter(
        self, node: str, command: str, *arguments: str, component: Component = Component.AGENT
    ) -> str | None:
        """Run a command in a component's pod on a node; None if the node has no such pod.

        If another implementation shares the GPUs, an inspector stands for the agent.
        Raises CommandFailed with the command's last words.
        """
        for pause in (*_PAUSES, None):
            place = self._place(node, component)
            if place is None:
                return None
            done = self._host(*place).run(command, *arguments)
            if done.rc == 0:
                return str(done.stdout).rstrip("\r\n")
            if pause is None or _RAN in done.stderr:
                break
            # Nothing was run: the pod was replaced, or a server was busy.
            time.sleep(pause)
        last_line = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["it said nothing"]
        raise CommandFailed(f"a command in {component}'s pod on {node} failed: {last_line[0]}")

    def _place(self, node: str, component: Component) -> tuple[str, str] | None:
        """Return namespace and name of the pod that is entered on a node, None without one."""
        if component is Component.AGENT and not self.implementation.is_divvy:
            if self.inspectors is None:
                not_made(self.no_image)
            return self.inspectors.on(node)
        pod = self.agent(node, component)
        return None if pod is None else (self.cluster.namespace, pod["metadata"]["name"])

    def _host(self, namespace: str, name: str) -> Any:
        options = f"namespace={namespace}"
        if self.kubeconfig:
            options += f"&kubeconfig={self.kubeconfig}"
        if self.cluster.context:
            options += f"&context={self.cluster.context}"
        return testinfra.get_host(f"kubectl://{name}?{options}")

    @property
    def simulated(self) -> bool:
        """Return whether any node's GPUs are known to be simulated."""
        return any(self.is_simulated(node.name) for node in self.nodes)

    def is_simulated(self, node: str) -> bool | None:
        """Return whether a node's GPUs are simulated: by what a pod saw, else by the agent's word.

        None if neither says anything.
        """
        value = self.reported.get(node, {}).get("simulated")
        simulated = value if isinstance(value, bool) else None
        seen = self.drivers.get(node)
        return simulated if seen is None else seen or bool(simulated)

    def describe(self) -> dict[str, Any]:
        """Return the identity of what was tested, for the report."""
        nodes = [
            {**self.entry(node), "simulated": self.is_simulated(node.name)} for node in self.nodes
        ]
        named = {node.name for node in self.nodes}
        others = [node.name for node in self.pool_nodes if node.name not in named]
        # A Job's stack file has no kubeconfig and a workstation's has: the same configuration.
        file = {"generation": self.generation, "revision": self.revision}
        return {
            "stack": self.stack,
            **({} if self.implementation.is_divvy else {"target": self.implementation.name}),
            "image": self.image or "",
            "stackFile": {name: text for name, text in file.items() if text},
            **self.versions,
            "nodes": nodes,
            **({"otherNodes": others} if others else {}),
        }

    def entry(self, node: NodePromise) -> dict[str, Any]:
        """Return what a report says of a node: what it is, and its software."""
        return {
            "name": node.name,
            "pool": node.pool,
            "profile": node.profile,
            "gpus": len(node.plan.gpus),
            "model": node.plan.gpus[0].model.name if node.plan.gpus else "unknown",
            "driver": self.reported.get(node.name, {}).get("driver", ""),
            **self.node_versions.get(node.name, {}),
        }


CLUSTER = pytest.StashKey[ClusterUnderTest]()


def _owner(pod: Any) -> tuple[str, str]:
    """Return kind and name of what has made a pod."""
    owners = pod["metadata"].get("ownerReferences") or [{}]
    return str(owners[0].get("kind")), str(owners[0].get("name"))


def _as_agents_read(text: str) -> dict[str, Any]:
    """Return a configuration without what only the program uses: a chart's has none of it."""
    return parse_canonical(text).model_dump(exclude={"kubeconfig", "context", "plugin"})
