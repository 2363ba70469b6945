"""A real API server with the objects of a cluster, asked what it makes of pods."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import httpx2
import yaml

from tests.bare_cluster import BareCluster
from tests.render.documents import objects_of

IMAGE = "registry.example/divvy/agent@sha256:" + "0" * 64
NODE_NAME = "authentication.kubernetes.io/node-name"
GPU, MEMORY = "nvidia.com/gpu", "nvidia.com/gpumem"
PERCENTAGE, CORES = "nvidia.com/gpumem-percentage", "nvidia.com/gpucores"
USE, NO = "nvidia.com/use-gputype", "nvidia.com/nouse-gputype"
_APPLIED = ("DeviceClass", "Role", "Policy", "Binding", "ServiceAccount", "Namespace")
_PODS = "/api/v1/namespaces/{}/pods"

Limits = Mapping[str, int | str]


@dataclass(frozen=True)
class Answer:
    """What the API server says: an object as it would keep it, or why it refuses."""

    status: int
    body: dict[str, Any]
    warnings: tuple[str, ...] = ()

    @property
    def refusal(self) -> str:
        """Return why, the names of the policy left out; "" if it was accepted."""
        if self.status < 400:
            return ""
        return str(self.body["message"]).rpartition("denied request: ")[2]

    @property
    def templates(self) -> dict[str, str]:
        """Return the templates of the pod's claims by the claims' names."""
        assert self.status < 400, self.body
        claims = self.body["spec"].get("resourceClaims", ())
        return {
            claim["name"]: claim["resourceClaimTemplateName"]
            for claim in claims
            if "resourceClaimTemplateName" in claim
        }

    def claims_of(self, place: str = "containers") -> list[list[str]]:
        """Return the names of the claims of each container."""
        return [
            [claim["name"] for claim in container.get("resources", {}).get("claims", ())]
            for container in self.body["spec"][place]
        ]

    def resources(self, place: str = "containers") -> list[dict[str, Any]]:
        """Return the resources of each container."""
        return [container.get("resources", {}) for container in self.body["spec"][place]]


class ApiServer:
    """Requests to an API server, as its administrator or as somebody else."""

    def __init__(self, cluster: BareCluster) -> None:
        self.cluster = cluster
        users = yaml.safe_load(cluster.kubeconfig.read_text())["users"]
        self._http = httpx2.Client(
            base_url=cluster.server,
            verify=False,
            headers={"Authorization": f"Bearer {users[0]['user']['token']}"},
            timeout=30,
        )

    def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        account: str = "",
        node: str = "",
        **params: str,
    ) -> Answer:
        """Send a request; ``account`` is a "namespace:name", ``node`` what its token names."""
        headers = {"Content-Type": "application/json"}
        if account:
            headers["Impersonate-User"] = f"system:serviceaccount:{account}"
        if node:
            headers[f"Impersonate-Extra-{NODE_NAME.replace('/', '%2F')}"] = node
        content = None if body is None else json.dumps(body)
        answer = self._http.request(method, path, content=content, headers=headers, params=params)
        # RFC 9111: 299 - "text", one header for each.
        listed = (text.partition(' "')[2] for text in answer.headers.get_list("warning"))
        warnings = tuple(text.removesuffix('"').partition(": ")[2] for text in listed)
        return Answer(answer.status_code, answer.json(), warnings)

    def dry_run(self, body: Mapping[str, Any]) -> Answer:
        """Ask what would become of a pod."""
        return self.send("POST", _PODS.format(body["metadata"]["namespace"]), body, dryRun="All")

    def apply(self, *objects: Mapping[str, Any]) -> None:
        """Make objects, or change them."""
        listed = {"apiVersion": "v1", "kind": "List", "items": objects}
        self.cluster.kubectl(
            "apply", "--server-side", "--force-conflicts", "--filename=-", stdin=json.dumps(listed)
        )

    def namespace(self, name: str, **labels: str) -> str:
        """Make a namespace."""
        metadata = {"name": name, "labels": labels}
        self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        return name

    def until(self, holds: Callable[[], bool], seconds: float = 60) -> None:
        """Wait for a condition; policies take effect a moment after they were made."""
        deadline = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < deadline, "it does not come true"
            time.sleep(0.05)

    def events(self, path: str) -> Iterator[dict[str, Any]]:
        """Yield the events of a watch until the server ends it."""
        with self._http.stream("GET", path, params={"watch": "1"}, timeout=None) as answer:
            for line in answer.iter_lines():
                yield json.loads(line)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()


def policies_of(value: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return what of a cluster's objects an API server without nodes can have."""
    return [obj for obj in objects_of(value, IMAGE) if obj["kind"].endswith(_APPLIED)]


def pod(*limits: Limits, namespace: str = "default", **more: Any) -> dict[str, Any]:
    """Return a pod with a container for each of the limits; ``annotations`` are its own."""
    annotations = more.pop("annotations", {})
    containers = [
        {"name": f"main-{number}", "image": "image", "resources": {"limits": dict(own)}}
        for number, own in enumerate(limits)
    ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "pod", "namespace": namespace, "annotations": annotations},
        "spec": {"containers": containers, **more},
    }


def init(limits: Limits, *, sidecar: bool = False, number: int = 0) -> dict[str, Any]:
    """Return an init container."""
    policy = {"restartPolicy": "Always"} if sidecar else {}
    resources = {"limits": dict(limits)}
    return {"name": f"init-{number}", "image": "image", "resources": resources, **policy}
