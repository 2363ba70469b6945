"""The control plane: etcd, API server, controller manager, scheduler as plain processes."""

import time
from pathlib import Path

import httpx2

from lab.cluster import processes
from lab.cluster.addresses import Addresses
from lab.cluster.api import Api
from lab.cluster.description import Lab
from lab.cluster.errors import ControlPlaneFailed
from lab.cluster.identities import client_kubeconfig
from lab.cluster.kubeconfig import write_private
from lab.cluster.paths import LOGS, PKI, STATE
from lab.cluster.tools import kubernetes

_DATA = STATE / "etcd"
COMPONENTS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")


def ensure_storage(lab: Lab) -> None:
    """Start etcd and the API server if they do not run."""
    if not processes.find("etcd"):
        processes.start("etcd", _etcd(lab))
    # From 1.37 on, the API server gives up if etcd does not answer within 10 s.
    _wait_etcd(lab)
    if not processes.find("kube-apiserver"):
        processes.start("kube-apiserver", _api_server(lab))


def ensure_controllers(lab: Lab) -> None:
    """Start controller manager and scheduler if they do not run; the API server must."""
    for component, command in (
        ("kube-controller-manager", _controller_manager(lab)),
        ("kube-scheduler", _scheduler(lab)),
    ):
        if not processes.find(component):
            processes.start(component, command)


def wait_ready(api: Api, patience: float = 60.0) -> None:
    """Wait until the API server says it is ready; fail as soon as it has ended instead."""
    deadline = time.monotonic() + patience
    while not api.ready():
        for component in ("etcd", "kube-apiserver"):
            if not processes.find(component):
                raise ControlPlaneFailed(f"{component} has exited: {last_line(component)}")
        if time.monotonic() > deadline:
            raise ControlPlaneFailed(
                f"the API server is not ready after {patience:.0f} s: "
                "see divvy lab logs kube-apiserver"
            )
        time.sleep(0.1)


def wait_controllers(lab: Lab, api: Api, patience: float = 30.0) -> None:
    """Wait until the controllers have done what the first pods need."""
    deadline = time.monotonic() + patience
    while not api.accepts_pods():
        if time.monotonic() > deadline:
            raise ControlPlaneFailed(
                f"the namespace default has no service account after {patience:.0f} s: "
                "see divvy lab logs kube-controller-manager"
            )
        time.sleep(0.1)
        # They end themselves when they lose an API server that has just been restarted.
        ensure_controllers(lab)


def upgrade(lab: Lab, api: Api) -> None:
    """Replace the API server, then the controllers, unless they are the lab's Kubernetes."""
    _end_other_release(lab, "kube-apiserver")
    ensure_storage(lab)
    wait_ready(api)
    for component in ("kube-controller-manager", "kube-scheduler"):
        _end_other_release(lab, component)
    ensure_controllers(lab)
    wait_controllers(lab, api)


def last_line(component: str) -> str:
    """Return the last line of a component's log."""
    lines = (LOGS / f"{component}.log").read_text(errors="replace").splitlines()
    return lines[-1] if lines else "it wrote nothing"


def _program(lab: Lab, component: str) -> str:
    return str(kubernetes(lab.kubernetes).bin / component)


def _end_other_release(lab: Lab, component: str) -> None:
    pid = processes.find(component)
    if pid and str(Path(f"/proc/{pid}/exe").resolve()) != _program(lab, component):
        # One that is still ending would be taken for one that runs, after an upgrade was killed.
        processes.kill_all(component)


def _wait_etcd(lab: Lab, patience: float = 60.0) -> None:
    deadline = time.monotonic() + patience
    while not _etcd_answers(lab):
        if not processes.find("etcd"):
            raise ControlPlaneFailed(f"etcd has exited: {last_line('etcd')}")
        if time.monotonic() > deadline:
            raise ControlPlaneFailed(
                f"etcd does not answer after {patience:.0f} s: see divvy lab logs etcd"
            )
        time.sleep(0.05)


def _etcd_answers(lab: Lab) -> bool:
    try:
        # The lab is on this machine: no proxy is on the way.
        return httpx2.get(f"{_etcd_address(lab)}/health", timeout=5, trust_env=False).is_success
    except httpx2.HTTPError:
        return False


def _etcd_address(lab: Lab) -> str:
    return f"http://127.0.0.1:{lab.ports.etcd}"


def _etcd(lab: Lab) -> list[str]:
    client = _etcd_address(lab)
    return [
        "etcd",
        f"--data-dir={_DATA}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        "--listen-peer-urls=http://127.0.0.1:0",
        # A lab is thrown away after a power cut, so it need not wait for the disk.
        "--unsafe-no-fsync",
        # The API server's caches learn from these that nothing is new; this etcd sends none on
        # request. Without, a watch of something that does not change fails as "too new".
        "--experimental-watch-progress-notify-interval=500ms",
        "--logger=zap",
        "--log-level=warn",
    ]


def _api_server(lab: Lab) -> list[str]:
    addresses = Addresses(lab.network)
    return [
        _program(lab, "kube-apiserver"),
        f"--etcd-servers={_etcd_address(lab)}",
        f"--bind-address={addresses.host}",
        f"--advertise-address={addresses.host}",
        f"--secure-port={lab.ports.api_server}",
        f"--service-cluster-ip-range={addresses.services}",
        f"--client-ca-file={PKI / 'ca.crt'}",
        f"--tls-cert-file={PKI / 'apiserver.crt'}",
        f"--tls-private-key-file={PKI / 'apiserver.key'}",
        f"--kubelet-certificate-authority={PKI / 'ca.crt'}",
        f"--kubelet-client-certificate={PKI / 'apiserver-kubelet-client.crt'}",
        f"--kubelet-client-key={PKI / 'apiserver-kubelet-client.key'}",
        # Nodes' names resolve nowhere; logs and exec must use their addresses.
        "--kubelet-preferred-address-types=InternalIP",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-account-key-file={PKI / 'sa.pub'}",
        f"--service-account-signing-key-file={PKI / 'sa.key'}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        # There is no kube-proxy on this machine itself, so Services are reached by endpoint.
        "--enable-aggregator-routing=true",
        "--profiling=false",
    ]


def _controller_manager(lab: Lab) -> list[str]:
    config = STATE / "controller-manager.kubeconfig"
    write_private(config, client_kubeconfig(lab, "controller-manager"))
    return [
        _program(lab, "kube-controller-manager"),
        f"--kubeconfig={config}",
        f"--service-account-private-key-file={PKI / 'sa.key'}",
        f"--root-ca-file={PKI / 'ca.crt'}",
        f"--cluster-signing-cert-file={PKI / 'ca.crt'}",
        f"--cluster-signing-key-file={PKI / 'ca.key'}",
        "--use-service-account-credentials",
        "--leader-elect=false",
        # With the default of 20 a second it needs four seconds to make its own accounts.
        "--kube-api-qps=200",
        "--kube-api-burst=400",
        "--secure-port=0",
        "--profiling=false",
    ]


def _scheduler(lab: Lab) -> list[str]:
    config = STATE / "scheduler.kubeconfig"
    write_private(config, client_kubeconfig(lab, "scheduler"))
    return [
        _program(lab, "kube-scheduler"),
        f"--kubeconfig={config}",
        "--leader-elect=false",
        "--secure-port=0",
        "--profiling=false",
    ]
