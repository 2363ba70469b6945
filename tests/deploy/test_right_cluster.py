"""Nothing leads a deployment to another cluster, or to another stack's release."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import divvy.cli.deploy
from divvy.deploy.deployment import Stack
from divvy.deploy.errors import DeployError
from divvy.kube.kubeconfig import IN_POD, ClusterConfig
from divvy.model import parse_document
from tests.deploy.test_release_records import Cluster, deployment_of, record

DOCUMENT = {"profiles": {"whole": {}}, "pools": {"a": {"profile": "whole"}}}


@pytest.mark.parametrize(("context", "expected"), [("prod", "prod"), (IN_POD, None)])
def test_helm_runs_in_the_context_that_was_looked_at(
    monkeypatch: pytest.MonkeyPatch, context: str, expected: str | None
) -> None:
    """Another terminal may choose another current context while the question is open."""
    monkeypatch.setattr(divvy.cli.deploy, "find_helm", lambda *named: named)
    stack = Stack("s", Path("Pulumi.s.yaml"), parse_document(DOCUMENT))
    client: Any = SimpleNamespace()
    run = divvy.cli.deploy._Run(stack, ClusterConfig("https://x", context), client)
    helm: Any = run._helm
    assert helm == (None, expected)


def test_refuses_the_release_of_another_stack_by_its_name() -> None:
    annotations = {
        "divvy.gpu/stack": "prod",
        "divvy.gpu/source": "Pulumi.prod.yaml at b3f03ea",
        "divvy.gpu/deployed-by": "ana@ci",
    }
    cluster = Cluster()
    chart = {"metadata": {"name": "divvy", "annotations": annotations}}
    cluster.secrets = [record(1, "deployed", chart=chart)]
    with deployment_of(cluster, "prod") as own:
        own.refuse_another_stack("x")
    with deployment_of(cluster, "staging") as other, pytest.raises(DeployError) as refused:
        other.look()
    words = "is of stack prod, not of staging (deployed from Pulumi.prod.yaml at b3f03ea, by ana"
    assert words in str(refused.value)
    assert "if the stack was renamed, take it over with --take-over" in str(refused.value)
