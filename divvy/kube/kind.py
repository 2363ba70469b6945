"""The kinds of the API, and the paths of their objects."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote


@dataclass(frozen=True)
class Kind:
    """The API path of a kind's objects."""

    api_version: str
    kind: str
    plural: str
    namespaced: bool = True

    def path(self, namespace: str, name: str = "") -> str:
        """Return the URL path of an object, or of a collection: without a namespace, of all."""
        group = f"/apis/{self.api_version}" if "/" in self.api_version else "/api/v1"
        inner = f"/namespaces/{namespace}" if self.namespaced and namespace else ""
        # Roles and policies may have any name, such as `who?`.
        return f"{group}{inner}/{self.plural}" + (f"/{quote(str(name), safe=':')}" if name else "")


def kind_named(api_version: str, kind: str) -> Kind:
    """Return a kind by its name alone, with the plural that generated APIs have."""
    word = kind.lower()
    if word.endswith("y"):
        return Kind(api_version, kind, f"{word[:-1]}ies")
    return Kind(api_version, kind, f"{word}{'es' if word.endswith('s') else 's'}")


CONFIG_MAP = Kind("v1", "ConfigMap", "configmaps")
DEVICE_CLASS = Kind("resource.k8s.io/v1", "DeviceClass", "deviceclasses", namespaced=False)
ENDPOINT_SLICE = Kind("discovery.k8s.io/v1", "EndpointSlice", "endpointslices")
EVENT = Kind("v1", "Event", "events")
LEASE = Kind("coordination.k8s.io/v1", "Lease", "leases")
NAMESPACE = Kind("v1", "Namespace", "namespaces", namespaced=False)
NODE = Kind("v1", "Node", "nodes", namespaced=False)
POD = Kind("v1", "Pod", "pods")
PRIORITY_CLASS = Kind("scheduling.k8s.io/v1", "PriorityClass", "priorityclasses", namespaced=False)
RESOURCE_CLAIM = Kind("resource.k8s.io/v1", "ResourceClaim", "resourceclaims")
RESOURCE_SLICE = Kind("resource.k8s.io/v1", "ResourceSlice", "resourceslices", namespaced=False)
RUNTIME_CLASS = Kind("node.k8s.io/v1", "RuntimeClass", "runtimeclasses", namespaced=False)
SECRET = Kind("v1", "Secret", "secrets")
SERVICE_ACCOUNT = Kind("v1", "ServiceAccount", "serviceaccounts")
