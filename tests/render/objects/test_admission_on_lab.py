"""What an agent's token may change of nodes, asked of a real API server (dry runs)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.render.documents import objects_of
from tests.running_lab import RunningLab

pytestmark = [pytest.mark.lab, pytest.mark.timeout(120)]
NODE, OTHER = "cpu-1", "not-the-agents"
STACK = Path(__file__).parents[3] / "stacks/Pulumi.lab.yaml"
KINDS = ("ServiceAccount", "Role", "Policy", "Binding")
OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "0" * 8}
SPEC = "a divvy agent may not change a node's spec"
LABELS = "a divvy agent may change its feature labels only"
LISTS = "a divvy agent may not change a node's finalizers or owners"

OWN = "a divvy agent may change its own node only"


@dataclass(frozen=True)
class Tokens:
    """Who asks: the administrator, and an agent's account with tokens of two kinds."""

    lab: RunningLab
    namespace: str
    folder: Path

    def of_pod(self) -> str:
        """Return the token that the agent's pod on the node has."""
        return self._created("--bound-object-kind=Pod", "--bound-object-name=agent")

    def unbound(self) -> str:
        """Return a token made by hand, which names no node."""
        return self._created()

    def refusal(self, token: str, change: dict[str, Any], node: str = NODE) -> str:
        """Return what the API server says to a patch of a node, "" if it is admitted."""
        config = json.loads(self.lab.kubectl("config", "view", "--raw", "--minify", "-o=json"))
        config["users"][0]["user"] = {"token": token}
        kubeconfig = self.folder / "kubeconfig"
        kubeconfig.write_text(json.dumps(config))
        agent = RunningLab(self.lab.description, kubeconfig)
        patch = ("patch", "node", node, "--type=merge", f"--patch={json.dumps(change)}")
        return agent.try_kubectl(*patch, "--dry-run=server").stderr

    def _created(self, *options: str) -> str:
        account = ("divvy-agent", f"-n={self.namespace}")
        return self.lab.kubectl("create", "token", *account, *options).strip()


@pytest.fixture(scope="module")
def tokens(lab: RunningLab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tokens]:
    """Give an agent's account with its rights and its fence, and a pod of it on the node."""
    value = yaml.safe_load(STACK.read_text())["config"]["divvy:cluster"]
    with lab.namespace() as namespace:
        objects = [
            obj
            for obj in objects_of({**value, "namespace": namespace}, "image")
            if obj["kind"].endswith(KINDS)
        ]
        objects.append({"apiVersion": "v1", "kind": "Node", "metadata": {"name": OTHER}})
        lab.apply(*objects)
        pod = lab.pod("agent", "sleep 1000", node=NODE, serviceAccountName="divvy-agent")
        pod["metadata"]["namespace"] = namespace
        lab.apply(pod)
        api_tokens = Tokens(lab, namespace, tmp_path_factory.mktemp("agent"))
        # The policy takes effect a moment after it was made.
        lab.until(
            lambda: (
                SPEC in api_tokens.refusal(api_tokens.of_pod(), {"spec": {"unschedulable": True}})
            )
        )
        yield api_tokens
        for obj in objects:
            if "namespace" not in obj["metadata"]:
                lab.kubectl("delete", obj["kind"], obj["metadata"]["name"])


@pytest.fixture(scope="module")
def patch(tokens: Tokens) -> Callable[[dict[str, Any]], str]:
    """Give a function that patches the node as its agent would."""
    token = tokens.of_pod()
    return lambda change: tokens.refusal(token, change)


def test_refuses_an_agent_another_node(tokens: Tokens) -> None:
    change = {"metadata": {"labels": {"nvidia.com/gpu.count": "4"}}}
    assert tokens.refusal(tokens.of_pod(), change) == ""
    assert OWN in tokens.refusal(tokens.of_pod(), change, node=OTHER)


def test_refuses_changes_by_a_token_without_a_node(tokens: Tokens) -> None:
    change = {"metadata": {"labels": {"nvidia.com/gpu.count": "4"}}}
    assert OWN in tokens.refusal(tokens.unbound(), change)


@pytest.mark.parametrize(
    "metadata",
    [
        {"labels": {"nvidia.com/gpu.count": "4", "nvidia.com/mig-1g.5gb.me.count": "1"}},
        {"labels": {"nvidia.com/cuda.driver-version.full": "550.163.01"}},
        {"annotations": {"divvy.gpu/status": "{}"}},
    ],
)
def test_admits_its_own_keys(
    patch: Callable[[dict[str, Any]], str], metadata: dict[str, Any]
) -> None:
    assert patch({"metadata": metadata}) == ""


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"metadata": {"labels": {"nvidia.com/gpu.deploy.driver": "false"}}}, LABELS),
        ({"metadata": {"labels": {"nvidia.com/mig.config": "all-1g.5gb"}}}, LABELS),
        ({"metadata": {"labels": {"nvidia.com/gpu.present": "true"}}}, LABELS),
        ({"metadata": {"labels": {"divvy.gpu/profile": "whole"}}}, LABELS),
        ({"metadata": {"labels": {"kubernetes.io/hostname": None}}}, LABELS),
        ({"metadata": {"annotations": {"divvy.gpu/other": "x"}}}, "its status annotation only"),
        ({"metadata": {"finalizers": ["example.com/stay"]}}, LISTS),
        ({"metadata": {"ownerReferences": [OWNER]}}, LISTS),
        ({"spec": {"unschedulable": True}}, SPEC),
        ({"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}, SPEC),
    ],
)
def test_refuses_everything_else(
    patch: Callable[[dict[str, Any]], str], change: dict[str, Any], message: str
) -> None:
    assert message in patch(change)
