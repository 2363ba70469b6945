"""The few questions that the lab itself asks its API server.

Before there is a kubeconfig, and with what no client asks for: ``/readyz``.
"""

import ssl
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import httpx2

from lab.cluster.description import Lab
from lab.cluster.errors import ControlPlaneFailed
from lab.cluster.identities import server
from lab.cluster.paths import PKI


@dataclass(frozen=True)
class ReadyNode:
    """What the kubelet of a Ready node has reported: when, its own version and its runtime's."""

    reported: datetime
    versions: tuple[str, str]


class Api:
    """Reads from the API server as the lab's administrator."""

    def __init__(self, lab: Lab):
        self._server = server(lab)
        self._tls = ssl.create_default_context(cafile=str(PKI / "ca.crt"))
        self._tls.load_cert_chain(PKI / "admin.crt", PKI / "admin.key")

    def ready(self) -> bool:
        """Return whether the API server is ready to serve."""
        return self._status("/readyz") == 200

    def ready_nodes(self) -> dict[str, ReadyNode]:
        """Return the nodes that are Ready, by name.

        Raises ControlPlaneFailed.
        """
        try:
            nodes = self._get("/api/v1/nodes").raise_for_status().json()["items"]
        except httpx2.HTTPError as error:
            raise ControlPlaneFailed(f"the API server does not list nodes: {error}") from None
        ready = {node["metadata"]["name"]: _ready_node(node["status"]) for node in nodes}
        return {name: node for name, node in ready.items() if node}

    def accepts_pods(self) -> bool:
        """Return whether pods can be created in the namespace default."""
        return self._status("/api/v1/namespaces/default/serviceaccounts/default") == 200

    def _status(self, path: str) -> int | None:
        """Return the status of the answer to a GET, None without an answer."""
        try:
            return self._get(path).status_code
        except httpx2.HTTPError:
            return None

    def _get(self, path: str) -> httpx2.Response:
        # The lab is on this machine: no proxy is on the way.
        return httpx2.get(self._server + path, verify=self._tls, timeout=5, trust_env=False)


def _ready_node(status: dict[str, Any]) -> ReadyNode | None:
    for condition in status.get("conditions", []):
        if condition["type"] == "Ready" and condition["status"] == "True":
            info = status["nodeInfo"]
            reported = datetime.fromisoformat(condition["lastHeartbeatTime"])
            versions = (info["kubeletVersion"], info["containerRuntimeVersion"])
            return ReadyNode(reported, versions)
    return None
