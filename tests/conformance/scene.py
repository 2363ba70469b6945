"""The lab's nodes as faults find them, and `divvy verify` run against them."""

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.deployment import NAMESPACE, REPOSITORY, Deployment

CDI = "/var/run/cdi/divvy.gpu-gpu.json"


@dataclass
class Scene:
    """A deployment, the image with the workloads, and a folder for stack files and reports."""

    deployed: Deployment
    image: str
    folder: Path

    def verify(self, *options: str, cluster: Any = None, expect: int | None = None) -> Any:
        """Run the suite as a user does; return its report."""
        stack = {"config": {"divvy:cluster": cluster or self.deployed.cluster}}
        file = self.folder / "Pulumi.tested.yaml"
        file.write_text(yaml.safe_dump(stack, sort_keys=False))
        command = [sys.executable, "-c", "from divvy.cli.main import main; main()", "verify"]
        command += [f"--file={file}", f"--out={self.folder / 'out'}", *options]
        if not any(option.startswith("--workload-image") for option in options):
            command.append(f"--workload-image={self.image}")
        done = subprocess.run(
            command,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        assert expect is None or done.returncode == expect, done.stdout + done.stderr
        self.said = done.stdout
        return yaml.safe_load((self.folder / "out/report.yaml").read_text())

    def read_cdi(self, node: str) -> dict[str, Any]:
        """Return the CDI specification that the agent wrote on a node."""
        found: dict[str, Any] = json.loads(self.deployed.on_node(node, "cat", CDI))
        return found

    def write_cdi(self, node: str, spec: dict[str, Any]) -> None:
        """Replace the CDI specification on a node."""
        command = f"cat > {CDI}.new && mv {CDI}.new {CDI}"
        entered = self.deployed.lab.machine(node).enter_command(["sh", "-c", command])
        subprocess.run(entered, input=json.dumps(spec), text=True, check=True)

    @contextlib.contextmanager
    def kept_cdi(self, node: str, spec: dict[str, Any]) -> Iterator[None]:
        """Hold a changed CDI specification against the agent, which mends it now and then."""
        over = threading.Event()

        def keep() -> None:
            while not over.wait(0.5):
                self.write_cdi(node, spec)

        self.write_cdi(node, spec)
        keeper = threading.Thread(target=keep)
        keeper.start()
        try:
            yield
        finally:
            over.set()
            keeper.join()

    def driver(self, node: str, *command: str) -> str:
        """Ask the simulated driver of a node for something."""
        return self.deployed.on_node(node, "divvy-sim", *command)

    def patch_agents(self, kind: str, patch: Iterable[Any] | dict[str, Any]) -> None:
        """Change the agents' DaemonSet behind Divvy's back."""
        self.deployed.lab.kubectl(
            "patch", "daemonset/divvy-agent", f"-n={NAMESPACE}", f"--type={kind}",
            "--patch", json.dumps(patch),
        )  # fmt: skip
