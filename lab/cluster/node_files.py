"""Write what makes a machine this node of this cluster into the node's own file system."""

import shutil
from pathlib import Path

from lab.cluster.containerd_config import config_toml, hosts_toml
from lab.cluster.description import Lab, Node
from lab.cluster.identities import client_kubeconfig, node_identity, node_serving
from lab.cluster.kubeconfig import write_private
from lab.cluster.kubelet_config import (
    KUBELET_KUBECONFIG,
    NODE_PKI,
    PROXY_KUBECONFIG,
    kube_proxy,
    kubelet,
    pod_network,
)
from lab.cluster.paths import PKI
from lab.cluster.registry import address, reference

CNI_PLUGINS = "/usr/lib/cni"
_CAP_SYS_RESOURCE = 24


def write_node_files(lab: Lab, node: Node, root: Path) -> None:
    """Write the configuration of a new node below root."""
    registry = address(lab)
    runtime = config_toml(
        node.containerd, reference(lab, "pause"), CNI_PLUGINS, _may_lower_oom_score()
    )
    _write(root, "/etc/containerd/config.toml", runtime)
    _write(root, f"/etc/containerd/certs.d/{registry}/hosts.toml", hosts_toml(registry))
    _write(root, "/etc/cni/net.d/10-divvy-lab.conflist", pod_network(lab, node))
    _write(root, "/etc/hostname", f"{node.name}\n")
    _write(root, "/etc/kubernetes/kube-proxy.yaml", kube_proxy(lab, node))
    _write(root, "/etc/kubernetes/kubelet.yaml", kubelet(lab, node))
    _write(root, KUBELET_KUBECONFIG, client_kubeconfig(lab, node_identity(node.name)))
    _write(root, PROXY_KUBECONFIG, client_kubeconfig(lab, "kube-proxy"))
    pki = root / NODE_PKI.lstrip("/")
    pki.mkdir(exist_ok=True)
    shutil.copy(PKI / "ca.crt", pki)
    for suffix in ("crt", "key"):
        shutil.copy(PKI / f"{node_serving(node.name)}.{suffix}", pki / f"kubelet-server.{suffix}")


def _write(root: Path, path: str, text: str) -> None:
    target = root / path.lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.name.endswith(".conf"):
        write_private(target, text)
    else:
        target.write_text(text)


def _may_lower_oom_score() -> bool:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> _CAP_SYS_RESOURCE & 1)
    return False
