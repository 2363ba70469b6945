"""The cluster under test: its plan, its live nodes, how to reach it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest
import testinfra
from lightkube import ApiError, Client
from lightkube.config.kubeconfig import KubeConfig
from lightkube.core.exceptions import ConfigError, LoadResourceError

from conformance.pods import Pod
from conformance.promise import DevicePromise, NodePromise, device_promises, node_promises
from conformance.workplaces import Node, clear_leftovers
from divvy.cli.stack_files import CannotRead, read_stack
from divvy.model import Cluster, InvalidCluster
from divvy.plan import plan

STATUS = "divvy.gpu/status"
AGENT, NODE_RUNTIME = "agent", "node-runtime"


@dataclass
class Site:
    """Everything the checks share."""

    stack: str
    cluster: Cluster
    client: Client
    nodes: list[NodePromise]
    image: str | None
    kubeconfig: str | None
    devices: list[DevicePromise] = field(init=False)

    def __post_init__(self) -> None:
        self.devices = device_promises(self.nodes)

    def live(self, node: str) -> Mapping[str, Any]:
        """Read a node now."""
        found: Mapping[str, Any] = self.client.get(Node, node)
        return found

    def status(self, node: str) -> dict[str, Any]:
        """Return what the agent says of a node, {} where it says nothing."""
        annotations = self.live(node)["metadata"].get("annotations") or {}
        found: dict[str, Any] = json.loads(annotations.get(STATUS, "{}"))
        return found

    def offered(self, node: str) -> dict[str, int]:
        """Return the node's allocatable GPU resources that are not 0."""
        allocatable = self.live(node)["status"]["allocatable"]
        return {
            name: int(count)
            for name, count in allocatable.items()
            if name.startswith("nvidia.com/") and count != "0"
        }

    def agent(self, node: str, component: str = AGENT) -> Any | None:
        """Return the agent's pod on a node, or that of another component; None without one."""
        labels: Any = {"app.kubernetes.io/component": component, "app.kubernetes.io/name": "divvy"}
        for pod in self.client.list(Pod, namespace=self.cluster.namespace, labels=labels):
            leaves = pod["metadata"].get("deletionTimestamp")
            if pod["spec"].get("nodeName") == node and not leaves:
                return pod
        return None

    def enter(self, node: str, command: str, *arguments: str, component: str = AGENT) -> str | None:
        """Run a command in the pod of a component on a node; None where there is none."""
        pod = self.agent(node, component)
        if pod is None:
            return None
        options = f"namespace={self.cluster.namespace}"
        if self.kubeconfig:
            options += f"&kubeconfig={self.kubeconfig}"
        if self.cluster.context:
            options += f"&context={self.cluster.context}"
        host = testinfra.get_host(f"kubectl://{pod['metadata']['name']}?{options}")
        return str(host.check_output(command, *arguments))

    @property
    def simulated(self) -> bool:
        """Tell whether any node's GPUs are simulated."""
        return any(self.status(node.name).get("simulated") for node in self.nodes)

    def describe(self) -> dict[str, Any]:
        """Return the identity of what was tested, for the report."""
        nodes = []
        for node in self.nodes:
            status = self.status(node.name)
            nodes.append(
                {
                    "name": node.name,
                    "pool": node.pool,
                    "profile": node.profile,
                    "gpus": len(node.plan.gpus),
                    "model": node.plan.gpus[0].model.name,
                    "driver": status.get("driver", ""),
                    "simulated": bool(status.get("simulated")),
                }
            )
        return {"stack": self.stack, "image": self.image or "", "nodes": nodes}


SITE = pytest.StashKey[Site]()


def open_site(config: pytest.Config) -> Site:
    """Read the stack, compute its plan, connect to its cluster."""
    file = config.getoption("--divvy-file")
    name = config.getoption("--divvy-stack")
    try:
        cluster = read_stack(None if file else name, Path(file) if file else None).cluster()
    except (CannotRead, InvalidCluster) as problem:
        raise pytest.UsageError(str(problem)) from None
    kubeconfig = str(Path(cluster.kubeconfig).expanduser()) if cluster.kubeconfig else None
    try:
        configs = KubeConfig.from_file(kubeconfig) if kubeconfig else KubeConfig.from_env()
        client = Client(configs.get(context_name=cluster.context))
        clear_leftovers(client)
        live = list(client.list(Node))
    except (ConfigError, LoadResourceError) as problem:
        raise pytest.UsageError(f"no usable kubeconfig: {problem}") from None
    except ApiError as problem:
        raise pytest.UsageError(f"the cluster refuses: {problem.status.message}") from None
    except httpx2.HTTPError as problem:
        raise pytest.UsageError(f"the cluster cannot be reached: {problem}") from None
    labels = {found["metadata"]["name"]: found["metadata"].get("labels") or {} for found in live}
    nodes = node_promises(cluster, plan(cluster, name), labels, config.getoption("--divvy-pool"))
    image = config.getoption("--workload-image")
    return Site(name, cluster, client, nodes, image, kubeconfig)
