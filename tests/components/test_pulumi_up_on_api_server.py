"""The program by Pulumi's own command on API servers without nodes: nothing lost, nothing left."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from divvy.lab.paths import REPOSITORY
from tests.bare_cluster import BareCluster, bare_cluster
from tests.components.pulumi_engine import OfficialEngine
from tests.deploy.own_stack import KINDS, NAMESPACE, OwnStack, left, objects_of
from tests.thoroughness import at_length

pytestmark = [pytest.mark.lab, pytest.mark.timeout(900)]
PLACE = f"--namespace={NAMESPACE}"
AGENT = ("daemonset", "divvy-agent", PLACE)
# What an API server, a controller or an engine says of an object, beside what the stack wants.
_OF_SERVER = ("creationTimestamp", "generation", "managedFields", "resourceVersion", "uid")
_OF_ENGINES = ("pulumi.com/", "meta.helm.sh/", "deprecated.daemonset.template.generation",
               "app.kubernetes.io/managed-by")  # fmt: skip


@dataclass
class PulumiStack:
    """A project of its own with the repository's program, on Pulumi's own engine."""

    own: OwnStack
    engine: OfficialEngine

    def __post_init__(self) -> None:
        project = yaml.safe_load((REPOSITORY / "Pulumi.yaml").read_text())
        del project["stackConfigDir"]
        # The tests' own Python.
        project = {**project, "runtime": "python", "main": str(REPOSITORY)}
        (self.own.folder / "Pulumi.yaml").write_text(yaml.safe_dump(project))

    def init(self, **more: str) -> None:
        """Make the stack in its backend."""
        self.own.write()
        self.engine.run(self.own.folder, "stack", "init", "own", **more)

    def run(self, *arguments: str, expect: int = 0, **more: str) -> str:
        """Run `pulumi` on the stack; return its output."""
        self.own.write()
        return self.engine.run(self.own.folder, *arguments, "--stack=own", expect=expect, **more)

    def up(self, *arguments: str, **more: Any) -> str:
        return self.run("up", "--yes", *arguments, **more)


@pytest.fixture(scope="module")
def cluster() -> Iterator[BareCluster]:
    with bare_cluster() as running:
        yield running


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> OfficialEngine:
    return OfficialEngine(tmp_path_factory.mktemp("pulumi"))


@pytest.fixture
def stack(tmp_path: Path, cluster: BareCluster, engine: OfficialEngine) -> Iterator[PulumiStack]:
    yield PulumiStack(OwnStack(tmp_path / "own", cluster), engine)
    assert left(cluster) == set()


def desired_of(cluster: BareCluster) -> dict[str, Any]:
    """Return the objects of Divvy's, without what an API server or an engine says of them."""
    selector = "--selector=app.kubernetes.io/name=divvy"
    objects = {}
    for obj in cluster.get(",".join(KINDS), PLACE, selector)["items"]:
        obj.pop("status", None)
        metadata = {key: obj["metadata"][key] for key in obj["metadata"] if key not in _OF_SERVER}
        for kind in ("labels", "annotations"):
            marks = metadata.pop(kind, {}).items()
            kept = {key: value for key, value in marks if not key.startswith(_OF_ENGINES)}
            if kept:
                metadata[kind] = kept
        objects[f"{obj['kind']} {metadata['name']}"] = {**obj, "metadata": metadata}
    return objects


def uids(cluster: BareCluster) -> dict[str, str]:
    selector = "--selector=app.kubernetes.io/name=divvy"
    listing = cluster.get(",".join(KINDS), PLACE, selector)["items"]
    return {f"{o['kind']} {o['metadata']['name']}": o["metadata"]["uid"] for o in listing}


def generation(cluster: BareCluster) -> int:
    return int(cluster.get(*AGENT)["metadata"]["generation"])


def test_makes_changes_repairs_and_removes_what_divvy_up_does(
    stack: PulumiStack, cluster: BareCluster
) -> None:
    stack.own.up()
    expected = desired_of(cluster)
    stack.own.run("destroy", "--yes")
    stack.init()
    assert "to create" in stack.run("preview")
    assert objects_of(cluster) == set()
    stack.up()
    assert desired_of(cluster) == expected
    # The edit by another manager is of a field that Pulumi has, and the policy is nobody's.
    patch = json.dumps({"data": {key: "{}" for key in cluster.get("configmap", "divvy", PLACE)["data"]}})
    cluster.kubectl("patch", "configmap", "divvy", PLACE, f"--patch={patch}")
    cluster.kubectl("delete", "clusterrolebinding", f"{NAMESPACE}-divvy-agent")
    stack.up()
    assert desired_of(cluster) == expected
    stack.own.value["pools"]["research"]["profile"] = "whole"
    stack.up()
    assert desired_of(cluster) != expected
    # The daemon set's time-out: an image that cannot be pulled ends a run.
    state = json.loads(stack.run("stack", "export"))["deployment"]["resources"]
    (agent,) = (item for item in state if item["urn"].endswith("lab-agent-daemonset"))
    assert agent["customTimeouts"] == {"create": 180, "update": 180}
    stack.run("destroy", "--yes")


def test_refuses_another_cluster_than_in_the_last_run(
    stack: PulumiStack, cluster: BareCluster
) -> None:
    stack.init()
    stack.up()
    before = uids(cluster)
    with bare_cluster() as other:
        stack.own.value["kubeconfig"] = str(other.kubeconfig)
        for command in (("preview",), ("up", "--yes"), ("destroy", "--yes"), ("refresh", "--yes")):
            refused = stack.run(*command, expect=255)
            assert "leads to another cluster" in refused, refused
        refused = stack.run("up", "--yes", "--refresh=false", "--skip-preview", expect=255)
        assert "leads to another cluster" in refused, refused
        assert objects_of(other) == set()
    refused = stack.run("preview", expect=255)
    assert "is unknown, because the namespace kube-system cannot be read" in refused
    stack.own.value["kubeconfig"] = str(cluster.kubeconfig)
    stack.up()
    assert uids(cluster) == before
    stack.run("destroy", "--yes")


def test_goes_on_after_a_run_that_was_killed_at_any_instant(
    stack: PulumiStack, cluster: BareCluster
) -> None:
    seed = int(os.environ.get("DIVVY_RANDOM_SEED", "64"))
    dice = random.Random(seed)
    stack.init()
    for number in range(at_length(2, 40)):
        scene = f"seed {seed}, run {number}"
        stack.own.value["pools"]["research"]["profile"] = dice.choice(("whole", "split", "slice-4"))
        stack.own.write()
        command = dice.choice((("up",), ("up",), ("destroy",)))
        process = stack.engine.start(stack.own.folder, *command, "--yes", "--stack=own")
        time.sleep(dice.uniform(1.0, 7.0))
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        # The lock of the killed run is a file of the backend.
        stack.run("cancel", "--yes")
        stack.up("--clear-pending-creates")
        assert stack.run("preview", "--expect-no-changes"), scene
        made = desired_of(cluster)
        stack.up()
        assert desired_of(cluster) == made, scene
    stack.run("destroy", "--yes")


def test_takes_over_from_helm_and_gives_back(stack: PulumiStack, cluster: BareCluster) -> None:
    stack.own.up()
    before, restarts = uids(cluster), generation(cluster)
    cluster.kubectl("delete", "secret", PLACE, "--selector=owner=helm,name=divvy")
    stack.init()
    stack.up(PULUMI_K8S_ENABLE_PATCH_FORCE="true")
    assert uids(cluster) == before
    assert generation(cluster) == restarts
    stack.run("preview", "--expect-no-changes")
    refused = stack.own.up(expect=1)
    assert "this cluster's Divvy was deployed by Pulumi" in refused
    assert "deployed by" in stack.own.run("destroy", "--yes", expect=1)
    assert uids(cluster) == before
    stack.own.up("--take-over")
    assert uids(cluster) == before
    assert generation(cluster) == restarts
    stack.run("stack", "rm", "--force", "--preserve-config", "--yes")
    assert uids(cluster) == before
    stack.own.run("preview")
    stack.own.run("destroy", "--yes")
