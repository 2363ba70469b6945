"""Any Pulumi program against any cluster, through the real command and the real SDK."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import signal
import subprocess
import termios
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.divvy_command import divvy_command, divvy_environment
from tests.engine.bare_cluster import BareCluster
from tests.engine.sdk_server import write_interpreter

_PRELUDE = """import os
import pulumi
import pulumi_kubernetes as k8s
from pulumi import Alias, CustomTimeouts, Output, ResourceOptions as R
from pulumi_kubernetes.core.v1 import ConfigMap as cm, Pod, Secret

E = os.environ.get


def workload(name, metadata=None, opts=None):
    labels = {"app": "w"}
    containers = [{"name": "c", "image": "localhost:1/none:1"}]
    template = {"metadata": {"labels": labels}, "spec": {"containers": containers}}
    spec = {"selector": {"match_labels": labels}, "template": template}
    return k8s.apps.v1.Deployment(name, metadata=metadata, spec=spec, opts=opts)


"""


@dataclass
class Trial:
    """A project whose program a test writes; environment variables drive it (``E``).

    ``sdk`` is the socket of a process that has the SDK loaded; without it each run loads its own.
    """

    folder: Path
    cluster: BareCluster
    namespace: str
    sdk: Path | None = None
    environment: dict[str, str] = field(default_factory=dict)
    project: str = "trial"

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "Pulumi.yaml").write_text(f"name: {self.project}\nruntime: python\n")
        self.configure("config: {}\n")
        if self.sdk is not None:
            write_interpreter(self.folder, self.sdk)
        self.environment.setdefault("KUBECONFIG", str(self.kubeconfig_of(self.cluster)))

    def kubeconfig_of(self, cluster: BareCluster, namespace: str | None = None) -> Path:
        """Write a kubeconfig whose context has the trial's namespace."""
        document = yaml.safe_load(cluster.kubeconfig.read_text())
        document["contexts"][0]["context"]["namespace"] = namespace or self.namespace
        path = self.folder / f"{cluster.server.rsplit(':', 1)[-1]}-{namespace}.kubeconfig"
        path.write_text(yaml.safe_dump(document))
        return path

    def configure(self, text: str) -> None:
        (self.folder / "Pulumi.dev.yaml").write_text(text)

    def write(self, program: str) -> None:
        (self.folder / "__main__.py").write_text(_PRELUDE + program)

    def start(
        self,
        *arguments: str,
        stdin: int = subprocess.DEVNULL,
        terminal: int | None = None,
        **environment: str,
    ) -> subprocess.Popen[str]:
        """Start a command; ``terminal`` becomes the one that controls it, its streams too."""
        more = {"PULUMI_CONFIG_PASSPHRASE": "open", **self.environment, **environment}
        return subprocess.Popen(
            divvy_command(*arguments, "--stack=dev"),
            cwd=self.folder,
            env=divvy_environment(more),
            stdin=stdin if terminal is None else terminal,
            stdout=subprocess.PIPE if terminal is None else terminal,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            preexec_fn=None if terminal is None else _take_terminal,
        )

    def run(self, *arguments: str, expect: int | None = 0, **environment: str) -> str:
        """Run a divvy command to its end and return what it printed; None expects any end."""
        process = self.start(*arguments, **environment)
        try:
            output, _ = process.communicate(timeout=90)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        assert expect is None or process.returncode == expect, (
            f"exit {process.returncode}: {output}"
        )
        return output

    def answered(self, *arguments: str, answer: str, **environment: str) -> str:
        """Run a command whose input is a terminal, and answer its question."""
        terminal, end = pty.openpty()
        try:
            process = self.start(*arguments, stdin=end, **environment)
            os.write(terminal, f"{answer}\n".encode())
            output, _ = process.communicate(timeout=90)
        finally:
            os.close(terminal)
            os.close(end)
        assert process.returncode == 0, output
        return output

    def up(self, *arguments: str, expect: int | None = 0, **environment: str) -> str:
        return self.run("up", "--yes", *arguments, expect=expect, **environment)

    def preview(self, *arguments: str, expect: int | None = None, **environment: str) -> str:
        return self.run("preview", *arguments, expect=expect, **environment)

    def destroy(self, *arguments: str, expect: int | None = 0, **environment: str) -> str:
        return self.run("destroy", "--yes", *arguments, expect=expect, **environment)

    def refresh(self, *arguments: str, expect: int | None = None, **environment: str) -> str:
        return self.run("refresh", "--yes", *arguments, expect=expect, **environment)

    def up_killed(self, when: Callable[[], bool], **environment: str) -> None:
        """Start an up and kill it, program and all, as soon as something is so."""
        process = self.start("up", "--yes", **environment)
        deadline = time.monotonic() + 60
        while not when() and process.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.kill()
        process.communicate(timeout=30)

    def wait_for(self, process: subprocess.Popen[str], when: Callable[[], bool]) -> None:
        """Wait until something is so while a command runs."""
        deadline = time.monotonic() + 60
        while not when():
            assert process.poll() is None, process.communicate()[0]
            assert time.monotonic() < deadline
            time.sleep(0.05)

    @property
    def journal(self) -> Path:
        return self.folder / f".pulumi/divvy/{self.project}/dev.journal"

    @property
    def checkpoint(self) -> Path:
        return self.folder / f".pulumi/stacks/{self.project}/dev.json"

    def latest(self) -> dict[str, Any]:
        """Return the recorded deployment."""
        latest: dict[str, Any] = json.loads(self.checkpoint.read_text())["checkpoint"]["latest"]
        return latest

    def resources(self) -> dict[str, dict[str, Any]]:
        """Return the recorded objects by logical name, without providers and components."""
        return {
            resource["urn"].rsplit("::", 1)[1]: resource
            for resource in self.latest().get("resources", ())
            if resource["custom"] and not resource["type"].startswith("pulumi:providers:")
        }

    def urn(self, name: str) -> str:
        return str(self.resources()[name]["urn"])

    def names(self, kind: str = "configmaps") -> set[str]:
        return self.cluster.names(kind, self.namespace)

    def uid(self, name: str, kind: str = "configmap") -> str | None:
        return self.cluster.uid(kind, name, self.namespace)

    def files(self) -> str:
        """Return the text of every file that the engine keeps."""
        files = [path for path in (self.folder / ".pulumi").rglob("*") if path.is_file()]
        return "\n".join(path.read_text() for path in files)


def _take_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
