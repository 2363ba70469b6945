"""Divvy's own stack where things go wrong around it: nothing is left behind, nothing is lost.

On API servers without nodes: what the agents do is other tests' matter.
"""

from __future__ import annotations

import contextlib
import copy
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from divvy.lab.paths import REPOSITORY
from tests.beside import repeating
from tests.divvy_command import divvy_command, divvy_environment
from tests.engine.bare_cluster import BareCluster
from tests.plugin_stack import without_claims

pytestmark = pytest.mark.lab
NAMESPACE = "divvy-system"
KINDS = (
    "clusterroles",
    "clusterrolebindings",
    "validatingadmissionpolicies",
    "validatingadmissionpolicybindings",
    "configmaps",
    "daemonsets",
    "deployments",
    "deviceclasses",
    "leases",
    "mutatingadmissionpolicies",
    "mutatingadmissionpolicybindings",
    "namespaces",
    "roles",
    "rolebindings",
    "serviceaccounts",
    "services",
)
IMAGE = f"registry.example/divvy/agent@sha256:{'0' * 64}"


@dataclass
class OwnStack:
    """A project over the repository's program, whose stack file names an image that exists."""

    folder: Path
    value: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folder.mkdir()
        project = yaml.safe_load((REPOSITORY / "Pulumi.yaml").read_text())
        project |= {"main": str(REPOSITORY), "stackConfigDir": "."}
        (self.folder / "Pulumi.yaml").write_text(yaml.safe_dump(project))
        whole = yaml.safe_load((REPOSITORY / "stacks/Pulumi.lab.yaml").read_text())
        # No node here could run the template maker, for which `up` would wait.
        self.value = without_claims(copy.deepcopy(whole["config"]["divvy:cluster"]))
        self.value["plugin"] = {"image": {"reference": IMAGE}}

    def write(self) -> None:
        """Write the stack file."""
        config = {"config": {"divvy:cluster": self.value}}
        (self.folder / "Pulumi.own.yaml").write_text(yaml.safe_dump(config))

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        self.write()
        return subprocess.Popen(
            divvy_command(*arguments, "--stack=own"),
            cwd=self.folder,
            env=divvy_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self, *arguments: str, expect: int = 0) -> str:
        output, _ = (process := self.start(*arguments)).communicate(timeout=120)
        assert process.returncode == expect, output
        return output


@pytest.fixture
def own(tmp_path: Path, cluster: BareCluster) -> Iterator[OwnStack]:
    stack = OwnStack(tmp_path / "own")
    stack.value["kubeconfig"] = str(cluster.kubeconfig)
    yield stack
    stack.run("destroy", "--yes")
    assert left(cluster) == set()


def left(cluster: BareCluster) -> set[str]:
    """Return what a cluster has of Divvy's, by kind and name."""
    place = f"--namespace={NAMESPACE}"
    listing = cluster.get(",".join(KINDS), place, "--selector=app.kubernetes.io/name=divvy")
    return {f"{obj['kind']} {obj['metadata']['name']}" for obj in listing["items"]}


def test_refuses_an_image_that_a_node_cannot_run(tmp_path: Path, cluster: BareCluster) -> None:
    own = OwnStack(tmp_path / "own")
    own.value["kubeconfig"] = str(cluster.kubeconfig)
    own.value["plugin"] = {"image": {"registry": "registry.example", "base": "registry.example/b"}}
    name, pool = next(iter(own.value["pools"].items()))
    labels = {**pool["select"], "kubernetes.io/arch": "arm64"}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "gh-0", "labels": labels}}
    cluster.kubectl("create", "--filename=-", stdin=json.dumps(node))
    try:
        status = json.dumps({"status": {"nodeInfo": {"architecture": "arm64"}}})
        cluster.kubectl("patch", "node", "gh-0", "--subresource=status", f"--patch={status}")
        for command in (("preview",), ("up", "--yes")):
            output = own.run(*command, expect=1)
            assert f"pools.{name}: nodes gh-0: need an image for linux/arm64" in output
            assert "add linux/arm64 to plugin.image.platforms" in output
        assert left(cluster) == set()
    finally:
        cluster.kubectl("delete", "node", "gh-0")


def test_refuses_another_cluster_under_the_stack(
    own: OwnStack, cluster: BareCluster, other_cluster: BareCluster
) -> None:
    own.run("up", "--yes")
    before = left(cluster)
    assert "DaemonSet divvy-agent" in before
    own.value["kubeconfig"] = str(other_cluster.kubeconfig)
    assert "leads to another cluster" in own.run("up", "--yes", expect=1)
    assert left(cluster) == before
    assert left(other_cluster) == set()
    own.value["kubeconfig"] = str(cluster.kubeconfig)
    assert "unchanged" in own.run("up", "--yes")


def test_repairs_a_hand_edit_of_its_configuration(own: OwnStack, cluster: BareCluster) -> None:
    own.run("up", "--yes")
    place = f"--namespace={NAMESPACE}"
    written = cluster.get("configmap", "divvy", place)["data"]
    (key,) = written
    patch = json.dumps({"data": {key: "{}"}})
    cluster.kubectl("patch", "configmap", "divvy", place, f"--patch={patch}",
                    "--field-manager=kubectl-edit")  # fmt: skip
    own.run("preview", expect=2)
    own.value["pools"]["research"]["profile"] = "whole"
    assert "over from kubectl" in own.run("up", "--yes")
    repaired = cluster.get("configmap", "divvy", place)["data"][key]
    assert repaired not in ("{}", written[key])
    own.run("preview")


def test_recreates_the_namespace_deleted_outside_while_a_profile_is_edited(
    own: OwnStack, cluster: BareCluster
) -> None:
    own.run("up", "--yes")
    before = left(cluster)
    cluster.kubectl("delete", "namespace", NAMESPACE)
    own.value["pools"]["research"]["profile"] = "whole"
    own.run("preview", expect=2)
    own.run("up", "--yes")
    assert left(cluster) == before
    own.run("preview")


@contextlib.contextmanager
def ready_deployments(cluster: BareCluster) -> Iterator[None]:
    """Report the template maker as ready, as a controller and a kubelet would."""
    place = ("deployment", "divvy-claim-templates", f"--namespace={NAMESPACE}")

    def say() -> None:
        generation = cluster.try_kubectl("get", *place, "--output=jsonpath={.metadata.generation}")
        replicas = dict.fromkeys(("replicas", "updatedReplicas", "readyReplicas"), 1)
        status = {"observedGeneration": int(generation.stdout or 0), **replicas}
        patch = json.dumps({"status": status})
        cluster.try_kubectl(
            *("patch", *place, "--subresource=status", "--type=merge", f"--patch={patch}")
        )

    with repeating(say, 0.2):
        yield


def hold_claim(cluster: BareCluster) -> None:
    """Let a pod hold a device, as scheduler and kubelet would."""
    request = {"name": "gpu", "exactly": {"deviceClassName": "divvy-gpu"}}
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "held", "namespace": "default"},
        "spec": {"devices": {"requests": [request]}},
    }
    cluster.kubectl("create", "--filename=-", stdin=json.dumps(claim))
    result = {"request": "gpu", "driver": "divvy.gpu", "pool": "n/divvy", "device": "gpu-0"}
    status = {
        "allocation": {"devices": {"results": [result]}},
        "reservedFor": [{"resource": "pods", "name": "train", "uid": "u"}],
    }
    cluster.kubectl(
        *("patch", "resourceclaim", "held", "--subresource=status", "--type=merge"),
        f"--patch={json.dumps({'status': status})}",
    )


def test_adds_changes_and_removes_claims_of_a_stack(own: OwnStack, cluster: BareCluster) -> None:
    own.run("up", "--yes")
    before = left(cluster)
    with ready_deployments(cluster):
        own.value["profiles"]["by-size"] = {"claims": {"shares": {}, "mig": ["1g.5gb"]}}
        own.run("up", "--yes")
        added = left(cluster) - before
        assert {
            "DeviceClass divvy-share",
            "DeviceClass divvy-mig-1g.5gb",
            "Deployment divvy-claim-templates",
            "MutatingAdmissionPolicy divvy-sized-limits",
            "ValidatingAdmissionPolicy divvy-gpu-requests",
        } <= added
        # What the API server adds to policies and classes is no difference.
        own.run("preview")
        assert "unchanged" in own.run("up", "--yes")
        own.value["profiles"]["by-size"]["claims"] = {"shares": {}, "tenants": ["prod"]}
        own.value["names"] = {"memory": "example.com/vgpu-memory"}
        own.run("up", "--yes")
        assert "DeviceClass divvy-share-prod" in left(cluster)
        assert "DeviceClass divvy-mig-1g.5gb" not in left(cluster)
        policy = cluster.get("mutatingadmissionpolicy", "divvy-sized-limits")
        assert "example.com/vgpu-memory" in json.dumps(policy["spec"])
        own.run("preview")
        hold_claim(cluster)
        del own.value["profiles"]["by-size"]
        held = "pods hold claims: default/train; without a profile with `claims` nothing returns"
        assert f"warning: {held}" in own.run("preview", expect=2)
        assert f"error: {held}" in own.run("up", "--yes", expect=1)
        assert f"error: {held}" in own.run("destroy", "--yes", expect=1)
        assert added - {"DeviceClass divvy-mig", "DeviceClass divvy-mig-1g.5gb"} <= left(cluster)
    cluster.kubectl("delete", "resourceclaim", "held")
    own.run("up", "--yes")
    assert left(cluster) == before


@pytest.mark.parametrize("gone", [1, 6, 14])
def test_completes_a_destroy_that_was_killed_halfway(
    own: OwnStack, cluster: BareCluster, gone: int
) -> None:
    own.run("up", "--yes")
    journal = own.folder / ".pulumi/divvy/divvy/own.journal"
    process = own.start("destroy", "--yes")
    deadline = time.monotonic() + 60
    while not journal.exists() or journal.read_bytes().count(b'"gone"') < gone:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.002)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    own.run("destroy", "--yes")
    assert left(cluster) == set()
    own.run("up", "--yes")  # and nothing is in the way of a new one


PROGRAM = """import json
from pathlib import Path
import pulumi
import pulumi_kubernetes as kubernetes
from divvy.components import GpuCluster

site = kubernetes.Provider("site", kubeconfig="{0}", enable_config_map_mutable=True)
value = json.loads(Path("cluster.json").read_text())
GpuCluster("site", {{"cluster": value}}, pulumi.ResourceOptions(providers=[site]))
"""


def test_deploys_another_program_through_its_own_provider(
    own: OwnStack, cluster: BareCluster, other_cluster: BareCluster
) -> None:
    (own.folder / "Pulumi.yaml").write_text("name: site\nruntime: python\n")
    (own.folder / "__main__.py").write_text(PROGRAM.format(other_cluster.kubeconfig))
    value = {key: entry for key, entry in own.value.items() if key != "kubeconfig"}
    (own.folder / "cluster.json").write_text(json.dumps(value))
    own.run("up", "--yes")
    assert "DaemonSet divvy-agent" in left(other_cluster)
    assert left(cluster) == set()
    own.run("destroy", "--yes")
    assert left(other_cluster) == set()


def test_reports_on_every_up_that_a_node_waits_until_it_is_ready(
    own: OwnStack, cluster: BareCluster
) -> None:
    """A pipeline that tries again must not go on, though nothing is left to change."""
    status = {"state": "Waiting", "reason": "held by team/notebook", "gpus": [{}]}
    pool = own.value["pools"]["training"]
    del pool["hardware"]  # what the node advertises is not compared, only what its agent says
    (label,) = pool["select"].items()
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}
    cluster.kubectl("create", "--filename=-", stdin=json.dumps(node))

    def say(state: str) -> None:
        text = json.dumps({**status, "state": state})
        cluster.kubectl("annotate", "node", "n1", "--overwrite", f"divvy.gpu/status={text}")

    try:
        cluster.kubectl("label", "node", "n1", "=".join(label))
        say("Waiting")
        assert "its agent says Waiting" in own.run("up", "--yes", expect=2)
        again = own.run("up", "--yes", expect=2)
        assert "unchanged" in again
        assert "its agent says Waiting" in again
        own.run("up", "--yes", "--no-wait")
        say("Ready")
        own.run("up", "--yes")
        # Nothing is looked at any more.
        say("Waiting")
        assert "Waiting" not in own.run("up", "--yes")
    finally:
        cluster.kubectl("delete", "node", "n1")
