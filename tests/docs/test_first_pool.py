"""docs/first-pool.md, followed as it is written, on a fresh lab of its own."""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from lab.cluster.paths import REPOSITORY, STATES, cache
from lab.driver_clients.driver_root import eventually
from tests.docs.page_commands import Shell, lane, page_commands, page_files

pytestmark = [pytest.mark.lab, pytest.mark.timeout(1800)]
NAME, HOST = "strang", "10.142.0.1:15942"
NODE = "gpu-t4"
LAB = """\
config:
  divvy:lab:
    network: 10.142.0.0/16
    ports: {apiServer: 16942, etcd: 12942, registry: 15942}
    nodeStatusUpdateFrequency: 1s
    syncFrequency: 10s
    nodes:
      - name: gpu-t4
        labels: {node.kubernetes.io/instance-type: gpu-t4}
        model: T4
        count: 2
        driver: simulated
        driverVersion: 550.163.01
      - name: gpu-a100
        labels: {node.kubernetes.io/instance-type: gpu-a100}
        model: A100-SXM4-40GB
        count: 1
        driver: simulated
        driverVersion: 550.163.01
"""


@dataclass(frozen=True)
class Stranger:
    """Somebody with a kubeconfig, an empty repository and the page."""

    folder: Path
    shell: Shell
    stack_file: Path

    def edit(self, pattern: str, text: str) -> None:
        """Change the stack file at the one place that a pattern matches."""
        before = self.stack_file.read_text()
        after, times = re.subn(pattern, text, before, count=1, flags=re.MULTILINE)
        assert times == 1, before
        self.stack_file.write_text(after)


@pytest.fixture
def stranger(tmp_path: Path) -> Iterator[Stranger]:
    """Give a fresh lab; it is down afterwards."""
    description = tmp_path / "Pulumi.lab.yaml"
    description.write_text(LAB)
    environment = {**os.environ, "DIVVY_LAB": NAME}
    divvy = [sys.executable, "-c", "from divvy.cli.main import main; main()", "lab"]

    def run(*arguments: str) -> None:
        done = subprocess.run(
            [*divvy, *arguments], env=environment, capture_output=True, text=True,
            timeout=600, check=False, cwd=REPOSITORY,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr

    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / "first-pool.lock").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        run("down")
        try:
            run("up", "--file", str(description))
            folder = tmp_path / "repository"
            folder.mkdir()
            kubeconfig = STATES / f"divvy-{NAME}/kubeconfig"
            shell = Shell(folder, tmp_path / "programs", kubeconfig)
            shell.run("git init -q")
            yield Stranger(folder, shell, folder / "stacks/Pulumi.prod.yaml")
        finally:
            run("down")


def test_leads_from_a_fresh_cluster_to_a_proven_pool(stranger: Stranger) -> None:
    shell = stranger.shell
    commands = [
        re.sub(r"\bNODE\b", NODE, page_command) for page_command in page_commands("first-pool")
    ]
    assert commands[1] == "divvy init prod"
    # Nothing offers GPUs yet.
    page = (REPOSITORY / "docs/first-pool.md").read_text()
    (named,) = re.findall(r"`(divvy init prod --gpus .*?)`", page)
    # The lab has one node of the kind.
    named = named.replace("-*=", "=")
    shell.run(f"{named} --gpus 'gpu-a100=1' --model 'gpu-a100=A100-SXM4-40GB'")
    pod = yaml.safe_load(page_files("first-pool")["pod.yaml"])
    # The image is the reader's own.
    own = {"image": f"{HOST}/divvy/busybox:lab", "command": ["sleep", "600"]}
    pod["spec"]["containers"][0] |= own
    (stranger.folder / "pod.yaml").write_text(yaml.safe_dump(pod))
    for command in commands[2:]:
        if command == "divvy validate -s prod":
            _change_one_node(stranger)
        if command == "divvy preview -s prod":
            _name_the_image(stranger)
        if lane(command) == "elsewhere" and command != "divvy verify -s prod":
            continue
        differs = re.match(r"divvy (diff|fit|preview)\b", command)
        if command.startswith("divvy top"):
            shell.run("kubectl wait --for=condition=Ready pod/first --timeout=60s")
        shell.run(command, expect=(0, 2) if differs else (0,), timeout=900)
        if command.startswith("divvy top"):
            # The agent looks again a moment after the pods of `verify` have ended.
            assert eventually(lambda: "default/first main" in shell.run("divvy top -s prod --once"))


def _change_one_node(stranger: Stranger) -> None:
    """Add the page's two lines, as it says."""
    text = (REPOSITORY / "docs/first-pool.md").read_text()
    (fragment,) = re.findall(r"^```yaml\n# in stacks/.*?\n(.*?)^```", text, re.M | re.S)
    cluster = yaml.safe_load(fragment)["config"]["divvy:cluster"]
    ((profile, rule),) = cluster["profiles"].items()
    ((pool, _),) = cluster["pools"].items()
    quoted = yaml.safe_dump(rule, default_flow_style=True, width=1000).strip()
    stranger.edit(r"^    profiles:\n", f"    profiles:\n      {profile}: {quoted}\n")
    stranger.edit(
        rf"^      {pool}:\n", f"      {pool}:\n        overrides: {{{NODE}: {profile}}}\n"
    )


def _name_the_image(stranger: Stranger) -> None:
    """Add the registry where the end of the stack file says so, and where the driver is."""
    stranger.edit(
        r"\Z",
        f"    plugin: {{image: {{registry: '{HOST}', base: '{HOST}/divvy/base:bookworm', "
        "insecure: true}}\n"
        "    driver: {root: /run/nvidia/driver}\n",
    )
