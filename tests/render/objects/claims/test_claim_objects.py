"""The objects that profiles of claims add, and when."""

from __future__ import annotations

import json
from typing import Any

import pytest

from divvy.model import parse_cluster
from divvy.render.objects.claims.claimable import UNKNOWN_LARGEST_MIB, claimable
from tests.plugin_stack import without_claims
from tests.render.chart.charts import example
from tests.render.documents import objects_of
from tests.render.objects.test_objects import rights_of

IMAGE = "registry.example/divvy/agent@sha256:" + "0" * 64
SHARES: dict[str, Any] = {"shares": {}}


def cluster(*claims: Any, **more: Any) -> dict[str, Any]:
    profiles = {
        f"p{number}": {"claims": claims_setting} for number, claims_setting in enumerate(claims)
    }
    profiles["plugin"] = {}
    return {"profiles": profiles, "pools": {"all": {"profile": "plugin"}}, **more}


def kinds(value: dict[str, Any]) -> set[tuple[str, str]]:
    return {(obj["kind"], obj["metadata"]["name"]) for obj in objects_of(value, IMAGE)}


def classes(value: dict[str, Any]) -> dict[str, tuple[str | None, str]]:
    """Return the extended resource and the selector of each class."""
    classes_by_name = {}
    for obj in objects_of(value, IMAGE):
        if obj["kind"] == "DeviceClass":
            (selector,) = obj["spec"]["selectors"]
            resource = obj["spec"].get("extendedResourceName")
            classes_by_name[obj["metadata"]["name"]] = (resource, selector["cel"]["expression"])
    return classes_by_name


def test_renders_nothing_of_claims_without_them() -> None:
    text = json.dumps(objects_of(without_claims(example("lab")), IMAGE))
    for word in ("resource.k8s.io", "DeviceClass", "Mutating", "plugins_registry", 'templates"'):
        assert word not in text, word


def test_renders_the_gpu_class_and_what_claims_are_refused_for_whole_gpus() -> None:
    added = kinds(cluster({})) - kinds(cluster())
    assert added == {
        ("DeviceClass", "divvy-gpu"),
        ("ValidatingAdmissionPolicy", "divvy-claims"),
        ("ValidatingAdmissionPolicyBinding", "divvy-claims"),
        ("ValidatingAdmissionPolicy", "divvy-system-divvy-agent-slices"),
        ("ValidatingAdmissionPolicyBinding", "divvy-system-divvy-agent-slices"),
    }
    assert classes(cluster({}))["divvy-gpu"][0] == "nvidia.com/gpu"


def test_has_nvidias_classes_where_the_stack_file_says_so() -> None:
    own = classes(cluster({}, names={"classes": "nvidia"}))
    assert own.keys() - classes(cluster({})).keys() == {"gpu.nvidia.com", "mig.nvidia.com"}
    resource, expression = own["gpu.nvidia.com"]
    # Of two classes with a resource the newer one has it: nobody should have to know which.
    assert resource is None
    assert 'device.driver in ["divvy.gpu", "gpu.nvidia.com"]' in expression
    assert classes(cluster(names={"classes": "nvidia"})) == {}


def policy(value: dict[str, Any], name: str) -> dict[str, Any]:
    """Return what a validating policy has, {} if there is none."""
    kind = "ValidatingAdmissionPolicy"
    named = (obj for obj in objects_of(value, IMAGE) if obj["metadata"]["name"] == name)
    return next((obj["spec"] for obj in named if obj["kind"] == kind), {})


def test_asks_for_the_key_of_tolerations_where_nvidias_classes_have_divvys_devices() -> None:
    """A claim of another driver alone may tolerate what it likes."""
    for claims in ({}, SHARES):
        words = json.dumps(policy(cluster(claims), "divvy-claims"))
        assert "gpu.nvidia.com" not in words
        assert ("tenants" in words) == bool(claims)
        own = policy(cluster(claims, names={"classes": "nvidia"}), "divvy-claims")
        assert "['gpu.nvidia.com', 'mig.nvidia.com']" in json.dumps(own)
        assert "name the key" in json.dumps(own)


def test_requires_a_quota_for_shares_of_nvidias_class() -> None:
    required = cluster(SHARES, quota={"shares": "required"})
    assert policy(required, "divvy-share-quota-nvidias-claims") == {}
    own = policy({**required, "names": {"classes": "nvidia"}}, "divvy-share-quota-nvidias-claims")
    assert "gpu.nvidia.com" in own["variables"][0]["expression"]


def test_names_no_class_like_an_amount() -> None:
    """The scheduler would take ``nvidia.com/gpumem: 3000`` for 3,000 devices of such a class."""
    names = {"memory": "example.com/mib", "cores": "nvidia.com/gpu.percent"}
    for more in ({}, {"names": names}):
        value = cluster({"shares": {}, "mig": ["1g.5gb"], "tenants": ["prod"]}, **more)
        amounts = {name for key, name in parse_cluster(value).names.listed() if key != "gpu"}
        resources = [resource for resource, _ in classes(value).values() if resource is not None]
        assert amounts.isdisjoint(resources)
        assert len(resources) == len(set(resources))


def test_renders_the_classes_of_every_offer() -> None:
    rendered = classes(
        cluster(
            {**SHARES, "tenants": ["prod"]},
            {**SHARES, "tenants": ["dev"], "mig": ["1g.5gb", "1g.5gb+me"]},
            names={"gpu": "example.com/gpu"},
        )
    )
    assert {name: resource for name, (resource, _) in rendered.items()} == {
        "divvy-gpu": "example.com/gpu",
        "divvy-share": "nvidia.com/gpu.shared",
        "divvy-share-dev": None,
        "divvy-share-prod": None,
        "divvy-mig": None,
        "divvy-mig-1g.5gb": "nvidia.com/mig-1g.5gb",
        "divvy-mig-1g.5gb.me": "nvidia.com/mig-1g.5gb.me",
    }
    for _, selector in rendered.values():
        assert selector.startswith('device.driver == "divvy.gpu" && device.attributes["divvy.gpu"]')
    assert '.?profile.orValue("") == "1g.5gb+me"' in rendered["divvy-mig-1g.5gb.me"][1]


def test_orders_refusals_before_what_permits_requests() -> None:
    names = [(obj["kind"], obj["metadata"]["name"]) for obj in objects_of(cluster(SHARES), IMAGE)]
    order = [
        names.index(("DeviceClass", "divvy-share")),
        names.index(("ValidatingAdmissionPolicyBinding", "divvy-gpu-requests")),
        names.index(("Deployment", "divvy-claim-templates")),
        names.index(("MutatingAdmissionPolicy", "divvy-sized-limits")),
    ]
    assert order == sorted(order)


def test_gives_the_agent_a_drivers_sockets_and_rights_only_with_claims() -> None:
    def agent(value: dict[str, Any]) -> tuple[dict[str, Any], list[Any]]:
        objects = {(obj["kind"], obj["metadata"]["name"]): obj for obj in objects_of(value, IMAGE)}
        pod = objects["DaemonSet", "divvy-agent"]["spec"]["template"]["spec"]
        paths = {volume["name"]: volume["hostPath"] for volume in pod["volumes"]}
        mounts = {
            volume_mount["mountPath"] for volume_mount in pod["containers"][0]["volumeMounts"]
        }
        assert {path["path"] for name, path in paths.items() if "plugin" in name} <= mounts
        rules = objects["ClusterRole", "divvy-system-divvy-agent"]["rules"]
        return {name: path["path"] for name, path in paths.items()}, [
            (rule["resources"], rule["verbs"])
            for rule in rules
            if rule["apiGroups"] == ["resource.k8s.io"]
        ]

    paths, rules = agent(cluster({}))
    assert paths["claims-driver"] == "/var/lib/kubelet/plugins/divvy.gpu"
    assert paths["plugin-registry"] == "/var/lib/kubelet/plugins_registry"
    assert rules == [
        (["resourceclaims"], ["get", "list"]),
        (["resourceslices"], ["list", "watch", "create", "update", "delete"]),
    ]
    paths, rules = agent(cluster())
    assert "claims-driver" not in paths
    assert rules == []


def test_grants_the_template_maker_these_rights_and_no_more() -> None:
    objects = objects_of(cluster(SHARES), IMAGE)
    assert rights_of(objects, "divvy-claim-templates") == {
        ("events", "create", "everywhere"),
        *(("pods", verb, "everywhere") for verb in ("list", "watch")),
        *(("resourceslices", verb, "everywhere") for verb in ("list", "watch")),
        *(
            ("resourceclaimtemplates", verb, "everywhere")
            for verb in ("get", "list", "watch", "create", "delete")
        ),
    }


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ({"registry": "r.example"}, ["amd64"]),
        (
            {"registry": "r.example", "platforms": ["linux/arm64", "linux/amd64"]},
            ["amd64", "arm64"],
        ),
        # What it is for, the stack file does not say.
        ({"reference": IMAGE}, None),
    ],
)
def test_keeps_controllers_on_nodes_that_their_image_is_for(
    image: dict[str, Any], expected: list[str] | None
) -> None:
    value = cluster(SHARES, plugin={"image": image})
    pods = [
        obj["spec"]["template"]["spec"]
        for obj in objects_of(value, IMAGE)
        if obj["kind"] == "Deployment"
    ]
    assert len(pods) == 1
    for pod in pods:
        affinity = pod.get("affinity", {}).get("nodeAffinity", {})
        required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
        term = {"key": "kubernetes.io/arch", "operator": "In", "values": expected}
        wanted = {"nodeSelectorTerms": [{"matchExpressions": [term]}]} if expected else None
        assert required == wanted


def test_lets_controllers_run_on_nodes_with_the_taints_of_the_pools() -> None:
    tainted = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
    value = cluster(SHARES)
    value["pools"]["all"]["tolerations"] = [tainted]
    pods = [
        obj["spec"]["template"]["spec"]
        for obj in objects_of(value, IMAGE)
        if obj["kind"] in ("DaemonSet", "Deployment")
    ]
    assert [pod["tolerations"] for pod in pods] == [[tainted]] * 2


def test_lets_no_controller_stay_on_a_node_that_is_dead_or_cordoned() -> None:
    kept = {"key": "team", "operator": "Equal", "value": "x"}
    value = cluster(SHARES)
    value["pools"]["all"]["tolerations"] = [
        {"operator": "Exists"},
        {"operator": "Exists", "effect": "NoSchedule"},
        {"key": "node.kubernetes.io/unreachable", "operator": "Exists"},
        {"key": "node.cloudprovider.kubernetes.io/shutdown", "operator": "Exists"},
        kept,
    ]
    value["pools"]["other"] = {
        "profile": "plugin",
        "select": {"a": "b"},
        "tolerations": [{"operator": "Exists"}],
    }
    pods = [
        obj["spec"]["template"]["spec"]
        for obj in objects_of(value, IMAGE)
        if obj["kind"] == "Deployment"
    ]
    assert [pod["tolerations"] for pod in pods] == [[kept]]


def test_gives_the_template_maker_no_privilege() -> None:
    (maker,) = (obj for obj in objects_of(cluster(SHARES), IMAGE) if obj["kind"] == "Deployment")
    spec = maker["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert "volumes" not in spec
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert container["image"] == IMAGE
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


@pytest.mark.parametrize(
    ("pools", "largest", "known"),
    [
        ({"a": {"model": "A100-SXM4-40GB", "gpus": 1, "count": 1}}, 61440, True),
        (
            {
                "a": {"model": "T4", "gpus": 1, "count": 1},
                "b": {"model": "A100-SXM4-40GB", "gpus": 1, "count": 1},
            },
            61440,
            True,
        ),
        (
            {"a": {"model": "A100-SXM4-40GB", "gpus": 1, "count": 1}, "b": None},
            UNKNOWN_LARGEST_MIB,
            False,
        ),
    ],
)
def test_knows_the_largest_size_if_every_pool_names_its_hardware(
    pools: dict[str, Any], largest: int, known: bool
) -> None:
    value = cluster({"shares": {"memory": {"oversubscribe": 1.5}}}, SHARES)
    value["pools"] = {
        name: {
            "profile": "plugin",
            "select": {"pool": name},
            **({} if hardware is None else {"hardware": hardware}),
        }
        for name, hardware in pools.items()
    }
    claimable_gpus = claimable(parse_cluster(value))
    assert claimable_gpus.largest_mib == largest
    assert ("nvidia-a100-sxm4-40gb" in claimable_gpus.types) is known


def test_reserves_shares_for_tenants_when_all_are() -> None:
    both = claimable(parse_cluster(cluster(SHARES, {**SHARES, "tenants": ["b", "a"]})))
    assert (both.tenants, both.tenants_only) == (("a", "b"), False)
    alone = claimable(parse_cluster(cluster({**SHARES, "tenants": ["a"]}, {"mig": ["1g.5gb"]})))
    assert (alone.tenants, alone.tenants_only) == (("a",), True)
