"""Who is who in the lab's cluster: one certificate and kubeconfig per component and node."""

import shutil
from pathlib import Path

from lab.cluster import certificates
from lab.cluster.addresses import Addresses
from lab.cluster.description import Lab
from lab.cluster.kubeconfig import kubeconfig, write_private
from lab.cluster.paths import KUBECONFIG, PKI

_CLIENTS = (
    # file, user, group
    ("admin", "divvy-lab-admin", "system:masters"),
    ("controller-manager", "system:kube-controller-manager", None),
    ("scheduler", "system:kube-scheduler", None),
    ("kube-proxy", "system:kube-proxy", None),
    ("apiserver-kubelet-client", "kube-apiserver-kubelet-client", "system:masters"),
)


def ensure_identities(lab: Lab) -> None:
    """Create all certificates and kubeconfigs of a new lab; keep those of a running one."""
    if not PKI.is_dir():
        unfinished = PKI.with_name("pki.new")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True, mode=0o700)
        _create(lab, unfinished)
        unfinished.rename(PKI)
    if not KUBECONFIG.is_file():
        write_private(KUBECONFIG, client_kubeconfig(lab, "admin"))


def client_kubeconfig(lab: Lab, name: str) -> str:
    """Return the kubeconfig of one identity."""
    return kubeconfig(server(lab), PKI / "ca.crt", PKI / f"{name}.crt", PKI / f"{name}.key")


def server(lab: Lab) -> str:
    """Return the API server's URL."""
    return f"https://{Addresses(lab.network).host}:{lab.ports.api_server}"


def node_identity(name: str) -> str:
    """Return the file name of a kubelet's client certificate."""
    return f"kubelet-{name}"


def node_serving(name: str) -> str:
    """Return the file name of a kubelet's serving certificate."""
    return f"kubelet-{name}-server"


def _create(lab: Lab, directory: Path) -> None:
    addresses = Addresses(lab.network)
    authority = certificates.create_authority(directory)
    certificates.create_service_account_key(directory)
    names = ["kubernetes", "kubernetes.default", "kubernetes.default.svc"]
    names += ["kubernetes.default.svc.cluster.local", "localhost"]
    hosts = [*names, str(addresses.host), str(addresses.kubernetes_service)]
    authority.issue(directory, "apiserver", "kube-apiserver", hosts=hosts)
    for name, user, group in _CLIENTS:
        authority.issue(directory, name, user, group)
    for node in lab.nodes:
        user = f"system:node:{node.name}"
        authority.issue(directory, node_identity(node.name), user, "system:nodes")
        authority.issue(
            directory,
            node_serving(node.name),
            user,
            "system:nodes",
            hosts=[node.name, str(addresses.node(node.index))],
        )
