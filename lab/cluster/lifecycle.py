"""Bring a lab up, repair it, take it down."""

import contextlib
import errno
import fcntl
import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from lab.cluster import cgroups, control_plane, network, processes, registry
from lab.cluster.addresses import Addresses
from lab.cluster.api import Api
from lab.cluster.description import Lab, Node, lab_of
from lab.cluster.errors import LabFailed
from lab.cluster.identities import ensure_identities
from lab.cluster.images import IMAGES
from lab.cluster.inotify import ensure_instances, shortage
from lab.cluster.kubeconfig import write_private
from lab.cluster.machine import Machine
from lab.cluster.paths import KUBECONFIG, LAB, NAME, STATE, name_problem
from lab.cluster.tools import (
    CONTAINERD,
    CONTAINERD_VERSIONS,
    KUBERNETES,
    KUBERNETES_VERSIONS,
    ToolBuildFailed,
    containerd,
    kubernetes,
)

_DESCRIPTION = STATE / "description.json"
_IP_FREEBIND = 15
_ENDING_SECONDS = 3.0
_LONG_AGO = datetime.min.replace(tzinfo=UTC)
_NEEDED = ("etcd", "docker-registry", "runc", "skopeo", "ip", "nft", "unshare", "nsenter")

Tell = Callable[[str], None]


def up(lab: Lab, tell: Tell, patience: float = 90.0) -> None:
    """Bring the lab up until every node is Ready; put back whatever is missing of a running one."""
    _check_machine()
    _build_releases(lab, tell)
    _build_driver(lab, tell)
    with _alone():
        _check_same(lab)
        network.check_free(lab)
        _check_ports(lab)
        raised = ensure_instances()
        if raised:
            tell(raised)
        write_private(_DESCRIPTION, json.dumps(lab.document()))
        ensure_identities(lab)
        network.ensure_bridge(lab)
        note = network.firewall_note()
        if note:
            tell(note)
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
            since = {m.node.name: boot.result() for m, boot in zip(machines, booting, strict=True)}
        for machine in machines:
            machine.join()
        _wait_nodes(api, since, tell, patience)
        control_plane.wait_controllers(lab, api)


def upgrade(lab: Lab, tell: Tell, drain: bool, patience: float = 90.0) -> None:
    """Take the running lab to the versions of its description: control plane, then each node."""
    _check_machine()
    _build_releases(lab, tell)
    _build_driver(lab, tell)
    with _alone():
        _check_upgrade(running_lab(), lab)
        # A node that is restarted halfway comes back upgraded.
        write_private(_DESCRIPTION, json.dumps(lab.document()))
        api = Api(lab)
        control_plane.upgrade(lab, api)
        tell(f"control plane is {KUBERNETES_VERSIONS[lab.kubernetes]}")
        for machine in (Machine(lab, node) for node in lab.nodes):
            if machine.outdated():
                with _drained(machine) if drain else contextlib.nullcontext():
                    if machine.needs_boot() and machine.running():
                        machine.shut_down()
                    # The new kubelet may report before this process goes on, and then for minutes
                    # nothing more: its status stays the same.
                    since = {machine.node.name: _past_second()}
                    machine.upgrade()
                    # While containerd is replaced, kubelet goes on reporting that it is Ready.
                    _wait_nodes(api, since, tell, patience, _versions(lab, machine.node))
            # Also of an upgrade that was killed when it had replaced everything.
            _end_drain(machine)


def down() -> int:
    """Terminate and remove everything of the lab; return the number of processes terminated."""
    _check_name_and_root()
    with _alone():
        ended = processes.kill_all()
        network.remove_network()
        cgroups.remove()
        _remove_state()
    return ended


def running_lab() -> Lab:
    """Return the description of the lab that is up."""
    _check_name_and_root()
    try:
        return lab_of(json.loads(_DESCRIPTION.read_text()))
    except FileNotFoundError:
        lab = "no lab" if "DIVVY_LAB" not in os.environ else f"no lab {NAME} (DIVVY_LAB)"
        raise LabFailed(f"{lab} is up on this machine: divvy lab up starts one") from None
    except (ValueError, KeyError, TypeError):
        raise LabFailed(
            "the lab that is up was started by another version of Divvy: run divvy lab down first"
        ) from None


def running_machine(name: str) -> Machine:
    """Return a node of the lab that is up."""
    _check_sources()
    lab = running_lab()
    try:
        return Machine(lab, lab.node(name))
    except KeyError as error:
        raise LabFailed(error.args[0]) from None


def restart_node(machine: Machine, tell: Tell, patience: float = 90.0) -> None:
    """Shut a node down if it runs, start it again and wait until it is Ready."""
    _build_driver(machine.lab, tell)
    with _alone():
        if machine.running():
            machine.shut_down()
        since = {machine.node.name: _boot(machine)}
        machine.join()
        _wait_nodes(Api(machine.lab), since, tell, patience)


def _ensure_booted(machine: Machine) -> datetime:
    """Start a node unless it runs; return since when its word counts."""
    if not machine.running():
        return _boot(machine)
    machine.repair()
    return _LONG_AGO


def _boot(machine: Machine) -> datetime:
    began = _now()
    machine.boot()
    return began


def _now() -> datetime:
    # The API server has whole seconds only.
    return datetime.now(UTC).replace(microsecond=0)


def _versions(lab: Lab, node: Node) -> tuple[str, str]:
    """Return the versions of kubelet and container runtime that a node's status will name."""
    containerd_version = CONTAINERD_VERSIONS[node.containerd.version].removeprefix("v")
    return KUBERNETES_VERSIONS[lab.kubernetes], f"containerd://{containerd_version}"


def _past_second() -> datetime:
    """Return this second once it is over: nothing reported in it counts, all from now on does."""
    second = _now()
    while _now() <= second:
        time.sleep(0.01)
    return second


def _wait_nodes(
    api: Api,
    since: Mapping[str, datetime],
    tell: Tell,
    patience: float,
    versions: tuple[str, str] | None = None,
) -> None:
    waiting = list(since)
    deadline = time.monotonic() + patience
    while waiting:
        # The word of a node's former life would stand for most of a minute.
        ready = api.ready_nodes()
        for name, node in ready.items():
            is_new = name in waiting and node.reported > since[name]
            if is_new and versions in (None, node.versions):
                waiting.remove(name)
                tell(f"node {name} is Ready")
        if time.monotonic() > deadline:
            raise LabFailed(
                f"not Ready after {patience:.0f} s: {', '.join(waiting)}; "
                f"{shortage() or f'see divvy lab logs {waiting[0]}'}"
            )
        if waiting:
            time.sleep(0.1)


def _check_name_and_root() -> None:
    problem = name_problem()
    if problem:
        raise LabFailed(problem)
    if os.geteuid() != 0:
        raise LabFailed("the lab needs root: run it as root")


def _check_sources() -> None:
    if not (LAB / "tools").is_dir():
        raise LabFailed(
            "the lab is built from Divvy's sources, which an installed package does not have: "
            "clone Divvy's repository and run `make setup-lab` there"
        )


def _check_machine() -> None:
    _check_sources()
    _check_name_and_root()
    missing = [name for name in _NEEDED if shutil.which(name) is None]
    unbuilt = [tool.name for tool in (KUBERNETES, CONTAINERD) if not tool.bin.is_dir()]
    unbuilt += [f"image {image.name}" for image in IMAGES.values() if not image.layout.is_dir()]
    if missing or unbuilt:
        raise LabFailed(f"not set up: {', '.join(missing + unbuilt)} missing; run make setup")


def _build_releases(lab: Lab, tell: Tell) -> None:
    """Build the releases of Kubernetes and containerd that set-up does not build."""
    releases = {f"Kubernetes {lab.kubernetes}": kubernetes(lab.kubernetes)}
    for version in sorted({node.containerd.version for node in lab.nodes}):
        releases[f"containerd {version}"] = containerd(version)
    for name, tool in releases.items():
        if tool.bin.is_dir():
            continue
        tell(f"{name} is built first, once; this takes minutes")
        try:
            tool.build()
        except ToolBuildFailed as error:
            raise LabFailed(str(error)) from error


def _build_driver(lab: Lab, tell: Tell) -> None:
    """Build the simulated driver here, once, so that no node has to."""
    if any(node.gpus and node.driver == "simulated" for node in lab.nodes):
        # Loads the model, which commands on a running lab do not need.
        from lab.cluster.simulated_driver import BUILT, build  # noqa: PLC0415

        if not BUILT.is_dir():
            tell("the simulated driver is built first, once; this takes a minute")
        build()


def _check_same(lab: Lab) -> None:
    if not _DESCRIPTION.is_file():
        return
    running = running_lab()
    different = _differences(running, lab)
    if different:
        raise LabFailed(
            f"the lab that is up has other {', '.join(different)} than the description: "
            "run divvy lab down first"
        )
    if running != lab:
        raise LabFailed(
            "the lab that is up has other versions than the description: "
            "run divvy lab upgrade, or divvy lab down first"
        )


def _check_upgrade(running: Lab, lab: Lab) -> None:
    different = _differences(running, lab)
    if different:
        raise LabFailed(
            f"the lab that is up has other {', '.join(different)} than the description, and an "
            "upgrade changes the versions of Kubernetes, containerd and drivers alone"
        )
    _check_order("the lab", "Kubernetes", KUBERNETES_VERSIONS, running.kubernetes, lab.kubernetes)
    for before, after in zip(running.nodes, lab.nodes, strict=True):
        versions = before.containerd.version, after.containerd.version
        _check_order(f"node {before.name}", "containerd", CONTAINERD_VERSIONS, *versions)


def _check_order(where: str, what: str, releases: Iterable[str], before: str, after: str) -> None:
    order = list(releases)
    if order.index(after) < order.index(before):
        raise LabFailed(
            f"{where} runs {what} {before}, and {what} cannot be taken back to {after}: "
            "run divvy lab down first"
        )


def _differences(running: Lab, lab: Lab) -> list[str]:
    """Return the keys of the description in which two labs differ by more than versions."""
    present, wanted = running.without_versions().document(), lab.without_versions().document()
    return [key for key in wanted if present[key] != wanted[key]]


@contextlib.contextmanager
def _drained(machine: Machine) -> Iterator[None]:
    """Move a node's pods elsewhere as kubectl drain does, and let pods in again afterwards."""
    name = machine.node.name
    kubectl = partial(_kubectl, machine.lab)
    if not kubectl("get", "node", name, "--output=jsonpath={.spec.unschedulable}"):
        # The next upgrade removes this cordon, also if this process is killed.
        _own_cordon(machine).touch()
    try:
        kubectl("drain", name, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=5m")
        yield
    finally:
        _end_drain(machine)


def _end_drain(machine: Machine) -> None:
    """Let pods in again on a node that an upgrade has cordoned."""
    if _own_cordon(machine).exists():
        _kubectl(machine.lab, "uncordon", machine.node.name)
        _own_cordon(machine).unlink()


def _own_cordon(machine: Machine) -> Path:
    return machine.directory / "cordoned-for-an-upgrade"


def _kubectl(lab: Lab, *arguments: str) -> str:
    command = [str(KUBERNETES.bin / "kubectl"), f"--kubeconfig={KUBECONFIG}", *arguments]
    direct = network.past_proxies(lab)
    done = subprocess.run(command, env=direct, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LabFailed(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


def _check_ports(lab: Lab) -> None:
    host = str(Addresses(lab.network).host)
    owners = (
        ("etcd", "127.0.0.1", lab.ports.etcd, "etcd"),
        ("kube-apiserver", host, lab.ports.api_server, "apiServer"),
        (registry.COMPONENT, host, lab.ports.registry, "registry"),
    )
    # A component that was killed a moment ago holds its port until all of it has ended.
    deadline = time.monotonic() + _ENDING_SECONDS
    for component, address, port, key in owners:
        while not processes.find(component) and _in_use(address, port):
            if time.monotonic() > deadline:
                raise LabFailed(
                    f"divvy:lab.ports.{key}: another program uses port {port}; choose a free one"
                )
            time.sleep(0.1)


def _in_use(address: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # The bridge, and with it the address, may not be there yet.
        probe.setsockopt(socket.IPPROTO_IP, _IP_FREEBIND, 1)
        try:
            probe.bind((address, port))
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
                try:
                    yield
                finally:
                    # What has changed nothing leaves nothing.
                    with contextlib.suppress(OSError):
                        STATE.rmdir()
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
