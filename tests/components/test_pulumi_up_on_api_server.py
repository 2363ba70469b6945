"""The program by Pulumi's own command on API servers without nodes: nothing lost, nothing left."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.cluster.paths import REPOSITORY
from lab.fakes.ports import free_port
from tests.bare_cluster import BareCluster, bare_cluster
from tests.components.desired_objects import desired_of, uids
from tests.components.pulumi_engine import OfficialEngine
from tests.deploy.own_stack import NAMESPACE, OwnStack, left, objects_of
from tests.thoroughness import at_length

pytestmark = [pytest.mark.lab, pytest.mark.timeout(1800)]
PLACE = f"--namespace={NAMESPACE}"
AGENT = ("daemonset", "divvy-agent", PLACE)


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
    tried = PulumiStack(OwnStack(tmp_path / "own", cluster), engine)
    yield tried
    remaining = left(cluster)
    cluster.kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found")
    assert remaining == set()


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
    cluster.kubectl("delete", "clusterrolebinding", f"{NAMESPACE}-divvy-agent")
    stack.up()
    assert desired_of(cluster) == expected
    (key,) = cluster.get("configmap", "divvy", PLACE)["data"]
    patch = json.dumps({"data": {key: "{}"}})
    cluster.kubectl("patch", "configmap", "divvy", PLACE, f"--patch={patch}")
    assert 'conflict with "kubectl-patch"' in stack.up(expect=1)
    stack.up(PULUMI_K8S_ENABLE_PATCH_FORCE="true")
    assert desired_of(cluster) == expected
    stack.own.value["pools"]["research"]["profile"] = "whole"
    stack.up()
    assert desired_of(cluster) != expected
    # The daemon set's time-out: an image that cannot be pulled ends a run.
    state = json.loads(stack.run("stack", "export"))["deployment"]["resources"]
    (agent,) = (item for item in state if item["urn"].endswith("::own-agent-daemonset"))
    assert agent["customTimeouts"] == {"create": 180, "update": 180}
    stack.run("destroy", "--yes")


def test_refuses_another_cluster_than_in_the_last_run(
    stack: PulumiStack, cluster: BareCluster
) -> None:
    kubeconfig = stack.own.folder / "kubeconfig"
    kubeconfig.write_text(cluster.kubeconfig.read_text())
    stack.own.value["kubeconfig"] = str(kubeconfig)
    stack.init()
    stack.up()
    before = uids(cluster)
    with bare_cluster() as other:
        kubeconfig.write_text(other.kubeconfig.read_text())
        for command in (("preview",), ("up", "--yes"), ("refresh", "--yes"), ("destroy", "--yes")):
            assert "leads to another cluster" in stack.run(*command, expect=1)
        # Without a refresh the program sees it, before anything is made.
        refused = stack.run("up", "--yes", "--refresh=false", "--skip-preview", expect=1)
        assert "leads to another cluster" in refused
        assert objects_of(other) == set()
    unknown = "is unknown, because the namespace kube-system cannot be read"
    assert unknown in stack.run("preview", expect=1)
    assert unknown in stack.run("preview", "--refresh=false", expect=1)
    kubeconfig.write_text(cluster.kubeconfig.read_text())
    stack.run("preview", "--expect-no-changes")
    stack.run("destroy", "--yes")
    assert set(before) > objects_of(cluster)


def end_providers(engine: OfficialEngine) -> None:
    """Kill what a killed run has left of its own: the dynamic provider would stay for ever."""
    home = f"PULUMI_HOME={engine.home}".encode()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if home in (process / "environ").read_bytes().split(b"\0"):
                os.kill(int(process.name), signal.SIGKILL)


def test_goes_on_after_a_run_that_was_killed_at_any_instant(stack: PulumiStack) -> None:
    seed = int(os.environ.get("DIVVY_RANDOM_SEED", "64"))
    dice = random.Random(seed)
    stack.init()
    for number in range(at_length(2, 6)):
        scene = f"seed {seed}, run {number}"
        stack.own.value["pools"]["research"]["profile"] = dice.choice(("whole", "split", "slice-4"))
        stack.own.write()
        command = dice.choice((("up",), ("up",), ("destroy",)))
        process = stack.engine.start(stack.own.folder, *command, "--yes", "--stack=own")
        time.sleep(dice.uniform(1.0, 7.0))
        os.killpg(process.pid, signal.SIGKILL)
        # Providers have process groups of their own, and complete what they are at.
        if dice.random() < 0.5:
            end_providers(stack.engine)
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
        stack.run("cancel", "--yes")
        stack.run("refresh", "--yes", "--clear-pending-creates")
        stack.up()
        # With a refresh: each object is there, once, and as the stack wants it.
        assert "unchanged" in stack.up("--expect-no-changes", "--skip-preview"), scene
    end_providers(stack.engine)
    stack.run("destroy", "--yes")


def test_takes_over_from_helm_and_gives_back(stack: PulumiStack, cluster: BareCluster) -> None:
    stack.own.up()
    before, restarts = uids(cluster), generation(cluster)
    cluster.kubectl("delete", "secret", PLACE, "--selector=owner=helm,name=divvy")
    stack.init()
    stack.up(PULUMI_K8S_ENABLE_PATCH_FORCE="true")
    assert uids(cluster) == before
    assert generation(cluster) == restarts
    refused = stack.own.up(expect=1)
    assert "this cluster's Divvy was deployed by Pulumi" in refused
    refused = stack.own.run("destroy", "--yes", expect=1)
    assert "a Divvy that Helm has not deployed (Pulumi)" in refused
    assert uids(cluster) == before
    stack.own.up("--take-over")
    assert uids(cluster) == before
    assert generation(cluster) == restarts
    stack.run("stack", "rm", "--force", "--preserve-config", "--yes")
    assert uids(cluster) == before
    stack.own.run("preview")
    stack.own.run("destroy", "--yes")


@contextmanager
def s3_server(folder: Path) -> Iterator[str]:
    """Serve the buckets of a folder by S3's protocol; yield the address."""
    port = free_port()
    command = (str(Path(sys.executable).with_name("localbucket")), f"--port={port}", str(folder))
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            yield f"127.0.0.1:{port}"
        finally:
            server.kill()


def test_keeps_its_state_in_a_bucket_that_a_colleague_has_too(
    stack: PulumiStack, cluster: BareCluster, tmp_path: Path
) -> None:
    (tmp_path / "s3/state").mkdir(parents=True)
    colleague = PulumiStack(OwnStack(tmp_path / "colleague", cluster), stack.engine)
    with s3_server(tmp_path / "s3") as address:
        account = {
            "PULUMI_HOME": str(tmp_path / "home"),
            "PULUMI_BACKEND_URL": "",
            "AWS_ACCESS_KEY_ID": "a",
            "AWS_SECRET_ACCESS_KEY": "b",
            "AWS_REGION": "us-east-1",
            "NO_PROXY": "127.0.0.1",
        }
        url = f"s3://state?endpoint={address}&disable_https=true&use_path_style=true"
        stack.engine.run(stack.own.folder, "login", url, **account)
        stack.init(**account)
        stack.up(**account)
        assert (tmp_path / "s3/state/.pulumi/stacks/divvy/own.json").is_file()
        assert not (stack.own.folder / ".pulumi").exists()
        first_uids = uids(cluster)
        colleague.run("preview", "--expect-no-changes", **account)
        colleague.own.value["pools"]["research"]["profile"] = "whole"
        colleague.up(**account)
        assert uids(cluster) == first_uids
        stack.run("destroy", "--yes", **account)
