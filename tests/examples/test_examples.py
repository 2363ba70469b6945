"""The examples: one cluster in three languages, on Pulumi's own engine, is the same objects."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from divvy.render.exports.pulumi_schema import pulumi_schema
from lab.cluster.paths import REPOSITORY
from lab.cluster.tools import PULUMI_LANGUAGE_YAML, PULUMI_SDK_GENERATOR
from tests.bare_cluster import BareCluster, bare_cluster
from tests.components.desired_objects import desired_of
from tests.components.pulumi_engine import OfficialEngine
from tests.deploy.own_stack import left
from tests.divvy_command import run_divvy

pytestmark = [pytest.mark.lab, pytest.mark.timeout(900)]

EXAMPLES = REPOSITORY / "examples"


@pytest.fixture(scope="module")
def cluster() -> Iterator[BareCluster]:
    with bare_cluster() as running:
        yield running


@pytest.fixture(scope="module")
def official(tmp_path_factory: pytest.TempPathFactory) -> OfficialEngine:
    return OfficialEngine(tmp_path_factory.mktemp("pulumi"), (PULUMI_LANGUAGE_YAML,))


@pytest.fixture(scope="module")
def expected(cluster: BareCluster, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    """Return the objects of the stack file, made by `divvy up`."""
    folder = tmp_path_factory.mktemp("stack") / "stack-file"
    shutil.copytree(EXAMPLES / "stack-file", folder)
    environment = {"KUBECONFIG": str(cluster.kubeconfig)}
    arguments = ("--stack=prod", "--yes", "--no-wait")
    run_divvy("up", *arguments, folder=folder, environment=environment)
    objects = desired_of(cluster)
    run_divvy("destroy", "--stack=prod", "--yes", folder=folder, environment=environment)
    return objects


def run(folder: Path, *command: str, text: str = "") -> None:
    done = subprocess.run(
        command, cwd=folder, input=text, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def generate_sdk(folder: Path, language: str) -> None:
    """Write the package into `sdks/divvy`, as `pulumi package add` does."""
    PULUMI_SDK_GENERATOR.build()
    generator = str(PULUMI_SDK_GENERATOR.bin / "pulumi-sdk-generator")
    run(folder, generator, language, str(folder / "sdks/divvy"), text=pulumi_schema("0.2.0"))


def prepare_typescript(folder: Path) -> None:
    if shutil.which("npm") is None:
        pytest.skip("Node is not installed")
    generate_sdk(folder, "nodejs")
    install = ("npm", "install", "--no-audit", "--no-fund")
    run(folder / "sdks/divvy", *install)
    run(folder, *install, "--ignore-scripts")
    # The program's arguments are typed: a wrong one is found before it runs.
    run(folder, "npx", "tsc", "--noEmit")


def prepare_nothing(_folder: Path) -> None:
    """Python and YAML programs run as they are."""


@pytest.mark.parametrize(
    ("name", "prepare"),
    [
        ("stack-file", prepare_nothing),
        ("yaml", prepare_nothing),
        ("typescript", prepare_typescript),
    ],
)
def test_makes_the_same_objects_as_the_stack_file(
    name: str,
    prepare: Any,
    official: OfficialEngine,
    cluster: BareCluster,
    expected: Mapping[str, Any],
    tmp_path: Path,
) -> None:
    folder = tmp_path / name
    shutil.copytree(EXAMPLES / name, folder)
    prepare(folder)
    environment = {"KUBECONFIG": str(cluster.kubeconfig)}
    official.run(folder, "stack", "init", "prod", **environment)
    official.run(folder, "up", "--stack=prod", "--yes", **environment)
    try:
        assert len(expected) > 10
        assert desired_of(cluster) == expected
        official.run(folder, "preview", "--stack=prod", "--expect-no-changes", **environment)
        if name != "stack-file":
            shown = official.run(folder, "stack", "output", "--stack=prod", "--json", **environment)
            advertised = json.loads(shown[shown.index("{") :])["advertised"]
            # 3 nodes of 2 T4 in quarters; 2 nodes of 4 A100, of which one is cut.
            assert advertised == {
                "nvidia.com/gpu": 6,
                "nvidia.com/gpu.shared": 24,
                "nvidia.com/mig-2g.10gb": 4,
                "nvidia.com/mig-3g.20gb": 2,
            }
    finally:
        official.run(folder, "destroy", "--stack=prod", "--yes", **environment)
    assert left(cluster) == set()


def test_renames_the_component_by_an_alias(
    official: OfficialEngine, cluster: BareCluster, tmp_path: Path
) -> None:
    folder = tmp_path / "yaml"
    shutil.copytree(EXAMPLES / "yaml", folder)
    path = folder / "Pulumi.yaml"
    program = yaml.safe_load(path.read_text())
    environment = {"KUBECONFIG": str(cluster.kubeconfig)}
    official.run(folder, "stack", "init", "prod", **environment)
    official.run(folder, "up", "--stack=prod", "--yes", **environment)
    try:
        component = program["resources"].pop("prod")
        aliases = {"aliases": ["urn:pulumi:prod::gpus::divvy:index:GpuCluster::prod"]}
        program = {"resources": {"gpus": {**component, "options": aliases}}, "outputs": {}}
        path.write_text(yaml.safe_dump({"name": "gpus", "runtime": "yaml", **program}))
        official.run(
            folder, "preview", "--stack=prod", "--expect-no-changes", "--diff", **environment
        )
    finally:
        official.run(folder, "destroy", "--stack=prod", "--yes", **environment)
    assert left(cluster) == set()


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"profiles": {"quarters": {}, "mixed": {"mig": {"3g.20gb": 3}}}}, "profiles.mixed"),
        ({"plugin": {}}, "divvy:cluster: plugin.image is missing"),
    ],
)
def test_refuses_a_cluster_in_one_sentence(
    changed: dict[str, Any],
    error: str,
    official: OfficialEngine,
    cluster: BareCluster,
    tmp_path: Path,
) -> None:
    folder = tmp_path / "yaml"
    shutil.copytree(EXAMPLES / "yaml", folder)
    path = folder / "Pulumi.yaml"
    program = yaml.safe_load(path.read_text())
    program["resources"]["prod"]["properties"]["cluster"] |= changed
    path.write_text(yaml.safe_dump(program))
    environment = {"KUBECONFIG": str(cluster.kubeconfig)}
    official.run(folder, "stack", "init", "prod", **environment)
    refused = official.run(folder, "up", "--stack=prod", "--yes", expect=1, **environment)
    assert f"resource 'prod' has a problem: {error}" in refused, refused
    # Neither the SDK's frames nor the whole cluster.
    assert "Traceback" not in refused, refused
    assert "notebooks" not in refused, refused
    assert left(cluster) == set()
