"""A stack of the official CLI goes on here: its checkpoint, its objects, the same program."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from divvy.engine.kubernetes.takeover import from_creator, from_kubectl
from tests.divvy_command import run_divvy
from tests.engine.bare_cluster import BareCluster

OFFICIAL = Path(__file__).with_name("official")
NAMESPACE, MANAGER = "pulumi-try", "pulumi-kubernetes-b08674ec"

# The program of the observation, by its resources in the checkpoint.
PROGRAM = '''"""A namespace, a ConfigMap, a RuntimeClass, a DaemonSet."""
import json
from pathlib import Path

import pulumi
import pulumi_kubernetes as kubernetes

level = Path("level").read_text()
extra = json.loads(Path("extra.json").read_text())
ns = kubernetes.core.v1.Namespace("ns", metadata={"name": "pulumi-try"})
kubernetes.node.v1.RuntimeClass("rc", metadata={"name": "pulumi-try-rc"}, handler="runc")
kubernetes.core.v1.ConfigMap(
    "cfg",
    metadata={"name": "cfg", "namespace": ns.metadata["name"]},
    data={"level": level},
)
labels = {"app": "sleeper"}
ds = kubernetes.apps.v1.DaemonSet(
    "ds",
    metadata={"name": "sleeper", "namespace": ns.metadata["name"]},
    spec={
        "selector": {"matchLabels": labels},
        "template": {
            "metadata": {"labels": labels},
            "spec": {
                "automountServiceAccountToken": False,
                "terminationGracePeriodSeconds": 1,
                "containers": [
                    {
                        "name": "sleep",
                        "image": Path("image").read_text(),
                        "imagePullPolicy": "IfNotPresent",
                        "command": ["/bin/busybox", "sleep", "1000000"],
                        "env": [{"name": "LEVEL", "value": level}, *extra],
                    }
                ],
            },
        },
    },
)
pulumi.export("namespace", ns.metadata["name"])
'''


def entry(manager: str, operation: str, fields: dict[str, Any], **more: str) -> dict[str, Any]:
    return {"manager": manager, "operation": operation, "fieldsV1": fields, **more}


def test_passes_the_creators_fields_to_the_manager() -> None:
    status = entry("kubelet", "Update", {"f:status": {}}, subresource="status")
    created = entry("pulumi-kubernetes", "Update", {"f:data": {"f:a": {}, "f:b": {}}})
    only = from_creator([created, status], MANAGER)
    assert only == [entry(MANAGER, "Apply", {"f:data": {"f:a": {}, "f:b": {}}}), status]
    own = entry(MANAGER, "Apply", {"f:data": {"f:b": {}, "f:c": {}}})
    both = from_creator([created, own, status], MANAGER)
    united = {"f:data": {"f:a": {}, "f:b": {}, "f:c": {}}}
    assert both == [entry(MANAGER, "Apply", united), status]


def test_leaves_fields_of_others_to_them() -> None:
    foreign = [entry("argocd", "Update", {"f:data": {}}), entry(MANAGER, "Apply", {"f:spec": {}})]
    assert from_creator(foreign, MANAGER) is None
    assert from_kubectl(foreign, MANAGER) is None
    own_status = entry("pulumi-kubernetes", "Update", {"f:status": {}}, subresource="status")
    assert from_creator([own_status], MANAGER) is None


def test_takes_over_hand_edits_except_metadata_and_restarts() -> None:
    restart = entry("kubectl-rollout", "Update", {"f:spec": {"f:restarted": {}}})
    edit = entry("kubectl-edit", "Update", {"f:metadata": {"f:l": {}}, "f:spec": {"f:a": {}}})
    assert from_kubectl([edit, restart], MANAGER) == [
        entry(MANAGER, "Apply", {"f:spec": {"f:a": {}}}),
        restart,
        entry("kubectl-edit", "Update", {"f:metadata": {"f:l": {}}}),
    ]


class OfficialStack:
    """The stack as the official CLI left it, on a cluster without nodes."""

    def __init__(self, cluster: BareCluster, folder: Path) -> None:
        self.cluster = cluster
        self.folder = folder
        text = (OFFICIAL / "checkpoint-after-create.json").read_text()
        text = text.replace('"Never"', '"IfNotPresent"')
        self.state = folder / ".pulumi/stacks/pulumi-try/dev.json"
        self.state.parent.mkdir(parents=True)
        self.state.write_text(self._on_this_cluster(json.loads(text)))
        project = "name: pulumi-try\nruntime: {name: python}\nstackConfigDir: stacks\n"
        files = {
            "Pulumi.yaml": project,
            "__main__.py": PROGRAM,
            "stacks/Pulumi.dev.yaml": "config: {}\n",
            "image": "localhost/busybox:1",
        }
        (folder / "stacks").mkdir()
        for name, content in files.items():
            (folder / name).write_text(content)
        self.target("one")

    def _on_this_cluster(self, document: dict[str, Any]) -> str:
        """Create the objects as the official provider does; note what came back."""
        for resource in document["checkpoint"]["latest"]["resources"]:
            if not resource["type"].startswith("kubernetes:"):
                continue
            created = self.cluster.kubectl(
                "create", "--field-manager=pulumi-kubernetes", "--filename=-", "--output=json",
                "--show-managed-fields", stdin=json.dumps(resource["inputs"]),
            )  # fmt: skip
            kept = {key: value for key, value in resource["outputs"].items() if key[:2] == "__"}
            resource["outputs"] = {**kept, **json.loads(created)}
        return json.dumps(document)

    def target(self, level: str, *variables: dict[str, str]) -> None:
        """Change what the program wants."""
        (self.folder / "level").write_text(level)
        (self.folder / "extra.json").write_text(json.dumps(variables))

    def divvy(self, *arguments: str, expect: int = 0) -> str:
        place = {"KUBECONFIG": str(self.cluster.kubeconfig), "PULUMI_CONFIG_PASSPHRASE": "open"}
        done = run_divvy(*arguments, "-sdev", folder=self.folder, expect=expect, environment=place)
        return done.stdout

    def live(self, kind: str, name: str) -> dict[str, Any]:
        live_object: dict[str, Any] = self.cluster.get(kind, name, f"-n={NAMESPACE}")
        return live_object

    def variables(self) -> dict[str, str]:
        (container,) = self.live("daemonset", "sleeper")["spec"]["template"]["spec"]["containers"]
        return {variable["name"]: variable["value"] for variable in container["env"]}


@pytest.mark.lab
@pytest.mark.timeout(300)
def test_continues_a_stack_of_the_official_cli(cluster: BareCluster, tmp_path: Path) -> None:
    try:
        stack = OfficialStack(cluster, tmp_path)
        uid = stack.live("daemonset", "sleeper")["metadata"]["uid"]
        stack.divvy("up", "--yes")
        assert stack.live("daemonset", "sleeper")["metadata"]["uid"] == uid

        more = {"name": "MORE", "value": "yes"}
        stack.target("two", more)
        assert "cfg" in stack.divvy("preview", expect=2)
        stack.divvy("up", "--yes")
        assert stack.live("configmap", "cfg")["data"] == {"level": "two"}
        assert stack.variables() == {"LEVEL": "two", "MORE": "yes"}

        stack.target("two")
        stack.divvy("up", "--yes")
        assert stack.variables() == {"LEVEL": "two"}
        assert stack.live("daemonset", "sleeper")["metadata"]["uid"] == uid

        document = json.loads(stack.state.read_text())
        urns = [
            resource["urn"].rsplit("::", 1)[1]
            for resource in document["checkpoint"]["latest"]["resources"]
        ]
        assert {"ns", "rc", "cfg", "ds"} <= set(urns)
        stack.divvy("destroy", "--yes")
        gone = cluster.try_kubectl("get", "namespace", NAMESPACE)
        assert "NotFound" in gone.stderr
        assert "NotFound" in cluster.try_kubectl("get", "runtimeclass", "pulumi-try-rc").stderr
    finally:
        cluster.try_kubectl("delete", "namespace", NAMESPACE, "--wait=false")
        cluster.try_kubectl("delete", "runtimeclass", "pulumi-try-rc")
