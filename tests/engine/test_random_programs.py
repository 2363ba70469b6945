"""Random programs, random edits, kill -9 at random instants: nothing is lost, nothing doubled.

After each: cluster = state = program, no secret in any file in the clear, no orphan.
"""

from __future__ import annotations

import base64
import os
import random
from pathlib import Path
from typing import Any

import pytest

from tests.engine.bare_cluster import BareCluster
from tests.engine.programs import Program
from tests.thoroughness import at_length

pytestmark = pytest.mark.lab
# DIVVY_RANDOM_PROGRAMS=200 runs as many, DIVVY_KILLS=5 kills each so often before it is continued.
COUNT = int(os.environ.get("DIVVY_RANDOM_PROGRAMS", at_length(2, 10)))
KILLS = int(os.environ.get("DIVVY_KILLS", "1"))
SECRET = "hush-hush"


def random_resources(dice: random.Random, old: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return a program near the former one: some added, changed, dropped, renamed, re-wired."""
    resources: dict[str, Any] = {}
    for number in range(8):
        names = (f"r{number}", f"s{number}")
        before = next((name for name in names if name in old), None)
        if dice.random() < 0.3:
            continue
        name = before or names[0]
        if before and dice.random() < 0.6:
            wanted = dict(old[before])
            if dice.random() < 0.3:
                name = names[1 - names.index(before)]
        else:
            wanted = {"data": {"v": str(dice.randrange(3))}}
            if dice.random() < 0.5:
                wanted["called"] = f"{number}-fixed"
            if dice.random() < 0.3:
                wanted["data"]["token"] = f"{SECRET}-{dice.randrange(3)}"
                wanted["secret"] = True
            # Two providers of one cluster: a resource may move between them.
            wanted["provider"] = dice.choice(("cluster", "second"))
        # Whichever of its names a run that was killed has recorded.
        wanted["aliases"] = [names[1 - names.index(name)]]
        wanted["needs"] = [other for other in resources if dice.random() < 0.3]
        resources[name] = wanted
    return resources


@pytest.mark.timeout(7200)
def test_continues_killed_runs_without_orphan_or_duplicate(
    cluster: BareCluster, tmp_path: Path
) -> None:
    dice = random.Random(int(os.environ.get("DIVVY_RANDOM_SEED", "7")))
    namespace = f"random-{os.getpid()}"
    cluster.kubectl("create", "namespace", namespace)
    program = Program(tmp_path, cluster.kubeconfig, namespace)
    middle = 0
    for number in range(COUNT):
        known = program.state() if number else {}
        program.resources = random_resources(dice, program.resources)
        program.more = {"mutable": dice.random() < 0.7}
        if dice.random() < 0.2:
            program.run("preview", expect=None)
        for _ in range(KILLS):
            middle += program.up_killed(dice.uniform(0.0, 0.4))
        if dice.random() < 0.3:  # and the next run does not know what it was about
            program.resources = random_resources(dice, program.resources)
            known = {}
        if dice.random() < 0.3:
            fail(dice, program)
        if dice.random() < 0.2:
            program.run("refresh", "--yes", expect=None)
        program.up()
        compare(cluster, program, number)
        for name, wanted in program.resources.items():
            for alias in wanted.get("aliases", ()):
                kept = program.more["mutable"] or wanted.get("called")
                if kept and alias in known:
                    assert program.state()[name]["id"] == known[alias]["id"], number
        print(f"program {number} holds; {middle} kills in the middle of the steps", flush=True)
    program.resources = {}
    program.up()
    compare(cluster, program, COUNT)


def fail(dice: random.Random, program: Program) -> None:
    """Run the program once with one resource that the API server refuses."""
    if not program.resources:
        return
    name = dice.choice(sorted(program.resources))
    right = program.resources[name]
    program.resources[name] = {**right, "data": {**right["data"], "bad key": "1"}}
    program.up(expect=1)
    program.resources[name] = right


def compare(cluster: BareCluster, program: Program, number: int) -> None:
    """Hold the cluster against the program, and the state against the cluster."""
    items = cluster.get("configmaps", f"-n={program.namespace}", "--selector=trial=yes")["items"]
    live = {config_map["metadata"]["name"]: config_map for config_map in items}
    state = program.state()
    assert set(state) == set(program.resources), number
    assert sorted(resource["id"] for resource in state.values()) == sorted(
        f"{program.namespace}/{name}" for name in live
    ), number
    for name, wanted in program.resources.items():
        live_object = live[state[name]["id"].split("/")[1]]
        assert state[name]["outputs"]["metadata"]["uid"] == live_object["metadata"]["uid"], number
        data = dict(live_object.get("data", {}))
        for other in wanted["needs"]:
            assert data.pop(f"from-{other}") == state[other]["id"].split("/")[1], number
        assert data == wanted["data"], number
        assert live_object["metadata"]["name"] == wanted.get(
            "called", live_object["metadata"]["name"]
        ), number
    kept = [path for path in (program.folder / ".pulumi").rglob("*") if path.is_file()]
    text = "\n".join(path.read_text() for path in kept)
    assert SECRET not in text, number
    assert base64.b64encode(SECRET.encode()).decode()[:10] not in text, number
