"""The objects of a cluster: deterministic, complete, and no right more than needed."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml

from divvy.agent.node_runtime.prepare import MAX_CHANGE_SECONDS
from divvy.model import parse_canonical, parse_document
from divvy.model.api_names import CONFIG_KEY, CONFIG_MAP
from divvy.model.canonical import DEPLOYMENT_KEYS
from divvy.render.chart import chart_objects
from divvy.render.objects.cluster import objects
from tests.plugin_stack import without_claims
from tests.render.documents import objects_of

STACKS = sorted((Path(__file__).parents[3] / "stacks").glob("Pulumi.*.yaml"))
IMAGE = "registry.example/divvy/agent@sha256:" + "0" * 64


def value(path: Path) -> dict[str, Any]:
    stack: dict[str, Any] = yaml.safe_load(path.read_text())["config"]["divvy:cluster"]
    return stack


def lab(**changes: Any) -> dict[str, Any]:
    stack = value(next(path for path in STACKS if path.name == "Pulumi.lab.yaml"))
    return {**without_claims(stack), **changes}


def by_kind(kind: str, objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [obj for obj in objects if obj["kind"] == kind]


def name_of(obj: dict[str, Any]) -> str:
    return str(obj["metadata"]["name"])


def pod(objects: list[dict[str, Any]], name: str = "divvy-agent") -> dict[str, Any]:
    sets = {obj["metadata"]["name"]: obj for obj in by_kind("DaemonSet", objects)}
    spec: dict[str, Any] = sets[name]["spec"]["template"]["spec"]
    return spec


@pytest.mark.parametrize("path", STACKS, ids=lambda path: path.stem)
def test_renders_the_same_bytes_each_time(path: Path) -> None:
    first, second = objects_of(value(path), IMAGE), objects_of(value(path), IMAGE)
    assert json.dumps(first) == json.dumps(second)
    names = [
        (obj["kind"], obj["metadata"].get("namespace"), obj["metadata"]["name"]) for obj in first
    ]
    assert len(set(names)) == len(names)


def test_carries_the_configuration_verbatim() -> None:
    (config,) = (obj for obj in objects_of(lab(), IMAGE) if "cluster.json" in obj.get("data", {}))
    carried = json.loads(config["data"]["cluster.json"])
    # How this machine reaches the cluster, and what it builds, are of no interest to a node.
    sent = {key: value for key, value in lab().items() if key not in DEPLOYMENT_KEYS}
    sent["namespace"] = "divvy-system"
    assert carried == {"cluster": sent, "schemaVersion": 1}
    assert parse_canonical(config["data"]["cluster.json"]).namespace == "divvy-system"


def test_writes_no_empty_text_that_the_api_server_leaves_out() -> None:
    changed = lab()
    changed["pools"]["research"]["tolerations"] = [
        {"key": "", "operator": "Exists"},
        {"key": "dedicated", "value": "", "effect": "NoSchedule"},
    ]
    assert pod(objects_of(changed, IMAGE))["tolerations"] == [
        {"operator": "Exists"},
        {"key": "dedicated", "operator": "Equal", "effect": "NoSchedule"},
    ]


def test_keeps_profiles_out_of_pod_templates() -> None:
    before = by_kind("DaemonSet", objects_of(lab(), IMAGE))
    changed = lab()
    changed["pools"]["research"]["profile"] = "whole"
    assert by_kind("DaemonSet", objects_of(changed, IMAGE)) == before


def test_grants_no_role_everything() -> None:
    objects = objects_of(lab(), IMAGE)
    for role in [*by_kind("ClusterRole", objects), *by_kind("Role", objects)]:
        for rule in role["rules"]:
            assert "*" not in rule["verbs"] + rule["resources"] + rule["apiGroups"]


def test_gives_the_agent_a_read_only_root_and_its_own_pid_namespace() -> None:
    without = lab()
    without["profiles"] |= {"split": {}, "quarters": {}}
    spec = pod(objects_of(without, IMAGE))
    assert spec["containers"][0]["securityContext"]["readOnlyRootFilesystem"] is True
    assert "hostPID" not in spec
    assert "hostNetwork" not in spec
    assert {"container-logs", "host-dev"}.isdisjoint(volume["name"] for volume in spec["volumes"])


def test_does_not_restart_an_agent_that_answers_late() -> None:
    """With Kubernetes' 1 s, a node whose processors are all taken loses its agent for no fault."""
    (agent,) = pod(objects_of(lab(), IMAGE))["containers"]
    alive = agent["livenessProbe"]
    assert [agent["readinessProbe"]["timeoutSeconds"], alive["timeoutSeconds"]] == [5, 5]
    # It is restarted only after a minute without any answer.
    assert alive["periodSeconds"] * alive["failureThreshold"] >= 60


def test_gives_containers_ten_minutes_to_start() -> None:
    """With 20m of a busy processor, an agent imports its modules for longer than a minute."""
    stack = value(next(path for path in STACKS if path.name == "Pulumi.lab.yaml"))
    specs = [
        obj["spec"]["template"]["spec"]
        for kind in ("DaemonSet", "Deployment")
        for obj in by_kind(kind, objects_of(stack, IMAGE))
    ]
    containers = [c for spec in specs for c in spec["containers"] if "livenessProbe" in c]
    assert [container["name"] for container in containers] == ["agent", "claim-templates"]
    for container in containers:
        start = container["startupProbe"]
        assert start["periodSeconds"] * start["failureThreshold"] >= 600


def test_lets_the_agent_write_to_five_folders_of_the_host() -> None:
    (container,) = pod(objects_of(lab(), IMAGE))["containers"]
    mounts = {mount["name"]: mount for mount in container["volumeMounts"]}
    assert {name for name, mount in mounts.items() if not mount.get("readOnly")} == {
        *("driver-dev", "device-plugins", "cdi", "state", "shares"),
    }
    # `recursiveReadOnly` would exclude it, and with it a driver that is mounted later.
    assert mounts["driver"]["mountPropagation"] == "HostToContainer"


def test_shows_the_agent_the_hosts_devices_only_for_device_files() -> None:
    files = [{"resource": "rdma/hca", "paths": ["/dev/infiniband/uverbs*"], "count": 8}]
    (container,) = pod(objects_of(lab(devices=files), IMAGE))["containers"]
    mounted = {mount["name"]: mount for mount in container["volumeMounts"]}
    assert mounted["host-dev"]["readOnly"] is True


def test_renders_node_runtime_only_for_pools_that_ask_for_it() -> None:
    objects = objects_of(lab(), IMAGE)
    assert pod(objects, "divvy-node-runtime-notebooks")["hostPID"] is True
    without = lab()
    without["pools"]["notebooks"]["runtime"] = {"name": "containerd", "configure": False}
    names = [obj["metadata"]["name"] for obj in by_kind("DaemonSet", objects_of(without, IMAGE))]
    assert names == ["divvy-agent"]


def test_gives_node_runtime_time_to_end_a_change() -> None:
    spec = pod(objects_of(lab(), IMAGE), "divvy-node-runtime-notebooks")
    assert spec["terminationGracePeriodSeconds"] > MAX_CHANGE_SECONDS


def test_stops_probing_node_runtime_once_the_node_is_prepared() -> None:
    (container,) = pod(objects_of(lab(), IMAGE), "divvy-node-runtime-notebooks")["containers"]
    probes = {name for name in container if name.endswith("Probe")}
    assert probes == {"startupProbe"}
    startup = container["startupProbe"]
    # The nodes of a large pool restart their runtime one after the other.
    assert startup["periodSeconds"] * startup["failureThreshold"] >= 24 * 3600


def rights_of(objects: list[dict[str, Any]], account: str) -> set[tuple[str, str, str]]:
    """Return an account's rights as (resource, verb, named object or namespace or "everywhere")."""
    rights = set()
    for binding in [*by_kind("ClusterRoleBinding", objects), *by_kind("RoleBinding", objects)]:
        if account not in {subject["name"] for subject in binding["subjects"]}:
            continue
        reference = binding["roleRef"]
        (role,) = (
            obj for obj in by_kind(reference["kind"], objects) if name_of(obj) == reference["name"]
        )
        where = "everywhere" if reference["kind"] == "ClusterRole" else "in its namespace"
        for rule in role["rules"]:
            for resource, verb in product(rule["resources"], rule["verbs"]):
                named = rule.get("resourceNames")
                rights.add((resource, verb, where if named is None else f"only {named[0]}"))
    return rights


@pytest.mark.parametrize("policy", ["wait", "evict", "never"])
def test_grants_exactly_the_documented_rights(policy: str) -> None:
    objects = objects_of(lab(change={"policy": policy}), IMAGE)
    agent = {("nodes", verb, "everywhere") for verb in ("get", "list", "watch", "patch")}
    agent |= {("configmaps", verb, "only divvy") for verb in ("get", "list", "watch")}
    agent |= {("events", "create", "everywhere")}
    if policy == "evict":
        agent |= {("pods/eviction", "create", "everywhere")}
    assert rights_of(objects, "divvy-agent") == agent
    lease = {("leases", verb, "only divvy-node-runtime") for verb in ("get", "update")}
    assert rights_of(objects, "divvy-node-runtime") == lease
    subjects = [
        subject["name"]
        for kind in ("ClusterRoleBinding", "RoleBinding")
        for binding in by_kind(kind, objects)
        for subject in binding["subjects"]
    ]
    assert set(subjects) == {"divvy-agent", "divvy-node-runtime"}


def test_runs_an_agent_where_a_pool_selects_or_everywhere_by_default() -> None:
    terms = pod(objects_of(lab(), IMAGE))["affinity"]["nodeAffinity"]
    assert len(terms["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]) == 3
    open_pool = lab()
    del open_pool["pools"]["training"]["select"]
    assert "affinity" not in pod(objects_of(open_pool, IMAGE))


def test_rolls_out_to_a_quarter_of_the_nodes_and_runs_never_two_agents_on_one() -> None:
    (agent,) = [
        obj
        for obj in by_kind("DaemonSet", objects_of(lab(), IMAGE))
        if obj["metadata"]["name"] == "divvy-agent"
    ]
    rolling = {"maxSurge": 0, "maxUnavailable": "25%"}
    assert agent["spec"]["updateStrategy"] == {"type": "RollingUpdate", "rollingUpdate": rolling}


def test_a_chart_and_a_program_give_the_agents_the_same_bytes() -> None:
    """Whoever deploys after the other overwrites no field of the configuration."""
    value = {**lab(), "kubeconfig": "~/k"}
    for namespace in ({}, {"namespace": "gpus"}):
        document = parse_document({**value, **namespace})
        texts = {
            obj["data"][CONFIG_KEY]
            for rendered in (objects(document, IMAGE), chart_objects(document, IMAGE, "1"))
            for obj in by_kind("ConfigMap", rendered)
            if name_of(obj) == CONFIG_MAP
        }
        assert len(texts) == 1
