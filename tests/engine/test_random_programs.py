"""Random programs, random edits, kill -9 at random instants: nothing is lost, nothing doubled."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest

from tests.engine.programs import Program
from tests.running_lab import RunningLab

pytestmark = pytest.mark.lab
# `make test` runs a sample; DIVVY_RANDOM_PROGRAMS=200 runs as many.
COUNT = int(os.environ.get("DIVVY_RANDOM_PROGRAMS", "10"))


def random_resources(dice: random.Random, old: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return a program near the former one: some added, changed, dropped, renamed, re-wired."""
    found: dict[str, Any] = {}
    for number in range(8):
        names = (f"r{number}", f"s{number}")
        before = next((name for name in names if name in old), None)
        if dice.random() < 0.3:
            continue
        name = before or names[0]
        if before and dice.random() < 0.6:
            wish = {key: value for key, value in old[before].items() if key != "aliases"}
            if dice.random() < 0.3:
                name = names[1 - names.index(before)]
                wish["aliases"] = [before]
        else:
            wish = {"data": {"v": str(dice.randrange(3))}}
            if dice.random() < 0.5:
                wish["called"] = f"{number}-fixed"
        wish["needs"] = [other for other in found if dice.random() < 0.3]
        found[name] = wish
    return found


@pytest.mark.timeout(1800)
def test_killed_runs_are_continued_without_orphan_or_duplicate(
    lab: RunningLab, tmp_path: Path
) -> None:
    dice = random.Random(7)
    with lab.namespace() as namespace:
        program = Program(tmp_path, lab.kubeconfig, namespace)
        for number in range(COUNT):
            known = program.state() if number else {}
            program.resources = random_resources(dice, program.resources)
            if dice.random() < 0.2:
                program.run("preview", expect=None)
            if dice.random() < 0.6:
                program.up_killed_after(dice.uniform(0.3, 1.1))
            program.up()
            compare(lab, program, number)
            for name, wish in program.resources.items():
                for alias in wish.get("aliases", ()):
                    assert program.state()[name]["id"] == known[alias]["id"], number
            print(f"program {number} holds")
        program.resources = {}
        program.up()
        compare(lab, program, COUNT)


def compare(lab: RunningLab, program: Program, number: int) -> None:
    """Hold the cluster against the program, and the state against the cluster."""
    items = lab.get("configmaps", f"-n={program.namespace}", "--selector=trial=yes")["items"]
    live = {one["metadata"]["name"]: one for one in items}
    state = program.state()
    assert set(state) == set(program.resources), number
    assert sorted(found["id"] for found in state.values()) == sorted(
        f"{program.namespace}/{name}" for name in live
    ), number
    for name, wish in program.resources.items():
        found = live[state[name]["id"].split("/")[1]]
        data = dict(found.get("data", {}))
        for other in wish["needs"]:
            assert data.pop(f"from-{other}") == state[other]["id"].split("/")[1], number
        assert data == wish["data"], number
        assert found["metadata"]["name"] == wish.get("called", found["metadata"]["name"]), number
