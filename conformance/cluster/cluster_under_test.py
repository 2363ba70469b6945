"""The cluster under test: its plan, its live nodes, how to reach it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
import testinfra

from conformance.cluster.api import SECONDS, Api
from conformance.cluster.inspectors import Inspectors
from conformance.cluster.namespaces import clear_leftovers
from conformance.cluster.node_life import not_ready
from conformance.cluster.running_images import images_by_node
from conformance.cluster.slices import offered_devices
from conformance.image import build_as
from conformance.implementation import DIVVY, IMPLEMENTATIONS, Implementation
from conformance.not_made import not_made
from conformance.promise import (
    ClaimPromise,
    DevicePromise,
    NodePromise,
    claim_promises,
    device_promises,
    node_promises,
)
from conformance.sample import changed, parse_sample, sampled
from conformance.tested_versions import (
    node_versions,
    program_versions,
    server_version,
)
from divvy.distribution import git_revision
from divvy.image.build import BuildFailed
from divvy.kube import kind
from divvy.kube.client import Client
from divvy.kube.errors import ApiError, KubeconfigError, Unreachable
from divvy.kube.kind import DEVICE_CLASS, NODE, POD, RESOURCE_SLICE
from divvy.kube.kubeconfig import cluster_config
from divvy.model import (
    Cluster,
    ClusterDocument,
    InvalidCluster,
    NewerSchema,
    PluginImage,
    canonical_json,
    generation,
    parse_canonical,
)
from divvy.model.contract import CONFIG_KEY, CONFIG_MAP, Component, component_labels
from divvy.plan import (
    LiveNode,
    device_counts,
    live_node,
    node_status,
    offered_resources,
    plan,
)
from divvy.stack.errors import StackError
from divvy.stack.file import read_stack
from divvy.stack.sections import read_document

_NO_IMAGE = "no workload image: give --workload-image, or plugin.image.registry"


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
    all_nodes: Sequence[LiveNode]
    unready: Mapping[str, str]
    reported: Mapping[str, Mapping[str, Any]]
    pool: str | None
    image: str | None
    no_image: str
    kubeconfig: str | None
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

        Where the cluster's means the same in other words, it is the cluster's.
        """
        own = canonical_json(self.document.value)
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
        """Return what the agent says of a node, {} where it says nothing."""
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
        conditions = self.live(node)["status"].get("conditions") or []
        beats = (
            condition["lastHeartbeatTime"]
            for condition in conditions
            if condition["type"] == "Ready"
        )
        return str(next(beats, ""))

    def agent(self, node: str, component: Component = Component.AGENT) -> Any | None:
        """Return the agent's pod on a node, or that of another component; None without one.

        Where another implementation shares the GPUs, its pod is the agent's.
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

        Where another implementation shares the GPUs, an inspector stands for the agent.
        Raises CommandFailed with the command's last words.
        """
        if component is Component.AGENT and not self.implementation.is_divvy:
            if self.inspectors is None:
                not_made(self.no_image)
            namespace, name = self.inspectors.on(node)
        else:
            pod = self.agent(node, component)
            if pod is None:
                return None
            namespace, name = self.cluster.namespace, pod["metadata"]["name"]
        options = f"namespace={namespace}"
        if self.kubeconfig:
            options += f"&kubeconfig={self.kubeconfig}"
        if self.cluster.context:
            options += f"&context={self.cluster.context}"
        host = testinfra.get_host(f"kubectl://{name}?{options}")
        done = host.run(command, *arguments)
        if done.rc != 0:
            last_line = (done.stderr or done.stdout).strip().splitlines()[-1:] or [
                "it said nothing"
            ]
            raise CommandFailed(f"a command in {component}'s pod on {node} failed: {last_line[0]}")
        return str(done.stdout).rstrip("\r\n")

    @property
    def simulated(self) -> bool:
        """Return whether any node's GPUs are known to be simulated."""
        return any(self.is_simulated(node.name) for node in self.nodes)

    def is_simulated(self, node: str) -> bool | None:
        """Return whether a node's GPUs are simulated: by what a pod saw, else by the agent's word.

        None where neither says anything.
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
        # A Job's stack file has no kubeconfig and a workstation's has: the same configuration.
        file = {"generation": self.generation, "revision": self.revision}
        return {
            "stack": self.stack,
            **({} if self.implementation.is_divvy else {"target": self.implementation.name}),
            "image": self.image or "",
            "stackFile": {name: text for name, text in file.items() if text},
            **self.versions,
            "nodes": nodes,
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


def open_cluster(config: pytest.Config) -> ClusterUnderTest:
    """Read the stack, compute its plan, connect to its cluster."""
    file = config.getoption("--divvy-file")
    name = config.getoption("--divvy-stack")
    try:
        source = read_stack(None if file else name, Path(file) if file else None)
        document = read_document(source)
    except StackError as problem:
        raise pytest.UsageError(str(problem)) from None
    cluster = document.cluster
    implementation = _implementation(config.getoption("--divvy-target"))
    kubeconfig = str(Path(cluster.kubeconfig).expanduser()) if cluster.kubeconfig else None
    server = ""
    try:
        client = Client(cluster_config(kubeconfig, cluster.context), SECONDS)
        server = client.server
        api = Api(client)
        clear_leftovers(api)
        live = api.find(NODE)
        images = images_by_node(api.find_known(POD, namespace=cluster.namespace))
    except KubeconfigError as problem:
        raise pytest.UsageError(f"no usable kubeconfig: {problem}") from None
    except ApiError as problem:
        raise pytest.UsageError(f"the cluster refuses: {problem}") from None
    except Unreachable as problem:
        raise pytest.UsageError(f"the cluster cannot be reached: {server}: {problem}") from None
    nodes, unready = read_nodes(live)
    pool = config.getoption("--divvy-pool")
    if pool is not None and pool not in cluster.pools:
        known = ", ".join(cluster.pools)
        raise pytest.UsageError(f"the stack file has no pool {pool}; it has: {known}")
    pool_nodes = node_promises(cluster, plan(cluster, name), nodes, pool, unready)
    size = config.getoption("--divvy-sample")
    try:
        sample = None if size is None else parse_sample(size, config.getoption("--divvy-seed"))
    except ValueError as problem:
        raise pytest.UsageError(str(problem)) from None
    promises = sampled(pool_nodes, sample)
    reported = {
        node["metadata"]["name"]: node_status(node["metadata"].get("annotations") or {})
        for node in live
        # What an agent has left behind says nothing of another implementation.
        if implementation.is_divvy
    }
    image, no_image = _workload_image(config.getoption("--workload-image"), cluster.plugin.image)
    versions = {
        "divvy": program_versions(),
        "kubernetes": server_version(kubeconfig, cluster.context),
    }
    of_nodes = {
        node["metadata"]["name"]: {
            **node_versions(node),
            **_agent_of(images, reported, node["metadata"]["name"]),
        }
        for node in live
    }
    under_test = ClusterUnderTest(
        name,
        document,
        api,
        promises,
        nodes,
        unready,
        reported,
        pool,
        image,
        no_image,
        kubeconfig,
        git_revision(Path(source.source).resolve()) or "",
        versions,
        of_nodes,
        pool_nodes=pool_nodes,
        implementation=implementation,
    )
    if since := config.getoption("--divvy-changed-since"):
        earlier = json.loads(Path(since).read_text())
        under_test.limit_to(changed(promises, under_test.entry, earlier, under_test.generation))
    return under_test


def _implementation(name: str) -> Implementation:
    if name not in IMPLEMENTATIONS:
        known = ", ".join(IMPLEMENTATIONS)
        raise pytest.UsageError(f"--target={name} is not known; known are {known}")
    return IMPLEMENTATIONS[name]


def _owner(pod: Any) -> tuple[str, str]:
    """Return kind and name of what has made a pod."""
    owners = pod["metadata"].get("ownerReferences") or [{}]
    return str(owners[0].get("kind")), str(owners[0].get("name"))


def _as_agents_read(text: str) -> dict[str, Any]:
    """Return a configuration without what only the program uses: a chart's has none of it."""
    return parse_canonical(text).model_dump(exclude={"kubeconfig", "context", "plugin"})


def _agent_of(
    images: Mapping[str, Mapping[str, tuple[str, str]]],
    reported: Mapping[str, Mapping[str, Any]],
    node: str,
) -> dict[str, str]:
    """Return which image the agent of a node runs, and from which sources it was built."""
    named, digest = images.get(node, {}).get(Component.AGENT, ("", ""))
    agent = {"agentImage": named, "agentDigest": digest}
    agent["agentBuild"] = str(reported.get(node, {}).get("build") or "")
    return {name: text for name, text in agent.items() if text}


def _workload_image(given: str | None, agents: PluginImage | None) -> tuple[str | None, str]:
    """Return the image with the workloads, or None and why it is missing: other checks go on."""
    if given == "":
        raise pytest.UsageError("--workload-image is empty: leave it out, and an image is built")
    if given:
        return given, ""
    try:
        return build_as(agents), _NO_IMAGE
    except BuildFailed as problem:
        print(problem, file=sys.stderr)
        return None, str(problem)


def read_nodes(live: Iterable[Mapping[str, Any]]) -> tuple[list[LiveNode], dict[str, str]]:
    """Return the nodes, and of those on which no pod can run, why."""
    nodes, unready = [], {}
    for node in live:
        metadata, status = node["metadata"], node.get("status") or {}
        name = str(metadata["name"])
        nodes.append(
            live_node(
                name,
                metadata.get("labels") or {},
                metadata.get("annotations") or {},
                status.get("allocatable") or {},
            )
        )
        if why := not_ready(node):
            unready[name] = why
    return nodes, unready
