"""Divvy's program on Pulumi's own engine, alone and in turn with the embedded one."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engine.bare_cluster import BareCluster
from tests.engine.official_engine import OfficialEngine
from tests.engine.programs import Program
from tests.engine.test_own_stack import KINDS, NAMESPACE, OwnStack, left
from tests.engine.test_random_programs import compare, random_resources

pytestmark = pytest.mark.lab

# What an API server, a controller or an engine says of an object, beside what the program wants.
_OF_SERVER = ("creationTimestamp", "generation", "managedFields", "resourceVersion", "uid")


@pytest.fixture(scope="module")
def official(tmp_path_factory: pytest.TempPathFactory) -> OfficialEngine:
    return OfficialEngine(tmp_path_factory.mktemp("pulumi"))


@pytest.fixture
def own(tmp_path: Path, cluster: BareCluster) -> Iterator[OwnStack]:
    stack = OwnStack(tmp_path / "own")
    stack.value["kubeconfig"] = str(cluster.kubeconfig)
    yield stack
    assert left(cluster) == set()


def objects_of(cluster: BareCluster) -> dict[str, Any]:
    """Return what a cluster has of Divvy's, without what others say of it."""
    place = f"--namespace={NAMESPACE}"
    listing = cluster.get(",".join(KINDS), place, "--selector=app.kubernetes.io/name=divvy")
    objects = {}
    for obj in listing["items"]:
        obj.pop("status", None)
        for key in _OF_SERVER:
            obj["metadata"].pop(key, None)
        objects[f"{obj['kind']} {obj['metadata']['name']}"] = obj
    return objects


def test_makes_the_same_objects_on_both_engines(
    own: OwnStack,
    official: OfficialEngine,
    cluster: BareCluster,
    other_cluster: BareCluster,
    tmp_path: Path,
) -> None:
    own.run("up", "--yes")
    other = OwnStack(tmp_path / "other")
    other.value["kubeconfig"] = str(other_cluster.kubeconfig)
    other.write()
    official.run(other.folder, "stack", "init", "own")
    official.run(other.folder, "up", "--stack=own", "--yes")
    assert objects_of(other_cluster) == objects_of(cluster)
    official.run(other.folder, "destroy", "--stack=own", "--yes")
    assert left(other_cluster) == set()
    own.run("destroy", "--yes")


def test_goes_on_with_a_stack_of_the_embedded_engine(
    own: OwnStack, official: OfficialEngine
) -> None:
    own.run("up", "--yes")
    official.run(own.folder, "preview", "--stack=own", "--expect-no-changes", "--diff")
    assert "own" in official.run(own.folder, "stack", "ls")
    advertised = official.run(own.folder, "stack", "output", "--stack=own", "advertised")
    assert '"nvidia.com/gpu.shared":14' in advertised
    official.run(own.folder, "stack", "export", "--stack=own", "--file=exported.json")
    official.run(own.folder, "stack", "import", "--stack=own", "--file=exported.json")
    own.run("preview")
    own.value["pools"]["research"]["profile"] = "whole"
    own.write()
    official.run(own.folder, "up", "--stack=own", "--yes")
    own.run("preview")
    official.run(own.folder, "destroy", "--stack=own", "--yes")


def test_gives_its_stack_to_the_embedded_engine(own: OwnStack, official: OfficialEngine) -> None:
    own.write()
    official.run(own.folder, "stack", "init", "own")
    official.run(own.folder, "up", "--stack=own", "--yes")
    own.run("preview")
    own.value["pools"]["research"]["profile"] = "whole"
    own.run("up", "--yes")
    official.run(own.folder, "preview", "--stack=own", "--expect-no-changes", "--diff")
    official.run(own.folder, "refresh", "--stack=own", "--yes", "--expect-no-changes")
    own.run("destroy", "--yes")


def test_stops_at_the_lock_of_a_killed_run_of_the_embedded_engine(
    own: OwnStack, official: OfficialEngine, cluster: BareCluster
) -> None:
    process = own.start("up", "--yes")
    while cluster.uid("namespace", NAMESPACE, NAMESPACE) is None:
        assert process.poll() is None
    process.kill()
    process.communicate()
    # Only the embedded engine knows what the run has created.
    refused = official.run(own.folder, "up", "--stack=own", "--yes", expect=1)
    assert "the stack is currently locked" in refused
    own.run("up", "--yes")
    official.run(own.folder, "preview", "--stack=own", "--expect-no-changes", "--diff")
    own.run("destroy", "--yes")


@pytest.mark.timeout(1800)
def test_keeps_one_state_with_both_engines_in_turn(
    official: OfficialEngine, cluster: BareCluster, tmp_path: Path
) -> None:
    dice = random.Random(int(os.environ.get("DIVVY_RANDOM_SEED", "7")))
    namespace = f"in-turn-{os.getpid()}"
    cluster.kubectl("create", "namespace", namespace)
    program = Program(tmp_path, cluster.kubeconfig, namespace)

    def run_official(*arguments: str) -> None:
        program.write()
        official.run(tmp_path, *arguments, "--stack=dev", PULUMI_CONFIG_PASSPHRASE="open")

    program.up()
    for number in range(int(os.environ.get("DIVVY_RANDOM_PROGRAMS", "12"))):
        program.resources = random_resources(dice, program.resources)
        for wanted in program.resources.values():
            # The official engine replaces what moves to another provider of the same cluster.
            wanted["provider"] = "cluster"
        if dice.random() < 0.5:
            if dice.random() < 0.3:
                program.up_killed(dice.uniform(0.0, 0.4))
            program.up()
            compare(cluster, program, number)
            run_official("preview", "--expect-no-changes", "--diff")
        else:
            run_official("up", "--yes")
            compare(cluster, program, number)
            program.run("preview")
    run_official("destroy", "--yes")
    program.resources = {}
    assert program.state() == {}
