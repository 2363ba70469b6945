"""An API server with the policies of a cluster that serves GPUs by size."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.bare_cluster import BareCluster, bare_cluster
from tests.render.objects.claims.api_server import MEMORY, ApiServer, pod, policies_of

# One pool says its hardware: what no GPU of the cluster has is known.
CLUSTER = {
    "profiles": {
        "by-size": {"claims": {"shares": {}, "mig": ["1g.5gb"]}},
        "apart": {"claims": {"shares": {}, "tenants": ["prod", "dev"]}},
    },
    "pools": {
        "training": {
            "profile": "by-size",
            "hardware": {"model": "A100-SXM4-40GB", "gpus": 2, "count": 1},
        }
    },
    "names": {"classes": "nvidia"},
}


# A template that somebody made before the policy kept these names.
EARLIER = "divvy-1x7m"
_EARLIER = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaimTemplate",
    "metadata": {"name": EARLIER, "namespace": "default"},
    "spec": {
        "spec": {
            "devices": {
                "requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]
            }
        }
    },
}


@pytest.fixture(scope="package")
def server() -> Iterator[ApiServer]:
    """Give the server of CLUSTER."""
    with serving(CLUSTER) as api_server:
        yield api_server


@contextlib.contextmanager
def serving(cluster: Mapping[str, Any], **names: str) -> Iterator[ApiServer]:
    """Start a server with the policies of a cluster; yield it when they have taken effect."""
    with bare_cluster() as bare:
        server = ApiServer(bare)
        for tenant in ("prod", "dev", "qa"):
            server.namespace(tenant, **{"divvy.gpu/tenant": tenant})
        server.apply(_EARLIER)
        with applied(
            bare, cluster, memory=names.get("memory", MEMORY), namespace="prod"
        ) as api_server:
            yield api_server


@contextlib.contextmanager
def applied(
    bare: BareCluster,
    cluster: Mapping[str, Any],
    *,
    memory: str = MEMORY,
    namespace: str = "default",
) -> Iterator[ApiServer]:
    """Make the policies of a cluster; yield the server when they have taken effect."""
    api_server = ApiServer(bare)
    api_server.apply(*policies_of(cluster))
    api_server.until(
        lambda: "container" in api_server.dry_run(pod({memory: 0}, namespace=namespace)).refusal
    )
    api_server.until(
        lambda: api_server.dry_run(pod({memory: 1}, namespace=namespace)).refusal == ""
    )
    yield api_server
    api_server.close()
