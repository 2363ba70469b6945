"""The first process of a node: make the node's file system, then supervise its components.

Arguments: the node's directory and the descriptor of the Unix socket to serve.
"""

import json
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path

from lab.cluster import cgroups
from lab.cluster.description import Node, node_of
from lab.cluster.kubelet_config import CONTAINERD_SOCKET
from lab.cluster.node.root import enter_root, show_kernel_files
from lab.cluster.node.supervisor import Component, Supervisor


def main(directory: Path, descriptor: int) -> None:
    """Run the node until it is asked to stop."""
    specification = json.loads((directory / "node.json").read_text())
    node = node_of(specification["node"])
    listener = socket.socket(fileno=descriptor)
    listener.set_inheritable(False)
    cgroups.enter(cgroups.node_system(node.name))
    components = [
        Component(name, command, _open_log(directory, name))
        for name, command in specification["commands"].items()
    ]
    install = _driver_installer(node)
    systemctl = Path(__file__).with_name("systemctl").read_text()
    socket.sethostname(node.name)
    enter_root(directory, host_driver=node.driver == "host")
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    install()
    _install_systemctl(systemctl)
    # Only now can anybody connect: a node that listens has its file system and its driver.
    listener.listen(16)
    supervisor = Supervisor(components, os.environ, listener, _is_startable)
    supervisor.run()
    supervisor.stop()


def _driver_installer(node: Node) -> Callable[[], None]:
    """Load what installs the node's driver, while the code is where it was."""
    if node.gpus is None or node.driver != "simulated":
        return lambda: None
    # Only here: it knows all GPU models, and a node without GPUs need not.
    from lab.cluster import driver  # noqa: PLC0415

    def install() -> None:
        driver.DRIVER_ROOT.mkdir(parents=True)
        driver.install(node, driver.DRIVER_ROOT)
        show_kernel_files(driver.DRIVER_ROOT)

    return install


def _install_systemctl(text: str) -> None:
    """Let programs on the node restart its components as they do on a host with systemd."""
    Path("/run/systemd/system").mkdir(parents=True)
    program = Path("/usr/bin/systemctl")
    program.unlink(missing_ok=True)
    program.write_text(text)
    program.chmod(0o755)


def _open_log(directory: Path, name: str) -> int:
    log = directory / "log" / f"{name}.log"
    log.parent.mkdir(exist_ok=True)
    return os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)


def _is_startable(component: str) -> bool:
    return component != "kubelet" or _answers(CONTAINERD_SOCKET)


def _answers(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(path) == 0


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
