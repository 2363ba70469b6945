"""The roles of your-cluster.md suffice for what the page says, at a real API server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from docs.rights_table import FEATURES, STACK
from docs.user_roles import deployer, viewer
from tests.bare_cluster import VIEWER_TOKEN, BareCluster, bare_cluster
from tests.docs.page_commands import Shell, project_folder
from tests.render.documents import objects_of

pytestmark = pytest.mark.lab
IMAGE = f"registry.example/divvy/agent@sha256:{'0' * 64}"
NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "gpu-1", "labels": {"kind": "gpu"}},
    "status": {"allocatable": {"nvidia.com/gpu": "2"}, "capacity": {"nvidia.com/gpu": "2"}},
}
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "first"},
    "spec": {
        "containers": [
            {"name": "main", "image": "x", "resources": {"limits": {"nvidia.com/gpu": 9}}}
        ]
    },
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[BareCluster]:
    with bare_cluster() as control_plane:
        control_plane.kubectl("create", "namespace", "divvy-system")
        control_plane.kubectl("apply", "--filename=-", stdin=yaml.safe_dump(NODE))
        control_plane.kubectl("apply", "--filename=-", stdin=yaml.safe_dump(POD))
        yield control_plane


@pytest.fixture
def shell(cluster: BareCluster, tmp_path: Path) -> Shell:
    """Give a shell of a user with no rights yet, in a project whose cluster this is."""
    kubeconfig = tmp_path / "kubeconfig"
    document = yaml.safe_load(cluster.kubeconfig.read_text())
    document["users"][0]["user"] = {"token": VIEWER_TOKEN}
    kubeconfig.write_text(yaml.safe_dump(document))
    folder = project_folder(tmp_path)
    value: dict[str, Any] = {
        "profiles": {"whole": {}},
        "pools": {"all": {"select": {"kind": "gpu"}, "profile": "whole"}},
        "plugin": {"image": {"reference": IMAGE}},
    }
    stack = {"config": {"divvy:cluster": value}}
    (folder / "stacks/Pulumi.prod.yaml").write_text(yaml.safe_dump(stack))
    (folder / "pod.yaml").write_text(yaml.safe_dump(POD))
    return Shell(folder, tmp_path / "programs", kubeconfig)


@pytest.fixture
def bound(cluster: BareCluster) -> Iterator[Any]:
    """Bind roles to the user until the test ends."""
    manifests: list[str] = []

    def bind(roles: list[dict[str, Any]]) -> None:
        for role in roles:
            kind, metadata = role["kind"], role["metadata"]
            binding = {
                "apiVersion": role["apiVersion"],
                "kind": f"{kind}Binding",
                "metadata": metadata,
                "roleRef": {
                    "apiGroup": "rbac.authorization.k8s.io",
                    "kind": kind,
                    "name": metadata["name"],
                },
                "subjects": [
                    {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "viewer"}
                ],
            }
            manifests.append(yaml.safe_dump_all([role, binding]))
            cluster.kubectl("apply", "--filename=-", stdin=manifests[-1])

    yield bind
    for text in manifests:
        cluster.kubectl("delete", "--filename=-", "--ignore-not-found", stdin=text)


READING = {
    "divvy diff --live -s prod": (0, 2),
    "divvy fit pod.yaml -s prod --live": (2,),
    "divvy why first -s prod": (0,),
    "divvy top -s prod --once": (0,),
    "divvy status -s prod": (2,),
    "divvy init new --gpus 2 --model T4 --stack-only": (0,),
}


def test_reads_with_the_viewers_roles(shell: Shell, bound: Any) -> None:
    with pytest.raises(AssertionError, match="may not read"):
        shell.run("divvy fit pod.yaml -s prod --live", expect=(2,))
    bound(viewer())
    for command, expected in READING.items():
        output = shell.run(f"{command} 2>&1", expect=expected)
        assert "may not" not in output, command
        assert "forbidden" not in output, command


def test_deploys_and_destroys_with_the_deployers_role(
    cluster: BareCluster, shell: Shell, bound: Any
) -> None:
    bound(deployer())
    cluster.kubectl("delete", "namespace", "divvy-system")
    shell.run("divvy preview -s prod", expect=(2,))
    for command, expected in {
        "divvy up -s prod --no-wait": (0,),
        "divvy preview -s prod": (0,),
        "divvy destroy -s prod": (0,),
    }.items():
        output = shell.run(f"{command} 2>&1", expect=expected)
        assert "forbidden" not in output, command
        assert "may not" not in output, command
    assert cluster.api.try_get("namespace", "divvy-system") is None
    cluster.kubectl("create", "namespace", "divvy-system")


@pytest.mark.parametrize("feature", FEATURES)
def test_grants_what_divvys_accounts_get(shell: Shell, bound: Any, feature: str) -> None:
    bound(deployer())
    rendered = objects_of({**STACK, **FEATURES[feature]}, IMAGE)
    objects = [manifest for manifest in rendered if manifest["kind"] != "Namespace"]
    (shell.folder / "objects.yaml").write_text(yaml.safe_dump_all(objects))
    shell.run("kubectl apply --server-side -f objects.yaml")
    shell.run("kubectl delete -f objects.yaml")
