"""What a GitOps controller applies again and again changes nothing: manifests and API server."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from divvy.render.exports.plain_yaml import yaml_documents
from tests.bare_cluster import BareCluster, bare_cluster
from tests.render.chart.charts import IMAGE, example
from tests.render.documents import objects_of

pytestmark = pytest.mark.lab
CLAIMS = {"shares": {}, "mig": ["1g.5gb"], "tenants": ["prod", "dev"]}
EVERYTHING: dict[str, Any] = {
    "profiles": {
        "on-demand": {"claims": CLAIMS},
        "slices": {"timeSlicing": {"replicas": 4, "memoryLimit": "auto"}},
    },
    "pools": {
        "a": {
            "profile": "on-demand",
            "select": {"pool": "a"},
            "runtime": {"configure": True},
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
        },
        "b": {"profile": "slices", "select": {"pool": "b"}},
    },
    "driver": {"root": "/run/nvidia/driver", "version": "580.95"},
    "health": {"recoverAfter": "1m30s"},
    "imagePullSecrets": ["registry"],
    "observability": {
        "serviceMonitor": True,
        "dashboard": True,
        "alerts": True,
        "networkPolicy": {"app": "prometheus"},
    },
}
CLUSTERS = {"mixed": example("mixed"), "everything": EVERYTHING}
# Argo CD applies as this one, Flux as kustomize-controller.
MANAGER = "--field-manager=argocd-controller"


@contextlib.contextmanager
def prometheus_cluster() -> Iterator[BareCluster]:
    """Give an API server that knows the Prometheus Operator's kinds."""
    with bare_cluster() as bare:
        definitions = [
            _definition("prometheusrules", "PrometheusRule"),
            _definition("servicemonitors", "ServiceMonitor"),
        ]
        listed = {"apiVersion": "v1", "kind": "List", "items": definitions}
        bare.kubectl("apply", "--filename=-", stdin=json.dumps(listed))
        bare.kubectl("wait", "--for=condition=Established", "crds", "--all")
        yield bare


@pytest.fixture(scope="module")
def cluster() -> Iterator[BareCluster]:
    with prometheus_cluster() as bare:
        yield bare


@pytest.mark.parametrize("name", CLUSTERS)
def test_changes_no_object_when_manifests_are_applied_again(
    cluster: BareCluster, name: str
) -> None:
    text = yaml_documents(objects_of(CLUSTERS[name], IMAGE))
    apply = ("apply", "--server-side", MANAGER, "--filename=-", "--output=json")
    first = json.loads(cluster.kubectl(*apply, stdin=text))["items"]
    again = json.loads(cluster.kubectl(*apply, stdin=text))["items"]
    assert _versions(again) == _versions(first)
    cluster.kubectl("diff", "--server-side", MANAGER, "--filename=-", stdin=text)


@pytest.mark.parametrize("name", CLUSTERS)
def test_writes_fields_as_the_api_server_keeps_them(cluster: BareCluster, name: str) -> None:
    """A field in another form, 1000m for 1, is a difference at every look of Argo CD."""
    text = yaml_documents(objects_of(CLUSTERS[name], IMAGE))
    listed = cluster.kubectl(
        "apply", "--server-side", MANAGER, "--filename=-", "--output=json", stdin=text
    )
    kept = {_key(item): item for item in json.loads(listed)["items"]}
    written = objects_of(CLUSTERS[name], IMAGE)
    assert kept.keys() == {_key(item) for item in written}
    differences = {
        path for item in written for path in _differences(item, kept[_key(item)], _key(item))
    }
    assert differences == set()


@pytest.mark.parametrize("name", CLUSTERS)
def test_writes_nothing_that_agents_write(name: str) -> None:
    kinds = {item["kind"] for item in objects_of(CLUSTERS[name], IMAGE)}
    assert "DaemonSet" in kinds
    assert not kinds & {"Node", "ResourceSlice", "ResourceClaim", "ResourceClaimTemplate"}


def _definition(plural: str, kind: str) -> dict[str, Any]:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.monitoring.coreos.com"},
        "spec": {
            "group": "monitoring.coreos.com",
            "names": {"plural": plural, "kind": kind},
            "scope": "Namespaced",
            "versions": [version],
        },
    }


def _key(item: Mapping[str, Any]) -> str:
    return f"{item['kind']}/{item['metadata']['name']}"


def _versions(items: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what each write changes: the generation, which a controller's status leaves alone."""
    metadata = {_key(item): item["metadata"] for item in items}
    return {key: meta.get("generation", meta["resourceVersion"]) for key, meta in metadata.items()}


def _differences(written: Any, kept: Any, path: str) -> Iterator[str]:
    """Name what of a written value is kept otherwise; what the server adds is no difference."""
    if isinstance(written, Mapping) and isinstance(kept, Mapping):
        for key, value in written.items():
            yield from _differences(value, kept.get(key), f"{path}.{key}")
    elif isinstance(written, list) and isinstance(kept, list) and len(written) == len(kept):
        for number, (left, right) in enumerate(zip(written, kept, strict=True)):
            yield from _differences(left, right, f"{path}[{number}]")
    elif written != kept:
        yield f"{path}: {written!r} is kept as {kept!r}"
