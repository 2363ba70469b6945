"""A lab of its own with Divvy deployed, on which tests play an administrator's upgrades."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from divvy.reports.comparison import Comparison, compare_reports
from divvy.stack.file import read_path
from lab.cluster.paths import REPOSITORY, STATES
from lab.cluster.section import read_lab
from tests.divvy_command import run_divvy
from tests.running_lab import RunningLab

NAME, NETWORK = "ages", "10.145"
REGISTRY = f"{NETWORK}.0.1:15945"
IMAGE = f"{REGISTRY}/divvy/base:bookworm"
_STACK = "stacks/Pulumi.lab.yaml"


@dataclass
class UpgradedCluster:
    """The lab, its stack file, and the sources from which its administrator runs divvy."""

    folder: Path
    stack: dict[str, Any]
    sources: Path = field(default=REPOSITORY)

    @property
    def kubeconfig(self) -> Path:
        """Return the kubeconfig of the administrator."""
        return STATES / f"divvy-{NAME}/kubeconfig"

    @cached_property
    def lab(self) -> RunningLab:
        """Return what tests do with a lab that is up."""
        return RunningLab(read_lab(read_path(self.folder / _STACK)), self.kubeconfig)

    @property
    def section(self) -> dict[str, Any]:
        """Return divvy:lab of the stack file, which tests change before they upgrade."""
        return dict(self.stack["config"]["divvy:lab"])

    def describe(self, **changes: Any) -> None:
        """Change keys of divvy:lab in the stack file."""
        self.stack["config"]["divvy:lab"] |= changes
        self.write()

    def write(self) -> None:
        """Write the stack file and the project that runs the sources."""
        project = yaml.safe_load((REPOSITORY / "Pulumi.yaml").read_text())
        project["main"] = str(self.sources)
        (self.folder / "Pulumi.yaml").write_text(yaml.safe_dump(project))
        (self.folder / "stacks").mkdir(exist_ok=True)
        (self.folder / _STACK).write_text(yaml.safe_dump(self.stack, sort_keys=False))

    def divvy(self, *arguments: str, expect: int = 0) -> str:
        """Run divvy for this lab and its stack."""
        environment = {"DIVVY_LAB": NAME, "PYTHONPATH": str(self.sources)}
        return run_divvy(
            *arguments,
            folder=self.folder,
            expect=expect,
            timeout=1200,
            environment=environment,
        ).stdout

    def start(self) -> None:
        """Start the lab and deploy Divvy there."""
        self.divvy("lab", "up", f"--file={_STACK}")
        self.divvy("up", "--stack=lab", "--yes")

    def upgrade_lab(self) -> None:
        """Take the lab to the versions of its stack file."""
        self.divvy("lab", "upgrade", f"--file={_STACK}")

    def verify(self, out: str, *options: str, expect: int = 0) -> str:
        """Run the whole suite; its report is in the folder `out`."""
        return self.divvy("verify", "--stack=lab", f"--out={out}", *options, expect=expect)

    def compare(self, before: str, after: str) -> Comparison:
        """Return what changed between the reports in two folders."""
        reports = [
            yaml.safe_load((self.folder / out / "report.yaml").read_text())
            for out in (before, after)
        ]
        return compare_reports(*reports)

    def containers(self) -> dict[str, tuple[str, int]]:
        """Return id and restarts of the container of each pod."""
        containers = {}
        for pod in self.lab.get("pods")["items"]:
            (status,) = pod["status"]["containerStatuses"]
            containers[pod["metadata"]["name"]] = status["containerID"], status["restartCount"]
        return containers

    def devices(self) -> dict[str, str]:
        """Return what the driver lists in each pod."""
        names = [pod["metadata"]["name"] for pod in self.lab.get("pods")["items"]]
        return {name: self.lab.kubectl("exec", name, "--", "nvidia-smi", "-L") for name in names}


@contextlib.contextmanager
def upgraded_cluster(folder: Path, **section: Any) -> Iterator[UpgradedCluster]:
    """Give a lab from the repository's stack file, with these keys of divvy:lab changed.

    It is not started; it is down afterwards.
    """
    stack = yaml.safe_load((REPOSITORY / _STACK).read_text())
    ports = {"apiServer": 16945, "etcd": 12945, "registry": 15945}
    cluster = UpgradedCluster(folder, stack)
    definition = stack["config"]["divvy:cluster"]
    definition["kubeconfig"] = str(cluster.kubeconfig)
    image = {"registry": REGISTRY, "base": IMAGE, "insecure": True}
    definition["plugin"]["image"] = image
    cluster.describe(network=f"{NETWORK}.0.0/16", ports=ports, **section)
    cluster.divvy("lab", "down")
    try:
        yield cluster
    finally:
        if "lab" in cluster.__dict__:
            cluster.lab.api.close()
        cluster.divvy("lab", "down")
