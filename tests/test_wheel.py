"""A built wheel, installed without this checkout, has everything that a user needs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from divvy.cli.main import COMMANDS
from divvy.image.build import input_digest
from lab.cluster.paths import REPOSITORY
from tests.divvy_command import run_divvy
from tests.installed import Installed

EVERYTHING = """\
import importlib, pkgutil, sys
import divvy
packages = pkgutil.walk_packages(divvy.__path__, "divvy.")
left_out = ("divvy.share", "__main__", "_child")
for name in [found.name for found in packages]:
    if not any(part in name for part in left_out):
        importlib.import_module(name)
import divvy.components
for module in list(sys.modules.values()):
    print(getattr(module, "__file__", None) or "")
"""
STACK = """\
config:
  divvy:cluster:
    kubeconfig: {kubeconfig}
    profiles: {{slice-4: {{timeSlicing: {{replicas: 4}}}}}}
    pools: {{notebooks: {{select: {{team: notebooks}}, profile: slice-4}}}}
    plugin: {{image: {{reference: "registry.example/agent@sha256:{digest}"}}}}
"""
MAIN = """\
import pulumi
from divvy.components import cluster_of_stack

gpus = cluster_of_stack()
pulumi.export("advertised", gpus.advertised)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Give a user's folder: one stack, and packages named like folders of Divvy's checkout."""
    text = (REPOSITORY / "stacks/Pulumi.lab.yaml").read_text()
    (tmp_path / "stacks").mkdir()
    lines = text.replace("/var/lib/divvy-lab/kubeconfig", str(tmp_path / "absent"))
    (tmp_path / "stacks/Pulumi.lab.yaml").write_text(lines)
    (tmp_path / "Pulumi.yaml").write_text("name: gpus\nruntime: python\nstackConfigDir: stacks\n")
    (tmp_path / "__main__.py").write_text(MAIN)
    for name in ("components", "conformance", "plugin_image"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('the user has his own')\n")
    return tmp_path


def test_ships_every_module_and_nothing_from_the_checkout(
    installed: Installed, tmp_path: Path
) -> None:
    loaded = installed.run("python", "-c", EVERYTHING, folder=tmp_path).stdout.splitlines()
    ours = [path for path in loaded if "/divvy/" in path and "site-packages" in path]
    assert len(ours) > 250
    strangers = [
        path for path in loaded if path.startswith(f"{REPOSITORY}/") and "/.venv/" not in path
    ]
    assert not strangers


def test_has_nothing_of_the_laboratory(installed: Installed, tmp_path: Path) -> None:
    (site,) = installed.environment.glob("lib/python*/site-packages")
    assert not [*site.glob("lab"), *site.glob("divvy/lab"), *site.glob("divvy_lab*")]
    shown = installed.run("divvy", "--help", folder=tmp_path).stdout
    assert "laboratory" not in shown
    assert " lab " not in shown
    refused = installed.run("divvy", "lab", "up", folder=tmp_path, expect=1)
    assert "No such command 'lab'" in refused.stderr


def test_loads_every_command(installed: Installed, tmp_path: Path) -> None:
    code = (
        "from typer.testing import CliRunner; from divvy.cli.main import COMMANDS, app\n"
        "for name in COMMANDS: print(name, CliRunner().invoke(app, [name, '--help']).exit_code)"
    )
    lines = installed.run("python", "-c", code, folder=tmp_path).stdout.splitlines()
    assert lines == [f"{name} 0" for name in COMMANDS]


def test_ships_suite_workloads_and_image_sources(installed: Installed) -> None:
    folders = ("conformance", "plugin_image")
    listed = subprocess.run(
        ["git", "ls-files", *folders], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    (share,) = installed.environment.glob("lib/python*/site-packages/divvy/share")
    there = {
        str(path.relative_to(share))
        for folder in folders
        for path in (share / folder).rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    assert there == {*listed.stdout.splitlines()}


@pytest.mark.parametrize(
    "arguments",
    [
        ("validate", "-s", "lab"),
        ("plan", "-s", "lab", "-o", "json"),
        ("plan", "-s", "lab", "-o", "html"),
        ("schema",),
    ],
    ids=" ".join,
)
def test_reads_files_like_the_checkout(
    installed: Installed, project: Path, arguments: tuple[str, ...]
) -> None:
    here = run_divvy(*arguments, folder=project).stdout
    assert installed.run("divvy", *arguments, folder=project).stdout == here
    assert here


def test_writes_the_same_chart_as_the_checkout(installed: Installed, project: Path) -> None:
    image = f"registry.example/agent@sha256:{'0' * 64}"
    chart = ("chart", "-s", "lab", "--image", image)
    installed.run("divvy", *chart, "--out", "theirs", folder=project)
    run_divvy(*chart, "--out", "ours", folder=project)
    theirs, ours = (
        {
            str(path.relative_to(project / name)): path.read_bytes()
            for path in (project / name).rglob("*")
            if path.is_file()
        }
        for name in ("theirs", "ours")
    )
    assert theirs == ours
    assert "Chart.yaml" in ours


def test_ships_the_same_inputs_of_the_agents_image(installed: Installed, tmp_path: Path) -> None:
    code = "from divvy.image.build import input_digest; print(input_digest('base'))"
    digest = installed.run("python", "-c", code, folder=tmp_path).stdout.strip()
    assert digest == input_digest("base")


def test_finds_the_conformance_suite(installed: Installed, project: Path) -> None:
    ended = installed.run("divvy", "verify", "-s", "lab", folder=project, expect=1)
    assert ended.stderr.startswith("error: no usable kubeconfig: ")
    listed = installed.run(
        *("python", "-c", "from divvy.bundled_sources import CONFORMANCE; print(CONFORMANCE)"),
        folder=project,
    )
    assert "site-packages/divvy/share/conformance" in listed.stdout


def test_deploys_in_a_users_folder_up_to_the_cluster(installed: Installed, project: Path) -> None:
    stack = STACK.format(kubeconfig=project / "absent", digest="0" * 64)
    (project / "stacks/Pulumi.mine.yaml").write_text(stack)
    ended = installed.run("divvy", "preview", "-s", "mine", folder=project, expect=1)
    assert ended.stderr.startswith("error: kubeconfig ")
    assert "his own" not in ended.stdout + ended.stderr
