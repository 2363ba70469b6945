"""What security.md says of rights on a node is what the pods have, each path and each word."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from divvy.agent.node_runtime import containerd, crio
from divvy.agent.node_runtime.__main__ import LEASE_SECONDS, RENEW_DEADLINE
from tests.render.documents import objects_of

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/security.md").read_text()
STACK = ROOT / "stacks/Pulumi.lab.yaml"
DEVICES = [{"resource": "rdma/hca", "paths": ["/dev/infiniband/uverbs*"]}]


@pytest.fixture(scope="module")
def objects() -> list[dict[str, Any]]:
    value = yaml.safe_load(STACK.read_text())["config"]["divvy:cluster"]
    value["profiles"]["by-size"] = {"claims": {"shares": {}}}
    return objects_of({**value, "devices": DEVICES}, "image")


def pod(objects: list[dict[str, Any]], name: str) -> dict[str, Any]:
    (daemon_set,) = (
        manifest
        for manifest in objects
        if (manifest["kind"], manifest["metadata"]["name"]) == ("DaemonSet", name)
    )
    spec: dict[str, Any] = daemon_set["spec"]["template"]["spec"]
    return spec


def rows(section: str) -> list[str]:
    """Return the first cells of a section's tables."""
    text = PAGE.split(f"## {section}\n")[1].split("\n## ")[0]
    return [line.split(" | ")[0] for line in text.splitlines() if line.startswith("| ")]


def test_lists_every_path_of_the_host_and_whether_it_is_writable(
    objects: list[dict[str, Any]],
) -> None:
    spec = pod(objects, "divvy-agent")
    mounts = {
        volume_mount["name"]: volume_mount for volume_mount in spec["containers"][0]["volumeMounts"]
    }
    cells = rows("Rights on a node")
    for volume in spec["volumes"]:
        path = volume["hostPath"]["path"]
        read_only = mounts[volume["name"]].get("readOnly", False)
        words = {"driver": "`driver.root`", "driver-dev": "its `dev`"}
        named = words.get(volume["name"], f"`{path}`")
        (cell,) = (candidate for candidate in cells if re.search(re.escape(named), candidate))
        # The first word after the name counts: one row names two paths.
        access = re.search(r"read-only|writable", cell[cell.index(named) :])
        assert access is not None, cell
        assert access[0] == ("read-only" if read_only else "writable"), path


def test_puts_no_pod_on_the_host_network_and_only_node_runtime_into_its_pids(
    objects: list[dict[str, Any]],
) -> None:
    for name in ("divvy-agent", "divvy-node-runtime-notebooks"):
        spec = pod(objects, name)
        assert not {"hostNetwork", "hostIPC"} & spec.keys()
        (container,) = spec["containers"]
        assert container["securityContext"] == {"privileged": True, "readOnlyRootFilesystem": True}
    assert all(
        "hostPath" not in volume
        for volume in pod(objects, "divvy-node-runtime-notebooks")["volumes"]
    )


@pytest.mark.parametrize(
    ("rule", "sees"),
    [
        ({}, False),
        ({"timeSlicing": {"replicas": 4}}, False),
        ({"mig": {"1g.5gb": 7}}, False),
        ({"mig": {"1g.5gb": 7}, "timeSlicing": {"replicas": 4}}, False),
        ({"claims": {}}, False),
        ({"claims": {"mig": ["1g.5gb"]}}, False),
        ({"timeSlicing": {"replicas": 4, "memoryLimit": {"limit": "auto"}}}, True),
        (
            {
                "mig": {"1g.5gb": 7},
                "timeSlicing": {"replicas": 4, "memoryLimit": {"limit": "auto"}},
            },
            True,
        ),
        ({"mps": {"replicas": 4}}, True),
        ({"claims": {"shares": {}}}, True),
    ],
    ids=str,
)
def test_shows_the_agent_the_hosts_processes_only_for_the_rules_of_the_pages(
    rule: dict[str, Any], sees: bool
) -> None:
    """What needs them is said with these words: the rights, a metric, a column, a panel."""
    spec = pod(
        objects_of({"profiles": {"one": rule}, "pools": {"all": {"profile": "one"}}}, "image"),
        "divvy-agent",
    )
    assert (spec.get("hostPID"), "container-logs" in str(spec)) == (sees or None, sees)


@pytest.mark.parametrize(
    "page",
    [
        "docs/security.md",
        "docs/agent.md",
        "docs/top.md",
        "divvy/render/objects/dashboard/divvy.json",
    ],
)
def test_names_the_rules_for_which_the_agent_sees_the_hosts_processes(page: str) -> None:
    lines = (ROOT / page).read_text().replace("`", "").splitlines()
    words = "only where a rule has memoryLimit, mps or claims with shares"
    about = (
        "hostPID and",
        "divvy_container_gpu_utilisation |",
        "| util 42 %",
        "Per cent of the GPU's time",
    )
    (line,) = (line for line in lines if any(name in line for name in about))
    assert words in line


def test_admits_privileged_pods_in_the_namespace(objects: list[dict[str, Any]]) -> None:
    (namespace,) = (manifest for manifest in objects if manifest["kind"] == "Namespace")
    key = "pod-security.kubernetes.io/enforce"
    assert namespace["metadata"]["labels"][key] == "privileged"
    assert f"`{key}: privileged`" in PAGE


def test_names_what_node_runtime_finds_and_writes() -> None:
    text = PAGE.split("## NodeRuntime: root on the host\n")[1].split("\n## ")[0]
    for named in (containerd.UNIT, containerd.SOCKET, containerd.DROP_IN, crio.DROP_IN):
        assert f"`{named}`" in text
    assert (LEASE_SECONDS, RENEW_DEADLINE) == (4 * 60, 60)
    assert "for four minutes" in text
    assert "could not renew for a minute" in text
