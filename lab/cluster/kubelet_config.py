"""The configuration of a node's kubelet, kube-proxy and pod network."""

import json
from typing import Any

from lab.cluster.addresses import Addresses
from lab.cluster.cgroups import node_root
from lab.cluster.description import Lab, Node

NODE_PKI = "/etc/kubernetes/pki"
KUBELET_KUBECONFIG = "/etc/kubernetes/kubelet.conf"
PROXY_KUBECONFIG = "/etc/kubernetes/kube-proxy.conf"
CONTAINERD_SOCKET = "/run/containerd/containerd.sock"


def kubelet(lab: Lab, node: Node) -> str:
    """Return a KubeletConfiguration."""
    configuration: dict[str, Any] = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": f"{NODE_PKI}/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": f"{NODE_PKI}/kubelet-server.crt",
        "tlsPrivateKeyFile": f"{NODE_PKI}/kubelet-server.key",
        "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": node_root(node.name),
        "failCgroupV1": False,
        "failSwapOn": False,
        # The nodes share this machine's disk, so none may evict for what another has filled.
        "evictionHard": {
            "memory.available": "100Mi",
            "nodefs.available": "1%",
            "nodefs.inodesFree": "1%",
            "imagefs.available": "1%",
        },
        "imageGCHighThresholdPercent": 100,
        # By default a container that has ended three times waits for 40 s, and later for minutes.
        "crashLoopBackOff": {"maxContainerRestartPeriod": "2s"},
        "nodeStatusUpdateFrequency": lab.node_status_update_frequency,
        # A kubelet's default, unless the frequency above is given: then it writes a status that
        # has not changed as often, and whoever watches nodes reads it.
        "nodeStatusReportFrequency": "5m",
        "syncFrequency": lab.sync_frequency,
        "resolvConf": "/etc/resolv.conf",
    }
    return json.dumps(configuration, indent=1)


def kubelet_arguments(lab: Lab, node: Node) -> list[str]:
    """Return the flags of kubelet that have no place in its configuration."""
    labels = ",".join(f"{key}={value}" for key, value in sorted(node.labels.items()))
    return [
        "--config=/etc/kubernetes/kubelet.yaml",
        f"--kubeconfig={KUBELET_KUBECONFIG}",
        f"--hostname-override={node.name}",
        f"--node-ip={Addresses(lab.network).node(node.index)}",
        *([f"--node-labels={labels}"] if labels else []),
    ]


def kube_proxy(lab: Lab, node: Node) -> str:
    """Return a KubeProxyConfiguration."""
    configuration: dict[str, Any] = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": PROXY_KUBECONFIG},
        "hostnameOverride": node.name,
        "mode": "nftables",
        "clusterCIDR": str(Addresses(lab.network).pods),
        # These sysctls belong to the machine and cannot be written in a node's namespace.
        "conntrack": {
            "maxPerCore": 0,
            "min": 0,
            "tcpEstablishedTimeout": "0s",
            "tcpCloseWaitTimeout": "0s",
        },
    }
    return json.dumps(configuration, indent=1)


def pod_network(lab: Lab, node: Node) -> str:
    """Return the CNI configuration: routed pods with addresses of the node's own subnet."""
    return json.dumps(
        {
            "cniVersion": "1.0.0",
            "name": "divvy-lab",
            "plugins": [
                {
                    # Routed, not bridged: a Service then also works towards a pod of the same node.
                    "type": "ptp",
                    "ipam": {
                        "type": "host-local",
                        "subnet": str(Addresses(lab.network).node_pods(node.index)),
                        "routes": [{"dst": "0.0.0.0/0"}],
                        # Below /run, so that addresses do not outlive the pods at a restart.
                        "dataDir": "/run/cni/networks",
                    },
                }
            ],
        },
        indent=1,
    )
