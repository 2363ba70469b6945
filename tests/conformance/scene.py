"""The lab's nodes as faults find them, and `divvy verify` run against them."""

import contextlib
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from lab.cluster.paths import REPOSITORY
from tests.beside import repeating
from tests.deployment import NAMESPACE, Deployment
from tests.divvy_command import divvy_command, divvy_environment

# Below /run: a link on the node, as /var/run is, would lead to this machine's own.
CDI = "run/cdi/divvy.gpu-gpu.json"
ROOT = "/run/nvidia/driver"
GPUS = f"{ROOT}/etc/divvy-simd.conf"
RELOAD = f"""
cat > {GPUS}
old=$(cat {ROOT}/run/divvy-simd.pid)
kill "$old"
while kill -0 "$old" 2>/dev/null; do sleep 0.05; done
{ROOT}/usr/bin/divvy-simd --root {ROOT} --description {GPUS}
"""


@dataclass
class Scene:
    """A deployment, the image with the workloads, and a folder for stack files and reports."""

    deployed: Deployment
    image: str
    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment in which commands find the project."""
        return divvy_environment()

    def command(self, *options: str, cluster: Any = None) -> list[str]:
        """Return `divvy verify` of a cluster's stack file as a user calls it."""
        where = (f"--file={self.stack_file(cluster)}", f"--out={self.folder / 'out'}")
        command = divvy_command("verify", *where, *options)
        if not any(option.startswith("--workload-image") for option in options):
            command.append(f"--workload-image={self.image}")
        return command

    def verify(self, *options: str, cluster: Any = None, expect: int | None = None) -> Any:
        """Run the suite as a user does; return its report."""
        return self._report(self.command(*options, cluster=cluster), expect)

    def suite(self, *options: str) -> Any:
        """Run the suite by pytest itself, with options that `divvy verify` does not have."""
        command = [sys.executable, "-m", "pytest", str(REPOSITORY / "conformance")]
        command += ["--override-ini=addopts=", "-p", "no:cacheprovider", *options]
        command += [f"--divvy-file={self.stack_file()}", f"--divvy-report={self.folder / 'out'}"]
        return self._report([*command, f"--workload-image={self.image}"], None)

    def stack_file(self, cluster: Any = None) -> Path:
        """Write the stack file of the deployment, or of another cluster; return its path."""
        stack = {"config": {"divvy:cluster": cluster or self.deployed.cluster}}
        file = self.folder / "Pulumi.tested.yaml"
        file.write_text(yaml.safe_dump(stack, sort_keys=False))
        return file

    def _report(self, command: list[str], expect: int | None) -> Any:
        done = subprocess.run(
            command,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=560,
            check=False,
        )
        assert expect is None or done.returncode == expect, done.stdout + done.stderr
        self.output = done.stdout + done.stderr
        return yaml.safe_load((self.folder / "out/report.yaml").read_text())

    def read_cdi(self, node: str, name: str = CDI) -> dict[str, Any]:
        """Return the CDI specification that the agent wrote on a node."""
        spec: dict[str, Any] = json.loads(self._cdi(node, name).read_text())
        return spec

    def limited_cdi(self, node: str) -> list[str]:
        """Return the CDI specifications of limited shares on a node: one for each limiter."""
        files = self._cdi(node, "run/cdi").glob("divvy.gpu-limited-gpu-*.json")
        return [f"run/cdi/{file.name}" for file in sorted(files)]

    def write_cdi(self, node: str, spec: dict[str, Any]) -> None:
        """Replace the CDI specification on a node."""
        replace_file(self._cdi(node, CDI), json.dumps(spec))

    @contextlib.contextmanager
    def kept_cdi(self, node: str, spec: dict[str, Any]) -> Iterator[None]:
        """Hold a changed CDI specification against the agent, which repairs it now and then.

        The repaired one is there for some milliseconds: hardly a pod starts with it.
        """
        file, text = self._cdi(node, CDI), json.dumps(spec)

        def keep() -> None:
            if file.read_text() != text:
                replace_file(file, text)

        replace_file(file, text)
        with repeating(keep, 0.002):
            yield

    @contextlib.contextmanager
    def replaced_files(self, node: str, contents: Mapping[str, str]) -> Iterator[None]:
        """Put the content of other files in place of files on a node: path → the other's path.

        An agent that runs repairs none of these: each container that starts has them.
        """

        def run(*steps: str) -> None:
            self.deployed.on_node(node, "sh", "-ec", "\n".join(steps))

        run(*(f"cp -p {path} {path}.kept" for path in contents))
        try:
            for path, other in contents.items():
                run(f"cp {other} {path}.new", f"mv {path}.new {path}")
            yield
        finally:
            run(*(f"mv {path}.kept {path}" for path in contents))

    def mounted_files(self, node: str, name: str = CDI) -> dict[str, str]:
        """Return what a CDI specification of a node mounts: name in a container → host's path."""
        mounts = self.read_cdi(node, name)["containerEdits"]["mounts"]
        return {Path(mount["containerPath"]).name: mount["hostPath"] for mount in mounts}

    def _cdi(self, node: str, name: str) -> Path:
        """Return the file of the CDI specification of a node, as this machine reaches it."""
        return Path(f"/proc/{self.deployed.lab.machine(node).pid()}/root/{name}")

    def on_node_with(self, node: str, text: str, *command: str) -> None:
        """Run a command on a node, as its root, with a text as its input."""
        entered = self.deployed.lab.machine(node).enter_command(command)
        subprocess.run(entered, input=text, text=True, check=True)

    def driver(self, node: str, *command: str) -> str:
        """Ask the simulated driver of a node for something."""
        return self.deployed.on_node(node, "divvy-sim", *command)

    @contextlib.contextmanager
    def other_gpus(self, node: str, product: str) -> Iterator[None]:
        """Put other cards into the slots of a node for a while; each has a UUID of its own."""
        before = self.deployed.on_node(node, "cat", GPUS)
        after = re.sub(r"(?m)^  product .*", f"  product {product}", before)
        after = re.sub(r"(?m)^  uuid GPU-........", "  uuid GPU-0badcafe", after)
        self._load_driver(node, after)
        try:
            yield
        finally:
            self._load_driver(node, before)

    def _load_driver(self, node: str, gpus: str) -> None:
        """End the simulated driver of a node, and start it for these GPUs."""
        self.on_node_with(node, gpus, "sh", "-c", RELOAD)

    def patch_agents(self, kind: str, patch: Iterable[Any] | dict[str, Any]) -> None:
        """Change the agents' DaemonSet behind Divvy's back."""
        self.deployed.lab.kubectl(
            "patch", "daemonset/divvy-agent", f"-n={NAMESPACE}", f"--type={kind}",
            "--patch", json.dumps(patch),
        )  # fmt: skip

    def replace_agents(self) -> None:
        """End the agents' pods of another template all at once: a rollout takes one at a time.

        Return when the new ones are ready.
        """
        selector = "--selector=app.kubernetes.io/component=agent"
        self.deployed.lab.kubectl("delete", "pods", f"-n={NAMESPACE}", selector, "--wait=false")
        self.deployed.lab.kubectl(
            "rollout", "status", "daemonset/divvy-agent", f"-n={NAMESPACE}", "--timeout=120s"
        )


def replace_file(file: Path, text: str) -> None:
    """Replace a file on a node at once: no reader sees a part of it."""
    new = file.with_suffix(".new")
    new.write_text(text)
    new.replace(file)
