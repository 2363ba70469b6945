"""A node seen from this machine: start it, ask it, enter it, end it."""

import json
import os
import signal
import socket
import struct
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lab.cluster import cgroups, network, processes
from lab.cluster.description import Lab, Node
from lab.cluster.errors import NodeFailed
from lab.cluster.kubeconfig import write_private
from lab.cluster.kubelet_config import kubelet_arguments
from lab.cluster.node.root import upper
from lab.cluster.node_files import write_node_files
from lab.cluster.paths import node_state
from lab.cluster.tools import containerd, kubernetes

RUNTIME = ("containerd",)
CLUSTER = ("kubelet", "kube-proxy")
_DRIVER_ROOT = "/run/nvidia/driver"
_SO_PEERCRED = struct.Struct("3i")


class Machine:
    """One node of a lab."""

    def __init__(self, lab: Lab, node: Node):
        self.lab = lab
        self.node = node
        self.directory = node_state(node.name)
        self._socket = self.directory / "control.sock"
        self._mark = f"node/{node.name}"
        self._specification = self.directory / "node.json"
        self._kubernetes = kubernetes(lab.kubernetes).bin
        self._containerd = containerd(node.containerd.version).bin

    def running(self) -> bool:
        """Return whether the node's first process lives."""
        try:
            self.pid()
        except NodeFailed:
            return False
        return True

    def pid(self) -> int:
        """Return this machine's number of the node's first process."""
        with self._connect() as client:
            peer = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _SO_PEERCRED.size)
        return int(_SO_PEERCRED.unpack(peer)[0])

    def boot(self) -> None:
        """Start the node up to its container runtime; kubelet joins it to the cluster later."""
        self.directory.mkdir(parents=True, exist_ok=True)
        # A node that has been complete once keeps its disk, and with it its configuration.
        if not self._specification.is_file():
            write_node_files(self.lab, self.node, upper(self.directory))
        self._specify(self._commands())
        # One that is still starting, for an up that was killed, must not start beside this one.
        processes.kill_all(self._mark)
        # As after a power cut: kubelet would look long for the containers of leftover groups.
        cgroups.remove(cgroups.node_root(self.node.name))
        cgroups.create(cgroups.node_system(self.node.name))
        self._spawn()
        self.repair()

    def repair(self) -> None:
        """Put back what is missing of a node that runs: its network, its container runtime."""
        network.connect_node(self.lab, self.node, self.pid())
        self.ask({"do": "start", "components": RUNTIME})

    def join(self) -> None:
        """Start kubelet and kube-proxy."""
        self.ask({"do": "start", "components": CLUSTER})

    def ask(self, request: dict[str, Any], patience: float = 30.0) -> dict[str, Any]:
        """Send a request to the node's supervisor and return its answer."""
        with self._connect() as client:
            client.settimeout(patience)
            client.sendall(json.dumps(request).encode() + b"\n")
            try:
                reply = json.loads(client.makefile().readline())
            except (OSError, ValueError) as error:
                raise NodeFailed(f"node {self.node.name} does not answer: {error}") from error
        if "error" in reply:
            raise NodeFailed(f"node {self.node.name}: {reply['error']}")
        return dict(reply)

    def restart(self, component: str) -> None:
        """Restart one of the node's components; its pods keep running."""
        if component not in RUNTIME + CLUSTER:
            known = ", ".join(RUNTIME + CLUSTER)
            raise NodeFailed(f"a node has no component {component}; it has {known}")
        self.ask({"do": "restart", "component": component})

    def outdated(self) -> bool:
        """Return whether the node runs other programs or another driver than its description."""
        return self.needs_boot() or bool(self._other_commands())

    def needs_boot(self) -> bool:
        """Return whether the node has another driver than its description: shut it down first."""
        started = json.loads(self._specification.read_text())["node"]
        return bool(started["driver_version"] != self.node.driver_version)

    def upgrade(self) -> None:
        """Replace what is outdated; pods keep running, unless the node was shut down for it."""
        if self.needs_boot():
            self.boot()
            self.join()
            return
        # containerd finds its shim by the path.
        path = self._environment()["PATH"]
        self.ask({"do": "replace", "commands": self._other_commands(), "path": path})
        self._specify(self._commands())

    def kill(self) -> None:
        """Kill the node at once, as a power cut does."""
        pid = self.pid()
        processes.send(pid, signal.SIGKILL)
        self._wait_gone(pid)

    def shut_down(self, patience: float = 15.0) -> None:
        """End the node's components and then the node."""
        pid = self.pid()
        processes.send(pid, signal.SIGTERM)
        self._wait_gone(pid, patience)

    def enter_command(self, command: Sequence[str]) -> list[str]:
        """Return the command line that runs a command on the node."""
        own = [self._kubernetes, self._containerd, f"{_DRIVER_ROOT}/usr/bin"]
        path = ":".join([*map(str, own), os.environ.get("PATH", "")])
        inside = ["/usr/bin/env", f"PATH={path}", *command]
        namespaces = ["--mount", "--uts", "--ipc", "--net", "--pid"]
        return ["nsenter", "--target", str(self.pid()), *namespaces, "--", *inside]

    def logs(self) -> list[Path]:
        """Return the logs of the node's components."""
        return sorted((self.directory / "log").glob("*.log"))

    def _other_commands(self) -> dict[str, list[str]]:
        started = json.loads(self._specification.read_text())["commands"]
        return {
            name: command for name, command in self._commands().items() if started[name] != command
        }

    def _commands(self) -> dict[str, list[str]]:
        kubelet = str(self._kubernetes / "kubelet")
        proxy = str(self._kubernetes / "kube-proxy")
        return {
            "containerd": [str(self._containerd / "containerd")],
            "kubelet": [kubelet, *kubelet_arguments(self.lab, self.node)],
            "kube-proxy": [proxy, "--config=/etc/kubernetes/kube-proxy.yaml"],
        }

    def _specify(self, commands: Mapping[str, Sequence[str]]) -> None:
        contents = {"node": asdict(self.node), "commands": commands}
        write_private(self._specification, json.dumps(contents))

    def _spawn(self) -> None:
        self._socket.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(self._socket))
            descriptor = listener.fileno()
            command = [
                *("unshare", "--pid", "--fork", "--mount", "--net", "--uts", "--ipc"),
                *("--propagation", "private", "--"),
                *(sys.executable, "-P", "-m", "lab.cluster.node"),
                *(str(self.directory), str(descriptor)),
            ]
            log = self.directory / "log" / "node.log"
            processes.detach(command, self._environment(), log, [descriptor])
        self._wait_listening()

    def _environment(self) -> dict[str, str]:
        return processes.environment(self._mark, path=[self._kubernetes, self._containerd])

    def _wait_listening(self, patience: float = 30.0) -> None:
        deadline = time.monotonic() + patience
        while not self.running():
            if not processes.find(self._mark) or time.monotonic() > deadline:
                raise NodeFailed(
                    f"node {self.node.name} does not start ({self._last_words()}): "
                    f"see divvy lab logs {self.node.name}"
                )
            time.sleep(0.02)

    def _last_words(self) -> str:
        lines = (self.directory / "log" / "node.log").read_text(errors="replace").splitlines()
        return lines[-1].strip() if lines else "it said nothing"

    def _wait_gone(self, pid: int, patience: float = 15.0) -> None:
        deadline = time.monotonic() + patience
        while processes.find(self._mark):
            if time.monotonic() > deadline:
                processes.send(pid, signal.SIGKILL)
            time.sleep(0.02)

    def _connect(self) -> socket.socket:
        client = socket.socket(socket.AF_UNIX)
        client.settimeout(30)
        try:
            client.connect(str(self._socket))
        except OSError as error:
            client.close()
            raise NodeFailed(f"node {self.node.name} does not run") from error
        return client
