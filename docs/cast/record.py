"""Record docs/cast/change.cast: python -m docs.cast.record, as root.

Plan, diff, up and top on a lab of its own with one node, which it takes down. What is shown is
what the commands print, when they print it; only the typing is imitated. The format is
asciinema's, version 2.
"""

from __future__ import annotations

import json
import os
import pty
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from lab.cluster.paths import REPOSITORY
from lab.cluster.tools import KUBERNETES

CAST = Path(__file__).with_name("change.cast")
COLUMNS, ROWS = 92, 38
LAB = "cast"
_NETWORK, _REGISTRY = "10.149", "10.149.0.1:15749"
_NODE = "gpu-1"
STACK = f"""\
config:
  divvy:lab:
    network: {_NETWORK}.0.0/16
    ports: {{apiServer: 16749, etcd: 12749, registry: 15749}}
    nodeStatusUpdateFrequency: 1s
    syncFrequency: 10s
    nodes:
      - name: {_NODE}
        labels: {{node.kubernetes.io/instance-type: gpu-a100}}
        model: A100-SXM4-40GB
        count: 2
        driver: simulated
        driverVersion: 550.163.01
  divvy:cluster:
    kubeconfig: /var/lib/divvy-{LAB}/kubeconfig
    profiles:
      whole: {{}}
      split:
        - {{devices: [0], mig: {{3g.20gb: 1, 2g.10gb: 1, 1g.5gb: 2}}}}
        - timeSlicing:
            {{replicas: 4, memoryLimit: {{limit: auto, action: prevent}}, compute: share}}
    pools:
      notebooks:
        select: {{node.kubernetes.io/instance-type: gpu-a100}}
        hardware: {{model: A100-SXM4-40GB, gpus: 2, count: 1}}
        profile: whole
    driver: {{root: /run/nvidia/driver}}
    plugin:
      image: {{registry: "{_REGISTRY}", base: "{_REGISTRY}/divvy/base:bookworm", insecure: true}}
"""
EDIT = "sed -i 's/profile: whole/profile: split/' stacks/Pulumi.prod.yaml"
COMMANDS = (
    "divvy plan -s prod",
    EDIT,
    "divvy diff HEAD prod",
    "divvy up -s prod --yes",
    "kubectl apply -f pods.yaml",
    "kubectl get pods",
    "divvy top -s prod --once",
)
# name, resource, MiB
_PODS = (
    ("segmentation", "nvidia.com/mig-3g.20gb", 9000),
    ("notebook-anna", "nvidia.com/mig-1g.5gb", 1500),
    ("notebook-bo", "nvidia.com/gpu.shared", 3000),
    ("notebook-cy", "nvidia.com/gpu.shared", 6200),
)
# Seconds: between two keys, before the first one, and to read a line of what a command prints.
_KEY, _PAUSE, _LINE, _LONGEST = 0.045, 0.8, 0.18, 4.0


@dataclass
class Recording:
    """What a terminal shows, and when; ``skipped`` is time that is not shown."""

    events: list[tuple[float, str]] = field(default_factory=list)
    _began: float = field(default_factory=time.monotonic)

    def write(self, text: str) -> None:
        """Show a text now."""
        self.events.append((time.monotonic() - self._began, text))

    def type(self, command: str) -> None:
        """Show how a command is typed."""
        self.write("\x1b[1;32m$\x1b[0m ")
        time.sleep(_PAUSE)
        for character in command:
            self.write(character)
            time.sleep(_KEY)
        self.write("\r\n")

    def lines(self) -> Iterator[str]:
        """Yield the lines of the file."""
        header = {"version": 2, "width": COLUMNS, "height": ROWS, "idle_time_limit": _LONGEST}
        header["title"] = "Divvy: plan, diff, up, top"  # type: ignore[assignment]
        yield json.dumps(header)
        for at, text in self.events:
            yield json.dumps([round(at, 3), "o", text], ensure_ascii=False)


def write_project(folder: Path) -> None:
    """Write the project that the recording is about."""
    (folder / "stacks").mkdir(parents=True)
    (folder / "Pulumi.yaml").write_text(
        f"name: divvy\nruntime: python\nmain: {REPOSITORY}\nstackConfigDir: stacks\n"
    )
    (folder / ".gitignore").write_text(".pulumi/\nout/\n")
    (folder / "stacks/Pulumi.prod.yaml").write_text(STACK)
    identity = ("-c", "user.name=divvy", "-c", "user.email=divvy@example")
    for arguments in (("init", "--quiet"), ("add", "."), (*identity, "commit", "-qm", "prod")):
        subprocess.run(("git", *arguments), cwd=folder, check=True)


def main() -> None:
    """Record it."""
    with tempfile.TemporaryDirectory(prefix="divvy-cast-") as text:
        folder = Path(text)
        write_project(folder)
        environment = _environment(folder)

        def run(*command: str) -> None:
            subprocess.run(command, cwd=folder, env=environment, check=True)

        run("divvy", "lab", "up", "--file", "stacks/Pulumi.prod.yaml")
        try:
            run("divvy", "up", "-s", "prod", "--yes")
            run("divvy", "verify", "-s", "prod", "--select", "WORK-01")
            (folder / "pods.yaml").write_text(_pods(_workloads(folder)))
            recording = Recording()
            for command in COMMANDS:
                if command == "kubectl get pods":
                    # kubectl logs an error of its own where several pods get ready: not shown.
                    wait = ("kubectl", "wait", "pod", "--all", "--for", "condition=Ready")
                    subprocess.run(wait, env=environment, check=True, capture_output=True)
                _show(recording, command, folder, environment)
        finally:
            run("divvy", "lab", "down")
    CAST.write_text("\n".join(recording.lines()) + "\n", encoding="utf-8")
    print(f"{CAST}: {CAST.stat().st_size:,} bytes; now python -m docs.generate draws it")


def _environment(folder: Path) -> dict[str, str]:
    programs = folder / ".programs"
    programs.mkdir()
    (folder / ".git/info/exclude").write_text(".programs\npods.yaml\n")
    for name, program in {
        "divvy": Path(sys.executable).with_name("divvy"),
        "kubectl": KUBERNETES.bin / "kubectl",
    }.items():
        (programs / name).symlink_to(program)
    return {
        **os.environ,
        "DIVVY_LAB": LAB,
        "KUBECONFIG": f"/var/lib/divvy-{LAB}/kubeconfig",
        "PATH": f"{programs}:{os.environ['PATH']}",
        "TERM": "xterm-256color",
    }


def _workloads(folder: Path) -> str:
    """Return the image that verify has pushed."""
    report = (folder / "out/conformance/report.yaml").read_text()
    return next(
        line.removeprefix("  image: ") for line in report.splitlines() if "  image: " in line
    )


def _pods(image: str) -> str:
    return "".join(
        f"""---
apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
    - name: main
      image: {image}
      command: [mem-hog, --mib={mib}, --hold=600]
      resources: {{limits: {{{resource}: 1}}}}
"""
        for name, resource, mib in _PODS
    )


def _show(recording: Recording, command: str, folder: Path, environment: dict[str, str]) -> None:
    """Type a command, run it in a terminal of its own, and leave time to read."""
    recording.type(command)
    lines = 0
    for text in _output(command, folder, environment):
        recording.write(text)
        lines += text.count("\n")
    time.sleep(min(_LINE * lines, _LONGEST))


def _output(command: str, folder: Path, environment: dict[str, str]) -> Iterator[str]:
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(folder)
        sized = f"stty cols {COLUMNS} rows {ROWS}; {command}"
        bash = shutil.which("bash") or "/bin/bash"
        os.execve(bash, ["bash", "-c", sized], environment)
    pending = b""
    while True:
        try:
            read = os.read(terminal, 65536)
        except OSError:  # the terminal's other end is closed
            break
        pending += read
        whole = pending.decode("utf-8", errors="ignore")
        pending = pending[len(whole.encode()) :]
        yield whole
    os.close(terminal)
    _, status = os.waitpid(process, 0)
    code = os.waitstatus_to_exitcode(status)
    # diff tells a change by 2
    if code not in (0, 2):
        raise SystemExit(f"{command}: exit code {code}")


if __name__ == "__main__":
    main()
