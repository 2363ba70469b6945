"""What Kueue is given of a stack, as YAML; its own server reads it in tests/kueue."""

from __future__ import annotations

from typing import Any

import yaml
from typer.testing import CliRunner

from divvy.cli.main import app
from divvy.model import parse_cluster
from divvy.plan.quota.kueue_quota import kueue_quota
from divvy.render.exports.kueue import kueue_objects
from tests.plan.stacks import FOLDER, planned, pool

NAMES = parse_cluster({"profiles": {"p": {}}, "pools": {"p": {"profile": "p"}}}).names
PROFILES = {
    "sliced": {"timeSlicing": {"replicas": 4}},
    "sized": {"claims": {"shares": {}}},
    "cut": {"claims": {"mig": ["1g.5gb"]}},
}


def objects_of(**pools: Any) -> tuple[str, list[Any]]:
    text = kueue_objects(kueue_quota(planned(PROFILES, **pools), NAMES))
    return text, [document for document in yaml.safe_load_all(text) if document is not None]


def test_maps_shares_by_capacity_and_mig_by_counter() -> None:
    _, (configuration, *_) = objects_of(a=pool("sized"), b=pool("cut"))
    selector = {"cel": {"expression": 'device.driver == "divvy.gpu"'}}
    source = {"name": "memory", "driver": "divvy.gpu", "deviceSelector": selector}
    assert configuration == {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "featureGates": {"KueueDRAIntegrationConsumableCapacity": True},
        "resources": {
            "deviceClassMappings": [
                {"name": "nvidia.com/gpu", "deviceClassNames": ["divvy-gpu"]},
                {
                    "name": "divvy.gpu/share-memory",
                    "deviceClassNames": ["divvy-share"],
                    "sources": [{"capacity": source}],
                },
                {
                    "name": "divvy.gpu/mig-memory",
                    "deviceClassNames": ["divvy-mig", "divvy-mig-1g.5gb"],
                    "sources": [{"counter": source}],
                },
            ]
        },
    }


def test_gives_a_queue_no_more_flavors_than_it_takes() -> None:
    many = {f"p{number}": pool("sliced", model="T4") for number in range(130)}
    text, documents = objects_of(**many)
    queues = {
        document["metadata"]["name"]: document["spec"]["resourceGroups"]
        for document in documents
        if document["kind"] == "ClusterQueue"
    }
    sizes = {name: len(group["flavors"]) for name, (group,) in queues.items()}
    assert sizes == {"divvy": 64, "divvy-2": 64, "divvy-3": 2}
    listed = [flavor["name"] for (group,) in queues.values() for flavor in group["flavors"]]
    assert listed == list(many)
    assert text.count("# All that the pools have") == 1


def test_says_which_flavor_has_more_labels_than_kueue_takes() -> None:
    many = {f"key-{number}": "x" for number in range(9)}
    few = {**many, "key-0": "y"}
    del few["key-8"]
    text, _ = objects_of(a=pool("sliced", select=many), b=pool("sliced", select=few))
    (note,) = (line for line in text.splitlines() if "labels" in line and line.startswith("#"))
    assert note == "# Kueue takes 8 labels of these 9: keep those that tell the nodes apart."


def test_needs_the_alpha_gate_for_shares_alone() -> None:
    _, (configuration, *_) = objects_of(a=pool("cut"))
    assert "featureGates" not in configuration


def test_gives_each_pool_a_flavor_and_its_quota() -> None:
    text, documents = objects_of(
        sizes=pool("sized", model="L40S", gpus=2, count=3), notebooks=pool("sliced", model="T4")
    )
    flavors = {d["metadata"]["name"]: d["spec"] for d in documents if d["kind"] == "ResourceFlavor"}
    assert flavors == {
        "sizes": {"nodeLabels": {"pool": "sizes"}},
        "notebooks": {"nodeLabels": {"pool": "notebooks"}},
    }
    (group,) = documents[-1]["spec"]["resourceGroups"]
    resources = ["divvy.gpu/share-memory", "nvidia.com/gpu", "nvidia.com/gpu.shared"]
    assert group["coveredResources"] == resources
    quotas = {
        flavor["name"]: {r["name"]: r["nominalQuota"] for r in flavor["resources"]}
        for flavor in group["flavors"]
    }
    assert quotas == {
        "sizes": dict(zip(resources, (f"{6 * 46068}Mi", "6", "0"), strict=True)),
        "notebooks": dict(zip(resources, ("0", "0", "16"), strict=True)),
    }
    # A queue whose flavors list the resources in another order is refused.
    assert all([r["name"] for r in flavor["resources"]] == resources for flavor in group["flavors"])
    assert "# Kueue refuses pods that request nvidia.com/gpu.shared, also of notebooks" in text


def test_leaves_out_pools_of_unknown_hardware() -> None:
    text, documents = objects_of(a=pool("sliced"), b={"profile": "sliced"})
    assert [document["kind"] for document in documents] == ["ResourceFlavor", "ClusterQueue"]
    assert "# Pool b is left out: nothing is known of its hardware.\n" in text
    text, documents = objects_of(b={"profile": "sliced"})
    assert (text, documents) == (
        "# Pool b is left out: nothing is known of its hardware.\n",
        [],
    )


def test_writes_the_quota_of_a_stack() -> None:
    file = str(FOLDER / "Pulumi.lab.yaml")
    result = CliRunner().invoke(app, ["plan", "--file", file, "-o", "kueue"])
    assert result.exit_code == 0, result.output
    kinds = [document["kind"] for document in yaml.safe_load_all(result.output)]
    assert kinds == ["Configuration", *["ResourceFlavor"] * 5, "ClusterQueue"]
