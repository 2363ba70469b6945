"""The cluster value as the ConfigMap carries it: canonical JSON with a schema version."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from divvy.model.cluster_value import parse_cluster
from divvy.model.problems import InvalidCluster, NewerSchema, Problem
from divvy.model.stack import Cluster

SCHEMA_VERSION = 1
# How the machine that deploys reaches the cluster, and what it builds: says nothing about the
# cluster, and another machine has other paths.
DEPLOYMENT_KEYS = ("kubeconfig", "context", "plugin")


@dataclass(frozen=True)
class ClusterDocument:
    """A ``divvy:cluster`` value, verbatim, with the cluster that was read from it."""

    value: Mapping[str, Any]
    cluster: Cluster


def parse_document(value: object) -> ClusterDocument:
    """Read a ``divvy:cluster`` value; raises InvalidCluster with every problem at once."""
    cluster = parse_cluster(value)
    # Nothing else is a cluster.
    assert isinstance(value, dict)
    return ClusterDocument(value, cluster)


def canonical_json(value: object) -> str:
    """Return a cluster value as compact JSON with sorted keys and its version.

    Verbatim, without what is null, and without the keys that only a deployment reads.
    """
    cluster = _plain(value)
    if isinstance(cluster, dict):
        cluster = {key: item for key, item in cluster.items() if key not in DEPLOYMENT_KEYS}
    document = {"cluster": cluster, "schemaVersion": SCHEMA_VERSION}
    return json.dumps(
        document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )


# An agent reads the same text at every look at its node.
@lru_cache(maxsize=4)
def parse_canonical(text: str) -> Cluster:
    """Read canonical JSON; raise NewerSchema for a later version, InvalidCluster for errors."""
    try:
        document = json.loads(text)
    except ValueError as error:
        raise InvalidCluster([Problem("configuration", f"is not valid JSON: {error}")]) from None
    except RecursionError:
        raise InvalidCluster([Problem("configuration", "is nested too deeply")]) from None
    if not isinstance(document, dict) or "schemaVersion" not in document:
        raise InvalidCluster(
            [Problem("configuration", "has no schemaVersion", "divvy writes one; was it edited?")]
        )
    version = document["schemaVersion"]
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise NewerSchema(version, SCHEMA_VERSION)
    if version != SCHEMA_VERSION:
        raise InvalidCluster(
            [Problem("schemaVersion", f"is {version!r}", f"{SCHEMA_VERSION} is expected")]
        )
    return parse_cluster(document.get("cluster"))


def generation(text: str | None) -> str:
    """Return a short name of a configuration's text ("" without one)."""
    return "" if text is None else hashlib.sha256(text.encode()).hexdigest()[:12]


def _plain(value: object) -> Any:
    """Make keys text, as JSON has them, so that they can be sorted, and 2.0 the same as 2.

    What is null is as if it were not there; a chart's values cannot have it.

    Programs in other languages, and Pulumi's own engine, hand over the one for the other.
    """
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
