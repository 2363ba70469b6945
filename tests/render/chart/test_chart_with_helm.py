"""The chart as helm reads it: the same objects as the Pulumi program's, values of every kind."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings

from divvy.model import InvalidCluster, parse_cluster, parse_document
from divvy.model.kubernetes_support import floor_problems
from divvy.plan import plan
from divvy.plan.predict.claimable import BY_CLAIMS as CLAIMED
from divvy.render.chart import chart_objects, values_of
from tests.render.chart.charts import (
    IMAGE,
    STACKS,
    WORKLOADS,
    by_name,
    cluster_values,
    documents,
    example,
    files_of,
    helm,
    is_test,
    stack_value,
    template,
    write_chart,
)
from tests.render.documents import objects_of
from tests.thoroughness import at_length

# No lab is started, but helm is built by the setup alone.
pytestmark = pytest.mark.lab

# Every example starts helm: a failure is told as it was found.
_RANDOM = settings(
    suppress_health_check=[HealthCheck.too_slow],
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)


def assert_same_objects(value: dict[str, Any], folder: Path) -> None:
    namespace = parse_cluster(value).namespace
    expected = by_name(chart_objects(parse_document(value), IMAGE, "0.0.0"))
    rendered = by_name(template(write_chart(folder, files_of(value)), namespace))
    assert rendered.keys() == expected.keys()
    for key, wanted in expected.items():
        assert rendered[key] == wanted, key


@pytest.mark.parametrize("path", STACKS, ids=lambda path: path.stem)
def test_renders_the_programs_objects_for_every_stack(path: Path, tmp_path: Path) -> None:
    assert_same_objects(stack_value(path), tmp_path / "divvy")
    lint = helm("lint", "--strict", tmp_path / "divvy")
    assert "0 chart(s) failed" in lint
    assert "WARNING" not in lint


@settings(_RANDOM, max_examples=at_length(5, 30))
@given(cluster_values())
def test_renders_the_programs_objects_for_random_stacks(value: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        assert_same_objects(value, Path(folder) / "divvy")


@pytest.mark.parametrize(
    "profile",
    [
        {"mps": {"replicas": 2, "resourceName": "together"}},
        [
            {"devices": [0], "timeSlicing": {"replicas": 2, "resourceName": "example.com/turn"}},
            {"mps": {"replicas": 2}},
        ],
    ],
)
def test_renders_the_mps_alert_and_the_hosts_processes(profile: Any, tmp_path: Path) -> None:
    value = {
        "profiles": {"p": profile},
        "pools": {"all": {"profile": "p"}},
        "namespace": "divvy-system",
        "plugin": {"image": {"registry": "r:5000"}},
        "observability": {"alerts": True},
    }
    assert_same_objects(value, tmp_path / "divvy")
    manifests = json.dumps(objects_of(values_of(parse_document(value)), IMAGE))
    assert "DivvyMpsDaemonDown" in manifests
    assert "DivvyControllerAbsent" not in manifests
    assert '"hostPID": true' in manifests


BY_CLAIMS: dict[str, Any] = {
    "names": {"gpu": "example.com/vgpu", "memory": "example.com/vgpu-memory"},
    "observability": {"alerts": True},
    "profiles": {
        "by-size": [
            {"devices": [0], "claims": {"shares": {"memory": {"oversubscribe": 1.3}}}},
            {"claims": {"mig": ["1g.5gb+me", "1g.5gb"]}},
        ],
        "apart": {"claims": {"shares": {}, "tenants": ["prod", "dev"]}},
    },
    "pools": {
        "a": {"profile": "by-size", "hardware": {"model": "a100-40gb", "gpus": 2, "count": 1}},
        "b": {
            "profile": "apart",
            "select": {"pool": "b"},
            "hardware": {"model": "T4", "gpus": 1, "count": 1},
        },
    },
}


@pytest.mark.parametrize(
    "value",
    [
        BY_CLAIMS,
        {**BY_CLAIMS, "pools": {"a": {"profile": "by-size"}}},
        {**BY_CLAIMS, "profiles": {**BY_CLAIMS["profiles"], "by-size": {"claims": {}}}},
        {
            **BY_CLAIMS,
            "profiles": {"by-size": {"claims": {}}},
            "pools": {"a": {"profile": "by-size"}},
        },
        {**BY_CLAIMS, "names": {"classes": "nvidia"}, "quota": {"shares": "required"}},
    ],
    ids=["all", "unknown-hardware", "tenants-alone", "whole", "of-nvidia"],
)
def test_renders_the_programs_objects_for_a_cluster_of_claims(
    value: dict[str, Any], tmp_path: Path
) -> None:
    assert_same_objects(value, tmp_path / "divvy")
    assert "0 chart(s) failed" in helm("lint", "--strict", tmp_path / "divvy")


TAINTED = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
# What an agent tolerates, and no controller: it would stay on a dead node.
EVERYWHERE = [
    {"operator": "Exists"},
    {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"},
    {"key": "node.cloudprovider.kubernetes.io/shutdown", "operator": "Exists"},
]
OF_CONTROLLERS = {"divvy-claim-templates": "claimTemplates"}


def controllers_of(chart: Path, *options: object) -> dict[str, dict[str, Any]]:
    """Return the pods of the controllers by the names of their values."""
    return {
        OF_CONTROLLERS[obj["metadata"]["name"]]: obj["spec"]["template"]["spec"]
        for obj in template(chart, "n", *options)
        if obj["kind"] == "Deployment"
    }


def test_places_the_controllers_as_the_program_does_and_as_the_values_say(tmp_path: Path) -> None:
    value = {
        "profiles": {"by-size": {"claims": {"shares": {}}}},
        "pools": {
            "a": {"profile": "by-size", "tolerations": [TAINTED, {"key": "team", "value": "x"}]},
            "b": {"profile": "by-size", "tolerations": [TAINTED], "select": {"pool": "b"}},
            "c": {"profile": "by-size", "tolerations": EVERYWHERE, "select": {"pool": "c"}},
        },
        "plugin": {"image": {"registry": "r:5000", "platforms": ["linux/arm64"]}},
    }
    assert_same_objects(value, tmp_path / "divvy")
    pools = [TAINTED, {"key": "team", "operator": "Equal", "value": "x"}]
    before = controllers_of(tmp_path / "divvy")
    assert before.keys() == set(OF_CONTROLLERS.values())
    for pod in before.values():
        assert pod["tolerations"] == pools
        assert "arm64" in str(pod["affinity"])
        assert "nodeSelector" not in pod
    own = tmp_path / "own.yaml"
    placed = {
        "nodeSelector": {"role": "infra"},
        "tolerations": [{"key": "infra", "operator": "Exists"}],
        "affinity": {"nodeAffinity": None, "podAffinity": {}},
    }
    for key in before:
        own.write_text(json.dumps({key: placed}))
        after = controllers_of(tmp_path / "divvy", "--values", own)
        pod = after.pop(key)
        assert pod["nodeSelector"] == {"role": "infra"}
        assert pod["tolerations"] == [*pools, {"key": "infra", "operator": "Exists"}]
        assert pod["affinity"] == {"podAffinity": {}}
        assert all(other == before[name] for name, other in after.items())
        own.write_text(json.dumps({key: {"affinity": None}}))
        assert "affinity" not in controllers_of(tmp_path / "divvy", "--values", own)[key]


def test_refuses_claims_on_kubernetes_that_allocates_a_gpu_twice(tmp_path: Path) -> None:
    chart = write_chart(tmp_path / "divvy", files_of(BY_CLAIMS))
    for version in ("v1.34.5", "v1.36.0", "v1.36.1+k3s1"):
        words = helm("template", "divvy", chart, f"--kube-version={version}", expect=1)
        assert f"Kubernetes is {version}, and profiles with `claims` need 1.36.2 or newer" in words
        assert floor_problems(parse_cluster(BY_CLAIMS), version)
    for version in ("v1.36.2", "v1.36.2-gke.1", "v1.37.0"):
        assert not floor_problems(parse_cluster(BY_CLAIMS), version)
        assert template(chart, "n", f"--kube-version={version}")
    plugin = write_chart(tmp_path / "plugin", files_of(example("cern")))
    assert template(plugin, "n", "--kube-version=1.34.0")


def resources_of_tests(pods: list[dict[str, Any]]) -> set[str]:
    """Return the GPU resources that the test pods ask for, one each."""
    resources = []
    for pod in pods:
        if is_test(pod):
            (container,) = pod["spec"]["containers"]
            limits = container["resources"]["limits"]
            resources += [(name, count) for name, count in limits.items() if name != "memory"]
    assert len(set(resources)) == len(resources)
    assert all(count == 1 for _, count in resources)
    return {name for name, _ in resources}


def planned_resources(value: dict[str, Any]) -> set[str]:
    """Return what the plan's nodes offer of GPUs.

    Other vendors' devices cannot add vectors, and what claims serve is no resource of a node.
    """
    cluster = parse_cluster(value)
    others = {device.resource for device in cluster.devices}
    totals = set(plan(cluster, "test").totals) - others
    return {name for name in totals if not name.endswith(CLAIMED)}


@pytest.mark.parametrize("path", STACKS, ids=lambda path: path.stem)
def test_asks_for_every_resource_once_in_helm_test(path: Path, tmp_path: Path) -> None:
    value = stack_value(path)
    chart = write_chart(tmp_path / "divvy", files_of(value, WORKLOADS))
    assert resources_of_tests(documents(chart, "n")) == planned_resources(value)
    only = documents(chart, "n", "--set=tests.resources={nvidia.com/gpu}")
    assert resources_of_tests(only) == {"nvidia.com/gpu"}


@pytest.mark.parametrize(
    ("mps", "resource"),
    [
        ({}, "nvidia.com/gpu.shared"),
        ({"renameByDefault": False}, "nvidia.com/gpu"),
        ({"resourceName": "together"}, "nvidia.com/together"),
        ({"resourceName": "example.com/together"}, "example.com/together"),
    ],
)
def test_asks_for_shares_by_mps_by_their_name_in_helm_test(
    mps: dict[str, Any], resource: str, tmp_path: Path
) -> None:
    value = {
        "profiles": {"p": {"mps": {"replicas": 4, **mps}}},
        "pools": {
            "a": {"profile": "p", "hardware": {"model": "T4", "gpus": 1, "count": 1}},
        },
    }
    chart = write_chart(tmp_path / "divvy", files_of(value, WORKLOADS))
    assert resources_of_tests(documents(chart, "n")) == planned_resources(value) == {resource}


@settings(_RANDOM, max_examples=at_length(5, 15))
@given(cluster_values())
def test_asks_for_every_resource_of_random_stacks_in_helm_test(value: dict[str, Any]) -> None:
    for pool in value["pools"].values():
        pool.setdefault("hardware", {"model": "A100-SXM4-40GB", "gpus": 4, "count": 3})
    try:
        parse_cluster(value)
    except InvalidCluster:
        assume(False)
    with tempfile.TemporaryDirectory() as folder:
        chart = write_chart(Path(folder) / "divvy", files_of(value, WORKLOADS))
        assert resources_of_tests(documents(chart, "n")) == planned_resources(value)


def test_renders_no_tests_without_an_image(tmp_path: Path) -> None:
    chart = write_chart(tmp_path / "divvy", files_of(example("lab")))
    assert not [document for document in documents(chart, "n") if is_test(document)]


@pytest.fixture(scope="module")
def lab_chart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_chart(tmp_path_factory.mktemp("lab") / "divvy", files_of(example("lab")))


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("profilez.x.mig=1", "additional properties 'profilez' not allowed"),
        ("pools.research.profil=whole", "additional properties 'profil' not allowed"),
        ("profiles.x.timeSlicing.replica=4", "additional properties 'replica' not allowed"),
        ("profiles.slice-4.timeSlicing.replicas=1", "minimum: got 1, want 2"),
        ("profiles.slice-4.timeSlicing.replicas=four", "got string, want integer"),
        ("change.policy=force", "value must be one of 'wait', 'evict', 'never'"),
        ("pools.Research.profile=whole", "'Research' does not match pattern"),
        ("image.digest=latest", "does not match pattern"),
        ("rbac.creat=false", "additional properties 'creat' not allowed"),
        ("pools.research.profile=splitt", 'pools.research.profile names profile "splitt"'),
        (
            "pools.research.overrides.n1=nine",
            'pools.research.overrides.n1 names profile "nine", which does not exist (known:',
        ),
        (
            "tests.image=registry.example/vector-add,pools.research.profile=splitt",
            'pools.research.profile names profile "splitt", which does not exist (known:',
        ),
        (
            "tests.image=registry.example/vector-add,profiles.split=null",
            'pools.research.profile names profile "split", which does not exist (known:',
        ),
        ("pools.research.select=null,pools.training.select=null", "pools research, training have"),
        ("image.repository=", "image.repository is missing"),
        ("image.digest=", "image.digest is missing"),
    ],
)
def test_refuses_wrong_values_by_name(lab_chart: Path, setting: str, message: str) -> None:
    words = helm("template", "divvy", lab_chart, f"--set={setting}", expect=1)
    assert message in words


def test_shows_the_plan_of_the_values_in_the_notes(lab_chart: Path) -> None:
    install = ("install", "x", lab_chart, "--dry-run=client", "--namespace=another")
    plan_line = "pool research: 1 node × 4 × A100-SXM4-40GB, profile split"
    assert plan_line in helm(*install)
    assert plan_line in helm(*install, "--set=agent.priorityClassName=mine")
    changed = helm(*install, "--set=pools.training.profile=slice-4")
    assert plan_line not in changed
    assert "pool training: profile slice-4" in changed


def test_takes_an_edited_profile_from_the_values(lab_chart: Path) -> None:
    """What a chart user writes is what the program would have made of the same stack file."""
    value = example("lab")
    value["profiles"]["nine"] = {"timeSlicing": {"replicas": 9}}
    value["pools"]["training"]["profile"] = "nine"
    value["change"] = {"policy": "evict"}
    rendered = by_name(
        template(
            lab_chart,
            parse_cluster(value).namespace,
            "--set=profiles.nine.timeSlicing.replicas=9,pools.training.profile=nine",
            "--set=change.policy=evict",
        )
    )
    assert rendered == by_name(chart_objects(parse_document(value), IMAGE, "0.0.0"))


def test_removes_values_that_a_second_file_sets_to_null(lab_chart: Path, tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text("profiles: {seven: {mig: {1g.5gb: null, 3g.20gb: 2}}, cern-mix: null}\n")
    rendered = by_name(template(lab_chart, "n", "--values", own))
    carried = json.loads(rendered[("ConfigMap", "divvy")]["data"]["cluster.json"])
    assert carried["cluster"]["profiles"]["seven"] == {"mig": {"3g.20gb": 2}}
    assert "cern-mix" not in carried["cluster"]["profiles"]


@pytest.mark.parametrize(
    ("switch", "gone"),
    [
        ("rbac.create=false", {"Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"}),
        (
            "admissionPolicy.create=false",
            {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"},
        ),
    ],
)
def test_leaves_rights_and_policy_to_others_when_told(
    lab_chart: Path, switch: str, gone: set[str]
) -> None:
    before = by_name(template(lab_chart, "n"))
    after = by_name(template(lab_chart, "n", f"--set={switch}"))
    # Without these claims by size would not work; they hold no install back.
    needed = {key for key in before if "Policy" in key[0] and "divvy-agent" not in key[1]}
    assert needed
    kept = {key: obj for key, obj in before.items() if key in needed or key[0] not in gone}
    assert after == kept


def test_passes_own_resources_and_priority_to_the_pods(lab_chart: Path) -> None:
    rendered = by_name(
        template(
            lab_chart,
            "n",
            "--set=agent.resources.limits.memory=1Gi,agent.priorityClassName=mine",
            "--set=nodeRuntime.priorityClassName=other",
        )
    )
    pod = rendered[("DaemonSet", "divvy-agent")]["spec"]["template"]["spec"]
    assert pod["containers"][0]["resources"]["limits"]["memory"] == "1Gi"
    assert pod["priorityClassName"] == "mine"
    runtime = rendered[("DaemonSet", "divvy-node-runtime-notebooks")]["spec"]["template"]["spec"]
    assert runtime["priorityClassName"] == "other"


def test_makes_privileged_only_what_needs_the_host(tmp_path: Path) -> None:
    value = example("cern")
    chart = write_chart(tmp_path / "divvy", files_of(value, WORKLOADS))
    for document in documents(chart, "n"):
        if document["kind"] not in ("DaemonSet", "Pod"):
            continue
        pod = (
            document["spec"]["template"]["spec"]
            if document["kind"] == "DaemonSet"
            else document["spec"]
        )
        assert not {"hostPID", "hostNetwork", "hostIPC"} & pod.keys()
        (container,) = pod["containers"]
        security = container["securityContext"]
        if is_test(document):
            assert pod["automountServiceAccountToken"] is False
            assert security == {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
            }
            continue
        assert security == {"privileged": True, "readOnlyRootFilesystem": True}
        assert "@sha256:" in container["image"]


def test_works_as_part_of_another_chart(tmp_path: Path) -> None:
    parent = write_chart(
        tmp_path / "parent", {"Chart.yaml": "apiVersion: v2\nname: parent\nversion: 1.0.0\n"}
    )
    write_chart(parent / "charts" / "divvy", files_of(example("lab")))
    rendered = template(parent, "n", "--set=global.team=x,divvy.pools.research.profile=seven")
    assert ("DaemonSet", "divvy-agent") in by_name(rendered)


@pytest.mark.parametrize(("enabled", "installed"), [("true", True), ("false", False)])
def test_is_installed_on_the_condition_of_another_chart(
    enabled: str, installed: bool, tmp_path: Path
) -> None:
    dependencies = "[{name: divvy, version: 0.1.0, condition: divvy.enabled, tags: [gpu]}]"
    metadata = "apiVersion: v2\nname: parent\nversion: 1.0.0\n"
    parent = write_chart(
        tmp_path / "parent",
        {
            "Chart.yaml": f"{metadata}dependencies: {dependencies}\n",
            "values.yaml": f"divvy: {{enabled: {enabled}}}\ntags: {{gpu: true}}\n",
        },
    )
    write_chart(parent / "charts" / "divvy", files_of(example("lab")))
    assert (("DaemonSet", "divvy-agent") in by_name(template(parent, "n"))) is installed


def test_puts_chart_labels_on_every_object_and_in_no_selector(lab_chart: Path) -> None:
    for obj in template(lab_chart, "n"):
        labels = obj["metadata"]["labels"]
        assert labels["helm.sh/chart"] == "divvy-0.1.0"
        assert labels["app.kubernetes.io/managed-by"] == "Helm"
        assert "helm.sh/chart" not in str(obj.get("spec", {}))
