"""Divvy deployed on the running lab, as a user deploys it: the program, the real command."""

import contextlib
import copy
import json
import subprocess
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from divvy.model.api_names import STATUS_ANNOTATION
from lab.cluster import registry
from lab.cluster.paths import REPOSITORY
from tests.divvy_command import run_divvy
from tests.plugin_stack import without_claims
from tests.running_lab import RunningLab

NAMESPACE = "divvy-system"
NODES_OF_CLAIMS = ("gpu-by-size", "gpu-on-demand")
_REST_SECONDS, _FEW_REQUESTS = 2.0, 20


@dataclass
class Deployment:
    """A project of its own beside the repository's, over the same program and the lab's stack."""

    lab: RunningLab
    folder: Path
    cluster: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        (self.folder / "stacks").mkdir(parents=True, exist_ok=True)
        project = yaml.safe_load((REPOSITORY / "Pulumi.yaml").read_text())
        project["main"] = str(REPOSITORY)
        (self.folder / "Pulumi.yaml").write_text(yaml.safe_dump(project))
        whole = yaml.safe_load((REPOSITORY / "stacks/Pulumi.lab.yaml").read_text())
        self.cluster = copy.deepcopy(whole["config"]["divvy:cluster"])
        self.cluster["kubeconfig"] = str(self.lab.kubeconfig)
        image = {"registry": self.registry, "base": self.base_image, "insecure": True}
        self.cluster["plugin"]["image"] = image
        # Tests put faults into plain shares; for limited ones they ask (tests/limited_shares.py).
        self.set_profile("notebooks", "slice-4")
        # The same for claims: every suite would run on their nodes, too (`claims`).
        self._all_pools = self.cluster
        self.cluster = without_claims(self.cluster)

    @property
    def registry(self) -> str:
        """Return the address of the lab's registry."""
        return registry.address(self.lab.description)

    @property
    def base_image(self) -> str:
        """Return the image that the agent's is built on; tests' pods use it too."""
        return f"{self.registry}/divvy/base:bookworm"

    def divvy(self, *arguments: str, expect: int | Collection[int] = 0) -> str:
        """Run a divvy command on this stack."""
        stack = {"config": {"divvy:cluster": self.cluster}}
        (self.folder / "stacks/Pulumi.lab.yaml").write_text(yaml.safe_dump(stack, sort_keys=False))
        return run_divvy(*arguments, folder=self.folder, expect=expect).stdout

    def up(self) -> str:
        """Deploy; where a test has made nodes differ, `up` says so by its exit code."""
        return self.divvy("up", "--stack=lab", "--yes", expect=(0, 2))

    def add_claims(self) -> None:
        """Add the pools and profiles with claims of the lab's stack."""
        for part in ("profiles", "pools"):
            for name, value in self._all_pools[part].items():
                self.cluster[part].setdefault(name, copy.deepcopy(value))

    @contextlib.contextmanager
    def claims(self) -> Iterator[None]:
        """Add the pools and profiles with claims, which `up` then deploys.

        In the end the stack is as it was, whatever was changed meanwhile, and is deployed.
        """
        before = copy.deepcopy(self.cluster)
        self.add_claims()
        try:
            yield
        finally:
            self.cluster = before
            # Once the last profile with claims is gone, no agent gives a device back.
            self.until(self.is_unclaimed, 90)
            self.up()
            # The kubelet removes the slices of a driver that has been away for half a minute.
            self.until(lambda: not self.lab.get("resourceslices")["items"], 90)
            # The rights have gone, too, and whoever asks again and again asks all day.
            refused = self.lab.refused_requests()
            time.sleep(_REST_SECONDS)
            assert self.lab.refused_requests() - refused < _FEW_REQUESTS
            # Agents leave their status: later tests would see GPU nodes that no pool selects.
            nodes = [f"node/{name}" for name in NODES_OF_CLAIMS]
            self.lab.kubectl("annotate", *nodes, f"{STATUS_ANNOTATION}-")

    def set_profile(self, pool: str, profile: str) -> None:
        """Change one line of the stack file."""
        self.cluster["pools"][pool]["profile"] = profile

    def status(self, node: str) -> dict[str, Any]:
        """Return what the agent of a node says of it."""
        annotation = (
            self.lab.get("node", node)["metadata"].get("annotations", {}).get(STATUS_ANNOTATION)
        )
        return json.loads(annotation) if annotation else {}

    def offered(self, node: str) -> dict[str, int]:
        """Return the node's allocatable GPU resources that are not 0."""
        allocatable = self.lab.get("node", node)["status"]["allocatable"]
        return {
            name: int(count)
            for name, count in allocatable.items()
            if name.startswith("nvidia.com/") and count != "0"
        }

    def agent(self, node: str) -> dict[str, Any]:
        """Return the agent's pod on a node."""
        selector = "--selector=app.kubernetes.io/component=agent"
        for pod in self.lab.get("pods", f"--namespace={NAMESPACE}", selector)["items"]:
            if pod["spec"].get("nodeName") == node and not pod["metadata"].get("deletionTimestamp"):
                return dict(pod)
        raise AssertionError(f"no agent runs on {node}")

    def on_node(self, node: str, *command: str) -> str:
        """Run a command on a node, as its root."""
        entered = self.lab.machine(node).enter_command(command)
        return subprocess.run(entered, capture_output=True, text=True, check=True).stdout

    def held(self) -> list[str]:
        """Return the pods that ask for devices, wherever they are."""
        pods = self.lab.get("pods", "--all-namespaces")["items"]
        return [
            f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
            for pod in pods
            for container in pod["spec"]["containers"]
            if any("/" in name for name in container.get("resources", {}).get("limits", {}))
        ]

    def is_unclaimed(self) -> bool:
        """Tell whether no pod holds a claim."""
        return not self.lab.get("resourceclaims", "--all-namespaces")["items"]

    def tainted(self) -> list[str]:
        """Return the nodes that take no pods now."""
        nodes = self.lab.get("nodes")["items"]
        return [node["metadata"]["name"] for node in nodes if node["spec"].get("taints")]

    def until(self, met: Callable[[], bool], seconds: float = 30.0) -> float:
        """Wait for something; return the seconds it took."""
        began = time.monotonic()
        while not met():
            assert time.monotonic() - began < seconds, "it did not come true in time"
            time.sleep(0.1)
        return time.monotonic() - began


def is_deployed(lab: RunningLab) -> bool:
    """Tell whether Divvy, or a part that was left behind, is on the lab."""
    of_divvy = lab.get("clusterroles", "--selector=app.kubernetes.io/name=divvy")["items"]
    return bool(of_divvy) or lab.api.try_get("namespace", NAMESPACE) is not None
