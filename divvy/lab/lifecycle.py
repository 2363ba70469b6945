"""Bring a lab up, repair it, take it down."""

import contextlib
import errno
import fcntl
import json
import os
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

from divvy.lab import cgroups, control_plane, network, processes, registry
from divvy.lab.api import Api
from divvy.lab.description import Lab, lab_of
from divvy.lab.identities import ensure_identities
from divvy.lab.images import IMAGES
from divvy.lab.machine import Machine
from divvy.lab.paths import STATE
from divvy.lab.tools import CONTAINERD, KUBERNETES

_DESCRIPTION = STATE / "description.json"
_NEEDED = ("etcd", "docker-registry", "runc", "skopeo", "ip", "nft", "unshare", "nsenter")

Tell = Callable[[str], None]


class LabFailed(Exception):
    """The lab cannot be brought up, with the reason and the way out."""


def up(lab: Lab, tell: Tell, patience: float = 90.0) -> None:
    """Bring the lab up until every node is Ready; put back whatever is missing of a running one."""
    _check_machine()
    with _alone():
        _check_same(lab)
        _check_ports(lab)
        _DESCRIPTION.write_text(json.dumps(lab.document()))
        ensure_identities(lab)
        network.ensure_bridge(lab)
        control_plane.ensure_storage(lab)
        registry.ensure_registry(lab)
        tell("registry with the lab's images")
        api = Api(lab)
        with ThreadPoolExecutor(len(lab.nodes)) as pool:
            machines = [Machine(lab, node) for node in lab.nodes]
            booting = [pool.submit(_ensure_booted, machine) for machine in machines]
            control_plane.wait_ready(api)
            control_plane.ensure_controllers(lab)
            tell("control plane")
            for each in booting:
                each.result()
        for machine in machines:
            machine.join()
        _wait_nodes(api, lab, tell, patience)


def down() -> int:
    """End and remove everything of the lab, in whatever state it is; return the processes ended."""
    if os.geteuid() != 0:
        raise LabFailed("the lab needs root: run it as root")
    with _alone():
        ended = processes.kill_all()
        network.remove_network()
        cgroups.remove_all()
        _remove_state()
    return ended


def running_lab() -> Lab:
    """Return the description of the lab that is up."""
    try:
        return lab_of(json.loads(_DESCRIPTION.read_text()))
    except FileNotFoundError:
        raise LabFailed("no lab is up on this machine: divvy lab up starts one") from None


def running_machine(name: str) -> Machine:
    """Return a node of the lab that is up."""
    lab = running_lab()
    try:
        return Machine(lab, lab.node(name))
    except KeyError as error:
        raise LabFailed(error.args[0]) from None


def restart_node(machine: Machine, tell: Tell, patience: float = 90.0) -> None:
    """Shut a node down if it runs, start it again and wait until it is Ready."""
    with _alone():
        if machine.running():
            machine.shut_down()
        machine.boot()
        machine.join()
        _wait_nodes(Api(machine.lab), Lab((machine.node,)), tell, patience)


def _ensure_booted(machine: Machine) -> None:
    if machine.running():
        machine.repair_network()
    else:
        machine.boot()


def _wait_nodes(api: Api, lab: Lab, tell: Tell, patience: float) -> None:
    waiting = [node.name for node in lab.nodes]
    deadline = time.monotonic() + patience
    while waiting:
        ready = api.nodes()
        for name in [name for name in waiting if ready.get(name)]:
            waiting.remove(name)
            tell(f"node {name} is Ready")
        if time.monotonic() > deadline:
            raise LabFailed(
                f"not Ready after {patience:.0f} s: {', '.join(waiting)}; "
                f"see divvy lab logs {waiting[0]}"
            )
        if waiting:
            time.sleep(0.1)


def _check_machine() -> None:
    if os.geteuid() != 0:
        raise LabFailed("the lab needs root: run it as root")
    missing = [name for name in _NEEDED if shutil.which(name) is None]
    unbuilt = [tool.name for tool in (KUBERNETES, CONTAINERD) if not tool.bin.is_dir()]
    unbuilt += [f"image {image.name}" for image in IMAGES.values() if not image.layout.is_dir()]
    if missing or unbuilt:
        raise LabFailed(f"not set up: {', '.join(missing + unbuilt)} missing; run make setup")


def _check_same(lab: Lab) -> None:
    if not _DESCRIPTION.is_file():
        return
    kept = json.loads(_DESCRIPTION.read_text())
    wanted = json.loads(json.dumps(lab.document()))
    different = [key for key in wanted if kept.get(key) != wanted[key]]
    if different:
        raise LabFailed(
            f"the lab that is up has other {', '.join(different)} than the description: "
            "run divvy lab down first"
        )


def _check_ports(lab: Lab) -> None:
    owners = (
        ("etcd", lab.ports.etcd, "etcd"),
        ("kube-apiserver", lab.ports.api_server, "apiServer"),
        (registry.COMPONENT, lab.ports.registry, "registry"),
    )
    for component, port, key in owners:
        if not processes.find(component) and _in_use(port):
            raise LabFailed(
                f"divvy:lab.ports.{key}: another program uses port {port}; choose a free one"
            )


def _in_use(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Let one command at a time change the lab."""
    while True:
        STATE.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(STATE, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            # Whoever held the lock may have taken the lab down, directory and all.
            if STATE.is_dir() and os.path.samestat(os.fstat(descriptor), STATE.stat()):
                yield
                return
        finally:
            os.close(descriptor)


def _remove_state() -> None:
    # Nodes' mounts end with the nodes; a crash between two of their system calls leaves none
    # on this machine, because they are only ever made in a namespace of their own.
    deadline = time.monotonic() + 10
    while STATE.exists():
        try:
            shutil.rmtree(STATE)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
