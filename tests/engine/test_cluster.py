"""The engine against a real API server, through the real command and the real SDK."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engine.bare_cluster import BareCluster
from tests.engine.programs import Program
from tests.running_lab import RunningLab

pytestmark = pytest.mark.lab


@pytest.fixture
def program(cluster: BareCluster, tmp_path: Path) -> Iterator[Program]:
    namespace = f"c{os.urandom(4).hex()}"
    cluster.kubectl("create", "namespace", namespace)
    yield Program(tmp_path, cluster.kubeconfig, namespace)
    cluster.kubectl("delete", "namespace", namespace, "--wait=false")


def live(cluster: BareCluster, program: Program) -> dict[str, dict[str, Any]]:
    """Return the program's ConfigMaps in the cluster by name."""
    listing = cluster.get("configmaps", f"-n={program.namespace}", "--selector=trial=yes")
    return {obj["metadata"]["name"]: obj for obj in listing["items"]}


def versions(cluster: BareCluster, program: Program) -> dict[str, str]:
    return {
        name: obj["metadata"]["resourceVersion"] for name, obj in live(cluster, program).items()
    }


def test_creates_what_the_program_declares_and_writes_nothing_again(
    cluster: BareCluster, program: Program
) -> None:
    program.resources = {
        "one": {"data": {"a": "1"}, "called": "one"},
        "two": {"data": {}, "needs": ["one"]},
    }
    assert "4 created" in program.up()
    before = versions(cluster, program)
    assert len(before) == 2
    assert live(cluster, program)["one"]["data"] == {"a": "1"}
    assert "4 unchanged" in program.up()
    assert versions(cluster, program) == before
    program.run("preview", "--expect-no-changes")


def test_previews_without_changing_anything(cluster: BareCluster, program: Program) -> None:
    program.resources = {"one": {"data": {"a": "1"}}}
    digest = json.loads(program.run("preview", "--json", expect=2))
    assert digest["changeSummary"] == {"create": 3}
    assert live(cluster, program) == {}
    assert not (program.folder / ".pulumi").exists()


def test_updates_in_place_and_replaces_what_is_immutable(
    cluster: BareCluster, program: Program
) -> None:
    program.resources = {"one": {"data": {"a": "1"}, "called": "one"}}
    program.up()
    uid = live(cluster, program)["one"]["metadata"]["uid"]
    program.resources["one"]["data"] = {"a": "2"}
    assert "updated (data.a)" in program.up()
    assert live(cluster, program)["one"]["metadata"]["uid"] == uid
    program.more = {"mutable": False}
    program.resources["one"]["data"] = {"a": "3"}
    assert "1 to replace" in program.run("preview", expect=2)
    assert "replaced (data.a)" in program.up()
    assert live(cluster, program)["one"]["metadata"]["uid"] != uid


def test_renames_by_an_alias_without_touching_the_object(
    cluster: BareCluster, program: Program
) -> None:
    program.resources = {"old": {"data": {}, "called": "x"}}
    program.up()
    before = versions(cluster, program)
    program.resources = {"new": {"data": {}, "called": "x", "aliases": ["old"]}}
    program.run("preview")
    assert set(program.state()) == {"old"}
    assert "unchanged" in program.up()
    assert versions(cluster, program) == before
    assert set(program.state()) == {"new"}


def test_deletes_what_the_program_drops_unless_protected(
    cluster: BareCluster, program: Program
) -> None:
    program.resources = {
        "gone": {"data": {}, "called": "gone"},
        "safe": {"data": {}, "called": "safe", "protect": True},
    }
    program.up()
    program.resources = {"safe": program.resources["safe"]}
    program.up()
    assert set(live(cluster, program)) == {"safe"}
    program.resources = {}
    assert "is protected" in program.up(expect=1)
    assert set(live(cluster, program)) == {"safe"}


def test_recreates_an_object_deleted_outside(cluster: BareCluster, program: Program) -> None:
    program.resources = {"one": {"data": {"a": "1"}, "called": "one"}}
    program.up()
    cluster.kubectl("delete", "configmap", "one", f"-n={program.namespace}")
    assert "deleted outside" in program.up()
    assert set(live(cluster, program)) == {"one"}


def test_keeps_what_was_done_after_a_failure_and_continues(
    cluster: BareCluster, program: Program
) -> None:
    program.resources = {
        "good": {"data": {}, "called": "good"},
        "bad": {"data": {}, "called": "Bad_Name", "needs": ["good"]},
    }
    assert "Bad_Name" in program.up(expect=1)
    assert set(program.state()) == {"good"}
    program.resources["bad"]["called"] = "fixed"
    program.up()
    assert set(live(cluster, program)) == {"good", "fixed"}


def test_shows_only_the_users_frames_when_a_program_raises(program: Program) -> None:
    program.more = {"raises": "out of ideas"}
    output = program.up(expect=1)
    assert "ValueError: out of ideas" in output
    assert "__main__.py" in output
    assert "site-packages" not in output
    assert "program_child" not in output


def test_destroys_everything_dependents_first(cluster: BareCluster, program: Program) -> None:
    program.resources = {
        "one": {"data": {}, "called": "one"},
        "two": {"data": {}, "called": "two", "needs": ["one"]},
    }
    program.up()
    lines = program.run("destroy", "--yes").splitlines()
    order = [line.split()[2] for line in lines if " ConfigMap " in line]
    assert order == ["two", "one"]
    assert live(cluster, program) == {}
    assert program.state() == {}


def test_fails_the_step_while_the_api_server_is_away_and_continues(
    cluster: BareCluster, program: Program
) -> None:
    program.resources = {"one": {"data": {"a": "1"}, "called": "one"}}
    config = program.kubeconfig.read_text()
    away = program.folder / "away.kubeconfig"
    away.write_text(re.sub(r"(https://[\d.]+):\d+", r"\1:1", config))
    program.kubeconfig, there = away, program.kubeconfig
    assert "does not answer" in program.up(expect=1)
    program.kubeconfig = there
    program.up()
    assert set(live(cluster, program)) == {"one"}


DAEMON_SET = '''"""One DaemonSet."""
import json
from pathlib import Path

import pulumi
import pulumi_kubernetes as kubernetes

spec = json.loads(Path("resources.json").read_text())
options = pulumi.ResourceOptions(
    provider=kubernetes.Provider("c", kubeconfig=spec["kubeconfig"], namespace=spec["namespace"])
)
kubernetes.apps.v1.DaemonSet(
    "ds",
    metadata={"name": "ds"},
    spec={
        "selector": {"matchLabels": {"app": "ds"}},
        "template": {
            "metadata": {"labels": {"app": "ds"}},
            "spec": {
                "terminationGracePeriodSeconds": 0,
                "nodeSelector": {"kubernetes.io/hostname": "cpu-1"},
                "containers": [
                    {
                        "name": "main",
                        "image": spec["image"],
                        "command": spec["command"],
                        # Without a probe a container is ready in the moments that it runs.
                        "readinessProbe": {"exec": {"command": ["test", "-e", "/tmp/ready"]}},
                    }
                ],
            },
        },
    },
    opts=options,
)
'''


def test_reports_a_crash_loop_early_with_its_last_log_lines(
    lab: RunningLab, tmp_path: Path
) -> None:
    with lab.namespace() as namespace:
        program = Program(tmp_path, lab.kubeconfig, namespace)
        (program.folder / "__main__.py").write_text(DAEMON_SET)
        program.more = {
            "image": lab.busybox,
            "command": ["/bin/sh", "-c", "echo cannot find my keys; sleep 3; exit 3"],
        }
        output = program.up(expect=1)
    assert "CrashLoopBackOff" in output
    assert "cannot find my keys" in output
