"""`pulumi preview --policy-pack` with the policy pack, on Pulumi's own engine.

The program is the example in YAML: what is asked does not depend on a program's language.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from divvy.lab.paths import REPOSITORY
from divvy.lab.setup.python import ensure_policy_environment, policy_environment
from tests.engine.bare_cluster import BareCluster, bare_cluster
from tests.engine.official_engine import OfficialEngine
from tests.engine.test_own_stack import left

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[BareCluster]:
    with bare_cluster() as running:
        yield running


@pytest.fixture(scope="module")
def official(tmp_path_factory: pytest.TempPathFactory) -> OfficialEngine:
    return OfficialEngine(tmp_path_factory.mktemp("pulumi"), policies=True)


@pytest.fixture
def program(tmp_path: Path, official: OfficialEngine, cluster: BareCluster) -> Program:
    return Program(tmp_path, official, cluster)


class Program:
    """The example, a stack of it, and a copy of the pack beside it."""

    def __init__(self, folder: Path, official: OfficialEngine, cluster: BareCluster) -> None:
        self._official = official
        self._environment = {"KUBECONFIG": str(cluster.kubeconfig)}
        self._folder = folder / "yaml"
        shutil.copytree(REPOSITORY / "examples/yaml", self._folder)
        self._pack = folder / "pack"
        shutil.copytree(REPOSITORY / "policy_pack", self._pack)
        ensure_policy_environment()
        (self._pack / "venv").symlink_to(policy_environment())
        official.run(self._folder, "stack", "init", "prod", **self._environment)

    def run(self, command: str, policy: Mapping[str, Any], *, expect: int = 0) -> str:
        """Run a command of Pulumi's under a policy; return what it prints."""
        (self._pack / "policy.yaml").write_text(yaml.safe_dump(policy))
        arguments = (command, "--stack=prod", f"--policy-pack={self._pack}")
        confirmed = ("--yes",) if command == "up" else ()
        return self._official.run(
            self._folder, *arguments, *confirmed, expect=expect, **self._environment
        )


@pytest.mark.parametrize("command", ["preview", "up"])
def test_stops_at_what_a_policy_refuses(
    command: str, program: Program, cluster: BareCluster
) -> None:
    output = program.run(command, {"maxContainersPerDevice": 2}, expect=1)
    assert "[mandatory]" in output
    assert "maxContainersPerDevice" in output
    assert "profiles.quarters: lets 4 containers share a device" in output, output
    assert left(cluster) == set()


def test_warns_if_a_rule_is_advisory(program: Program) -> None:
    policy = {"maxContainersPerDevice": 2, "advisory": ["maxContainersPerDevice"]}
    output = program.run("preview", policy)
    assert "[advisory]" in output
    assert "profiles.quarters: lets 4 containers share a device" in output, output


def test_previews_what_a_policy_allows(program: Program) -> None:
    output = program.run("preview", {"memory": "prevented", "maxContainersPerDevice": 4})
    assert "to create" in output
    assert "[mandatory]" not in output
    assert "[advisory]" not in output


def test_names_what_is_wrong_with_the_policy_file(program: Program) -> None:
    output = program.run("preview", {"sharing": "some"}, expect=1)
    assert "sharing: is 'some'" in output, output
    assert "Traceback" not in output, output
