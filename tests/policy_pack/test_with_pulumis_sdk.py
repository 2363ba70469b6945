"""The policy pack on Pulumi's SDK for policies, asked as an engine asks it.

It refuses what `divvy validate --policy` refuses, in the same words.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

import grpc
import pytest
import yaml
from google.protobuf import empty_pb2, struct_pb2
from pulumi.runtime.proto import analyzer_pb2, analyzer_pb2_grpc

from divvy.lab.paths import REPOSITORY
from divvy.lab.setup.python import ensure_policy_environment, policy_environment
from divvy.model import parse_document
from divvy.model.canonical import canonical_json
from divvy.model.stack_policy import RuleName
from divvy.render.objects import objects
from tests.divvy_command import run_divvy

IMAGE = f"registry.example/divvy/agent@sha256:{'0' * 64}"
OVER = {"limit": "auto", "action": "prevent", "oversubscribe": 2}
PROFILES: dict[str, Any] = {
    "turns": {"timeSlicing": {"replicas": 4}},
    "limited": {"timeSlicing": {"replicas": 4, "memoryLimit": {"limit": "auto"}}},
    "over": {"timeSlicing": {"replicas": 4, "memoryLimit": OVER}},
    "shares": {"claims": {"shares": {"max": 4}}},
    "tenants": {"claims": {"shares": {"max": 4}, "tenants": ["prod", "dev"]}},
    "whole": {},
}
BROKEN: list[tuple[dict[str, Any], str, dict[str, Any]]] = [
    ({"memory": "prevented"}, "turns", {}),
    ({"faults": "isolated"}, "limited", {}),
    ({"sharing": "tenants-apart"}, "shares", {}),
    ({"sharing": "none"}, "tenants", {}),
    ({"maxContainersPerDevice": 2}, "limited", {}),
    ({"oversubscription": False}, "over", {}),
    ({"preemption": False}, "tenants", {"preemption": True}),
    ({"evictions": "never"}, "whole", {"change": {"policy": "evict"}}),
]


def described(profile: str, **settings: Any) -> dict[str, Any]:
    """Return a cluster of one profile."""
    pools = {"all": {"select": {"pool": "all"}, "profile": profile}}
    return {"profiles": {profile: PROFILES[profile]}, "pools": pools, **settings}


def command(folder: Path, policy: object) -> tuple[list[str], dict[str, str]]:
    """Copy the pack with a policy; return how a language host starts it."""
    pack = folder / "pack"
    shutil.copytree(REPOSITORY / "policy_pack", pack, dirs_exist_ok=True)
    (pack / "policy.yaml").write_text(yaml.safe_dump(policy))
    ensure_policy_environment()
    python = policy_environment() / "bin/python"
    # The engine's address, and the pack's folder; it asks the engine nothing.
    arguments = [str(python), "-u", "-m", "pulumi.policy", "127.0.0.1:1", str(pack)]
    return arguments, {**os.environ, "PYTHONPATH": str(REPOSITORY)}


@contextlib.contextmanager
def running(folder: Path, policy: object) -> Iterator[analyzer_pb2_grpc.AnalyzerStub]:
    arguments, environment = command(folder, policy)
    with subprocess.Popen(
        arguments, env=environment, stdout=subprocess.PIPE, text=True, cwd=folder
    ) as process:
        assert process.stdout is not None
        port = process.stdout.readline().strip()
        try:
            with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
                yield analyzer_pb2_grpc.AnalyzerStub(channel)
        finally:
            process.kill()


def ask(
    pack: analyzer_pb2_grpc.AnalyzerStub, obj: Mapping[str, Any]
) -> list[analyzer_pb2.AnalyzeDiagnostic]:
    """Return what the pack reports of an object."""
    group, _, version = str(obj["apiVersion"]).rpartition("/")
    kind = f"kubernetes:{group or 'core'}/{version}:{obj['kind']}"
    name = obj["metadata"]["name"]
    properties = struct_pb2.Struct()
    properties.update(obj)
    urn = f"urn:pulumi:prod::gpus::{kind}::{name}"
    request = analyzer_pb2.AnalyzeRequest(type=kind, name=name, urn=urn, properties=properties)
    return list(pack.Analyze(request, timeout=30).diagnostics)


def reported(
    pack: analyzer_pb2_grpc.AnalyzerStub, cluster: Mapping[str, Any]
) -> list[analyzer_pb2.AnalyzeDiagnostic]:
    """Return what the pack reports of all objects of a cluster."""
    return [
        diagnostic
        for obj in objects(parse_document(dict(cluster)), IMAGE)
        for diagnostic in ask(pack, obj)
    ]


def refused_by_validate(folder: Path, cluster: Mapping[str, Any]) -> list[str]:
    """Return what `divvy validate` says of each violation, without its place in the file."""
    stack = {"config": {"divvy:cluster": cluster}}
    (folder / "Pulumi.prod.yaml").write_text(yaml.safe_dump(stack))
    files = ("--file=Pulumi.prod.yaml", "--policy=pack/policy.yaml")
    done = run_divvy("validate", *files, folder=folder, expect=1)
    return re.findall(r"line \d+: (.*\n.*)", done.stderr)


def words(text: str) -> str:
    return " ".join(text.split())


def test_has_a_case_for_every_rule() -> None:
    assert {*get_args(RuleName)} == {rule for policy, _, _ in BROKEN for rule in policy}


@pytest.mark.parametrize(
    ("policy", "profile", "settings"), BROKEN, ids=[str(policy) for policy, *_ in BROKEN]
)
def test_refuses_what_validate_refuses_in_the_same_words(
    policy: dict[str, Any], profile: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    cluster = described(profile, **settings)
    with running(tmp_path, policy) as pack:
        (diagnostic,) = reported(pack, cluster)
    assert diagnostic.policyName in policy
    assert diagnostic.enforcementLevel == analyzer_pb2.MANDATORY
    message = diagnostic.message.removeprefix(f"{diagnostic.description}\n")
    (expected,) = refused_by_validate(tmp_path, cluster)
    assert words(message) == words(expected)


def test_reports_nothing_of_a_cluster_that_a_policy_allows(tmp_path: Path) -> None:
    policy = yaml.safe_load((REPOSITORY / "policy_pack/policy.yaml").read_text())
    with running(tmp_path, policy) as pack:
        assert reported(pack, described("whole")) == []
        assert reported(pack, described("turns")) != []


def test_warns_if_a_rule_is_advisory(tmp_path: Path) -> None:
    policy = {"sharing": "none", "maxContainersPerDevice": 2, "advisory": ["sharing"]}
    with running(tmp_path, policy) as pack:
        levels = [
            (diagnostic.policyName, diagnostic.enforcementLevel)
            for diagnostic in reported(pack, described("limited"))
        ]
        shown = pack.GetAnalyzerInfo(empty_pb2.Empty(), timeout=30).policies
    expected = {
        "sharing": analyzer_pb2.ADVISORY,
        "maxContainersPerDevice": analyzer_pb2.MANDATORY,
    }
    assert levels == [*expected.items()]
    assert {info.name: info.enforcementLevel for info in shown} == expected


def test_refuses_a_configuration_that_it_cannot_read(tmp_path: Path) -> None:
    (config,) = (
        obj for obj in objects(parse_document(described("whole")), IMAGE)
        if (obj["kind"], obj["metadata"]["name"]) == ("ConfigMap", "divvy")
    )  # fmt: skip
    with running(tmp_path, {"memory": "hard"}) as pack:
        (diagnostic,) = ask(pack, {**config, "data": {"cluster.json": "{}"}})
        assert "has no schemaVersion" in diagnostic.message
        (diagnostic,) = ask(pack, {**config, "data": {}})
        assert "has no cluster.json" in diagnostic.message
        for odd in (None, 5, ["{}"]):
            (diagnostic,) = ask(pack, {**config, "data": {"cluster.json": odd}})
            assert "has no cluster.json" in diagnostic.message
        assert ask(pack, {**config, "metadata": {"name": "divvy"}, "data": {}}) == []


@pytest.mark.parametrize("kind", ["ConfigMap", "ConfigMapPatch"])
def test_knows_the_agents_configuration_by_its_name(kind: str, tmp_path: Path) -> None:
    data = {"cluster.json": canonical_json(described("turns"))}
    config = {"apiVersion": "v1", "kind": kind, "data": data}
    with running(tmp_path, {"memory": "hard"}) as pack:
        (diagnostic,) = ask(pack, {**config, "metadata": {"name": "divvy"}})
        assert "profiles.turns" in diagnostic.message
        assert ask(pack, {**config, "metadata": {"name": "another"}}) == []
        assert ask(pack, {**config, "metadata": {"name": "divvy"}, "data": None}) == []


@pytest.mark.parametrize(
    ("policy", "error"),
    [
        ({"sharing": "some"}, "sharing: is 'some'"),
        ({"advisory": ["memory"]}, "has memory in `advisory`, and no such rule"),
        ({"advisory": []}, "policy.yaml has no rule"),
    ],
)
def test_says_what_is_wrong_with_the_policy_file(
    policy: dict[str, Any], error: str, tmp_path: Path
) -> None:
    arguments, environment = command(tmp_path, policy)
    done = subprocess.run(
        arguments, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert error in done.stderr
    assert "Traceback" not in done.stderr
