"""An API server with the policies of a cluster that serves GPUs by size."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.engine.bare_cluster import bare_cluster
from tests.render.claims.api_server import MEMORY, ApiServer, pod, policies_of

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
}


@pytest.fixture(scope="session")
def server() -> Iterator[ApiServer]:
    """Give the server of CLUSTER."""
    with serving(CLUSTER) as found:
        yield found


@contextlib.contextmanager
def serving(cluster: Mapping[str, Any], **names: str) -> Iterator[ApiServer]:
    """Start a server with the policies of a cluster; yield it when they have taken effect."""
    memory = names.get("memory", MEMORY)
    with bare_cluster() as bare:
        found = ApiServer(bare)
        for tenant in ("prod", "dev", "qa"):
            found.namespace(tenant, **{"divvy.gpu/tenant": tenant})
        found.apply(*policies_of(cluster))
        found.until(
            lambda: "container" in found.dry_run(pod({memory: 0}, namespace="prod")).refusal
        )
        found.until(lambda: found.dry_run(pod({memory: 1}, namespace="prod")).refusal == "")
        yield found
        found.close()
