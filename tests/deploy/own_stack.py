"""A stack of its own on an API server without nodes, and what is there of it."""

from __future__ import annotations

import copy
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from divvy.deploy import records
from divvy.deploy.deployment import Deployment, Stack
from divvy.kube.client import Client
from divvy.kube.kubeconfig import cluster_config
from divvy.model import parse_document
from lab.cluster.paths import REPOSITORY
from tests.bare_cluster import BareCluster
from tests.divvy_command import divvy_command, divvy_environment
from tests.plugin_stack import without_claims

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
    """A project whose stack file names an image that exists."""

    folder: Path
    cluster: BareCluster
    value: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folder.mkdir()
        (self.folder / "Pulumi.yaml").write_text("name: own\nruntime: python\n")
        lab = yaml.safe_load((REPOSITORY / "stacks/Pulumi.lab.yaml").read_text())
        # No node here could run the template maker, for which `up` would wait.
        self.value = without_claims(copy.deepcopy(lab["config"]["divvy:cluster"]))
        self.value["plugin"] = {"image": {"reference": IMAGE}}
        self.value["kubeconfig"] = str(self.cluster.kubeconfig)

    def write(self) -> None:
        """Write the stack file."""
        config = {"config": {"divvy:cluster": self.value}}
        (self.folder / "Pulumi.own.yaml").write_text(yaml.safe_dump(config))

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start divvy on this stack, in a session of its own."""
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
        """Run divvy on this stack; return its output."""
        output, _ = (process := self.start(*arguments)).communicate(timeout=120)
        assert process.returncode == expect, output
        return output

    def up(self, *arguments: str, expect: int = 0) -> str:
        """Deploy; no agent runs here, so no node is waited for."""
        return self.run("up", "--yes", "--no-wait", *arguments, expect=expect)

    def is_current(self) -> bool:
        """Return whether `preview` would show nothing, looked at within this process."""
        self.write()
        stack = Stack("own", self.folder / "Pulumi.own.yaml", parse_document(self.value))
        with Client(cluster_config(str(self.cluster.kubeconfig), None)) as client:
            return Deployment(client, stack, print).look().is_current


def left(cluster: BareCluster) -> set[str]:
    """Return what a cluster has of Divvy's, by kind and name."""
    place = f"--namespace={NAMESPACE}"
    listing = cluster.get(",".join(KINDS), place, "--selector=app.kubernetes.io/name=divvy")
    names = {f"{obj['kind']} {obj['metadata']['name']}" for obj in listing["items"]}
    records = cluster.get("secrets", place, "--selector=owner=helm")["items"]
    return names | {f"Secret {obj['metadata']['name']}" for obj in records}


def objects_of(cluster: BareCluster) -> set[str]:
    """Return what a cluster has of Divvy's but Helm's records."""
    return {name for name in left(cluster) if not name.startswith("Secret ")}


def revision_of(
    record: Mapping[str, Any],
    revision: int,
    status: str,
    annotations: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return the Secret of another revision of a release, with other annotations if given."""
    release = records._decoded(record)
    release["info"]["status"] = status
    release["version"] = revision
    if annotations is not None:
        release["chart"]["metadata"]["annotations"] = annotations
    labels = {**record["metadata"]["labels"], "status": status, "version": str(revision)}
    name = f"sh.helm.release.v1.divvy.v{revision}"
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": record["type"],
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels},
        "data": {"release": records._encoded(release)},
    }
