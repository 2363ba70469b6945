"""Every command of the pages for users runs, here or where page_commands says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from lab.cluster.paths import REPOSITORY
from tests.docs.page_commands import ELSEWHERE, PAGES, Shell, lane, page_commands, page_files
from tests.functions_of_file import functions_of
from tests.plugin_stack import without_claims

# What the files hold that pages only name.
SHARING = {"resources": [{"name": "nvidia.com/gpu", "replicas": 4}]}
PLUGIN = {"version": "v1", "sharing": {"timeSlicing": SHARING}}
MIG = {
    "version": "v1",
    "mig-configs": {
        "seven": [{"devices": "all", "mig-enabled": True, "mig-devices": {"1g.5gb": 7}}]
    },
}
CONFIG_MAPS = {
    ("gpu-operator", "time-slicing-config"): {"any": yaml.safe_dump(PLUGIN)},
    ("gpu-operator", "mig-parted-config"): {"config.yaml": yaml.safe_dump(MIG)},
    ("nvidia-device-plugin", "nvdp-nvidia-device-plugin-configs"): {"any": yaml.safe_dump(PLUGIN)},
}
FILES = {
    "time-slicing.yaml": ("gpu-operator", "time-slicing-config"),
    "mig-parted.yaml": ("gpu-operator", "mig-parted-config"),
    "device-plugin.yaml": ("nvidia-device-plugin", "nvdp-nvidia-device-plugin-configs"),
}
STACK = """\
config:
  divvy:cluster:
    profiles: {whole: {}, quarters: {timeSlicing: {replicas: 4}}}
    pools:
      all: {hardware: {model: T4, gpus: 2, count: 3}, profile: whole}
"""


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """Give a clone of a repository whose stack has another profile than its main branch."""
    origin, folder = tmp_path / "origin", tmp_path / "folder"
    (origin / "stacks").mkdir(parents=True)
    terminal = Shell(origin, tmp_path / "programs")
    (origin / "Pulumi.yaml").write_text("name: x\nruntime: python\nstackConfigDir: stacks\n")
    for text in (STACK, STACK.replace("count: 3", "count: 4")):
        (origin / "stacks/Pulumi.prod.yaml").write_text(text)
        terminal.run("git init --quiet --initial-branch=main; git add . && git commit -qm next")
    terminal.run(f"git clone --quiet --depth=1 {origin.as_uri()} {folder}")
    changed = STACK.replace("profile: whole", "profile: quarters")
    (folder / "stacks/Pulumi.prod.yaml").write_text(changed)
    for name, key in FILES.items():
        (folder / name).write_text(yaml.safe_dump({"kind": "ConfigMap", "data": CONFIG_MAPS[key]}))
    (folder / "policy.yaml").write_text("oversubscription: false\n")
    (folder / "values.yaml").write_text("mig: {strategy: mixed}\n")
    (folder / "pods").mkdir()
    for name in ("pod.yaml", "pods.yaml", "pods/one.yaml"):
        (folder / name).write_text(page_files("first-pool")["pod.yaml"])
    terminal.folder = folder
    return terminal


@pytest.mark.parametrize("page", PAGES)
def test_runs_every_command_that_looks_at_files(page: str, shell: Shell) -> None:
    for command in page_commands(page):
        if lane(command) == "files":
            shell.run(command, expect=(0, 2) if command.startswith("divvy diff") else (0,))


def test_names_every_page_with_commands_in_the_readme() -> None:
    readme = (REPOSITORY / "README.md").read_text()
    for page in PAGES:
        assert page_commands(page)
        assert f"(docs/{page}.md)" in readme


def test_lists_only_commands_of_a_page_as_run_elsewhere() -> None:
    commands = {command for page in PAGES for command in page_commands(page)}
    assert ELSEWHERE.keys() <= commands


@pytest.mark.parametrize("test", sorted(set(ELSEWHERE.values())))
def test_has_a_test_for_what_runs_elsewhere(test: str) -> None:
    file, _, name = test.partition("::")
    functions = functions_of(file)
    assert functions
    assert not name or name in functions


def test_documents_a_valid_profile_for_the_first_pool(shell: Shell) -> None:
    text = (REPOSITORY / "docs/first-pool.md").read_text()
    (block,) = re.findall(r"```yaml\n# in stacks/.*?\n(.*?)```", text, re.DOTALL)
    added = yaml.safe_load(block.replace("NODE", "gpu-1"))["config"]["divvy:cluster"]
    file = shell.folder / "stacks/Pulumi.prod.yaml"
    value = yaml.safe_load(STACK.replace("all:", "gpu-t4:").replace("count: 3", "count: 1"))
    cluster = value["config"]["divvy:cluster"]
    cluster["profiles"] |= added["profiles"]
    assert [*added["pools"]] == ["gpu-t4"]
    cluster["pools"]["gpu-t4"] |= added["pools"]["gpu-t4"]
    file.write_text(yaml.safe_dump(value))
    assert "valid (1 pool, 2 profiles)" in shell.run("divvy validate -s prod")
    assert "nvidia.com/gpu.shared" in shell.run("divvy plan -s prod")


def test_shows_the_current_answer_of_fit(shell: Shell) -> None:
    """Compared but for the line with the sum: the example's cluster is the lab's without claims."""
    text = (REPOSITORY / "docs/review-in-ci.md").read_text()
    (shown,) = re.findall(r"```\n(prod: .*?)```", text, re.DOTALL)
    lab = yaml.safe_load((REPOSITORY / "stacks/Pulumi.lab.yaml").read_text())
    cluster = without_claims(lab["config"]["divvy:cluster"])
    text = yaml.safe_dump({"config": {"divvy:cluster": cluster}}, sort_keys=False)
    (shell.folder / "stacks/Pulumi.prod.yaml").write_text(text)
    (shell.folder / "pods.yaml").write_text(ASKED)
    output = shell.run("divvy fit pods.yaml -s prod", expect=(2,))
    assert "\n".join(line.rstrip() for line in output.splitlines()) + "\n" == shown


ASKED = """\
kind: Pod
metadata: {name: train}
spec: {containers: [{resources: {limits: {nvidia.com/gpu: 2}}}]}
---
kind: Deployment
metadata: {name: web, namespace: team}
spec:
  replicas: 3
  template: {spec: {containers: [{resources: {limits: {nvidia.com/mig-2g.10gb: 1}}}]}}
---
kind: Pod
metadata: {name: odd}
spec: {containers: [{resources: {limits: {nvidia.com/mig-9g.40gb: 1}}}]}
"""
