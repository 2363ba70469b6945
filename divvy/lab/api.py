"""The few questions that the lab itself asks its API server."""

import http.client
import json
import ssl
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from divvy.lab.description import Lab
from divvy.lab.identities import server
from divvy.lab.paths import PKI


class Api:
    """Reads from the API server as the lab's administrator."""

    def __init__(self, lab: Lab):
        self._address = urlsplit(server(lab))
        self._tls = ssl.create_default_context(cafile=str(PKI / "ca.crt"))
        self._tls.load_cert_chain(PKI / "admin.crt", PKI / "admin.key")

    def ready(self) -> bool:
        """Say whether the API server is ready to serve."""
        try:
            return self._request("GET", "/readyz")[0] == 200
        except (OSError, http.client.HTTPException):
            return False

    def ready_nodes(self) -> dict[str, datetime]:
        """Return the nodes that are Ready, each with the time when its kubelet last said so."""
        said = {
            item["metadata"]["name"]: _said_ready(item)
            for item in self._json("GET", "/api/v1/nodes")["items"]
        }
        return {name: when for name, when in said.items() if when}

    def accepts_pods(self) -> bool:
        """Say whether pods can be created in the namespace default; new clusters need a moment."""
        path = "/api/v1/namespaces/default/serviceaccounts/default"
        return self._request("GET", path)[0] == 200

    def _json(self, method: str, path: str) -> Any:
        status, body = self._request(method, path)
        if status != 200:
            raise OSError(f"{method} {path}: the API server answers {status}: {body[:200]!r}")
        return json.loads(body)

    def _request(self, method: str, path: str) -> tuple[int, bytes]:
        host, port = self._address.hostname, self._address.port
        connection = http.client.HTTPSConnection(str(host), port, context=self._tls, timeout=5)
        try:
            connection.request(method, path)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()


def _said_ready(node: dict[str, Any]) -> datetime | None:
    for each in node["status"].get("conditions", []):
        if each["type"] == "Ready" and each["status"] == "True":
            return datetime.fromisoformat(each["lastHeartbeatTime"])
    return None
