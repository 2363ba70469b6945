"""What the root component registers, and that it registers nothing for a wrong cluster."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from typing import Any

from lab.cluster.paths import REPOSITORY
from tests.plugin_stack import without_claims
from tests.render.chart.charts import example


def registered(**changes: Any) -> list[str]:
    return run(json.dumps(changes))[0]


@cache
def run(changes: str, *given: str) -> tuple[list[str], list[str]]:
    """Return the names of what is registered, and of the providers that serve its objects."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.components.registered", changes, *given],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    names, providers = json.loads(done.stdout)
    return names, providers


def test_makes_objects_children_of_their_component() -> None:
    names = set(registered())
    assert {"lab-agent", "lab-runtime", "lab-observability"} <= names
    assert {"lab-agent-daemonset", "lab-agent-configmap", "lab-agent-service"} <= names
    assert {"lab-runtime-daemonset-notebooks", "lab-observability-configmap"} <= names


def test_groups_claims_in_a_component() -> None:
    plugin = without_claims(example("lab"))
    without = registered(profiles=plugin["profiles"], pools=plugin["pools"])
    assert not any("claims" in name for name in without)
    names = registered()
    components = {name for name in names if name.startswith("lab-claims")}
    assert {
        "lab-claims-deviceclass",
        "lab-claims-deviceclass-divvy-share",
        "lab-claims-deployment",
        "lab-claims-mutatingadmissionpolicy",
        "lab-claims-validatingadmissionpolicy",
        "lab-claims-validatingadmissionpolicy-divvy-claims",
    } <= components
    assert len(names) == len(set(names))
    # What was there keeps its name in the state.
    assert set(without) <= set(names)


def test_keeps_the_name_of_a_policy_when_a_profile_gets_shares() -> None:
    """With another name in the state, its deletion would follow its creation."""
    pools = {"all": {"profile": "p"}}
    name = "lab-claims-validatingadmissionpolicy-divvy-claims"
    for claims in ({}, {"shares": {}}):
        names = registered(profiles={"p": {"claims": claims}}, pools=pools)
        assert name in names
        assert ("lab-claims-validatingadmissionpolicy" in names) == bool(claims)


def test_omits_components_that_nothing_asks_for() -> None:
    names = registered(observability={"dashboard": False})
    assert "lab-agent" in names
    assert not any(name.startswith("lab-observability") for name in names)


def test_registers_nothing_for_a_wrong_cluster() -> None:
    assert registered(pools={}) == ["invalid"]


def test_deploys_to_the_cluster_of_a_given_provider() -> None:
    assert run("{}")[1] == ["lab-kubernetes"]
    ambient = json.dumps({"kubeconfig": None, "context": None})
    names, providers = run(ambient, "own")
    assert providers == ["own"]
    assert "lab-agent-daemonset" in names
    assert "lab-kubernetes" not in names


def test_refuses_a_cluster_that_is_named_twice() -> None:
    names, _ = run(json.dumps({"kubeconfig": "~/.kube/other"}), "own")
    assert "invalid" in names
    assert "lab-agent-daemonset" not in names


def test_remembers_the_cluster_that_a_stack_file_names() -> None:
    assert "lab-identity" in registered()
    ambient = json.dumps({"kubeconfig": None, "context": None})
    # What leads to a given provider's cluster is not known here.
    assert "lab-identity" not in run(ambient, "own")[0]
