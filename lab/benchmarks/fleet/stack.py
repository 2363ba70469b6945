"""A project as a user has it, with one pool that has all nodes of a fleet."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Any

import yaml

from lab.benchmarks.fleet.agents import PATIENCE
from lab.benchmarks.fleet.links import GPUS
from lab.cluster.paths import REPOSITORY
from tests.divvy_command import divvy_command, divvy_environment
from tests.render.objects.claims.api_server import ApiServer

_IMAGE = f"registry.example/divvy/agent@sha256:{'0' * 64}"
_CLUSTER: dict[str, Any] = {
    "profiles": {"whole": {}, "slices": {"timeSlicing": {"replicas": 4}}},
    "plugin": {"image": {"reference": _IMAGE}},
}


class Stack:
    """A project of a user's, with one pool that has all nodes."""

    def __init__(self, folder: Path, server: ApiServer, count: int) -> None:
        folder.mkdir()
        self._folder = folder
        project = yaml.safe_load((REPOSITORY / "Pulumi.yaml").read_text())
        project |= {"main": str(REPOSITORY), "stackConfigDir": "."}
        (folder / "Pulumi.yaml").write_text(yaml.safe_dump(project))
        hardware = {"model": "A100-SXM4-40GB", "gpus": GPUS, "count": count}
        self._pool = {"select": {"fleet": "yes"}, "hardware": hardware}
        self._kubeconfig = str(server.cluster.kubeconfig)

    def write(self, profile: str) -> None:
        """Write the stack file."""
        pools = {"fleet": {**self._pool, "profile": profile}}
        value = {**_CLUSTER, "pools": pools, "kubeconfig": self._kubeconfig}
        text = yaml.safe_dump({"config": {"divvy:cluster": value}})
        (self._folder / "Pulumi.fleet.yaml").write_text(text)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a command."""
        return subprocess.Popen(
            divvy_command(*arguments, "--stack=fleet"),
            cwd=self._folder,
            env=divvy_environment({"KUBECONFIG": self._kubeconfig}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *arguments: str) -> tuple[float, str]:
        """Run a command; return its seconds and what it said."""
        began = time.monotonic()
        process = self.start(*arguments)
        output, _ = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, output
        return time.monotonic() - began, output
