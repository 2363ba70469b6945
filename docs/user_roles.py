"""The roles of your-cluster.md: what those who look at a cluster and who deploy to it need."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from divvy.model import parse_document
from divvy.render.objects.cluster import objects
from docs.rights_table import FEATURES, STACK

PAGE = Path(__file__).parent / "your-cluster.md"
NAMESPACE = "divvy-system"
_BEGIN = "<!-- {role}: written by python -m docs.generate -->\n"
_END = "<!-- end of {role} -->\n"
_RESOURCES = "resource.k8s.io"
# What diff --live, fit, status, why, top and init read, and preview and up before they change it.
_LOOKS: Mapping[str, tuple[str, ...]] = {
    "": ("namespaces", "nodes", "pods", "events", "resourcequotas"),
    "apps": ("daemonsets", "deployments"),
    "apiextensions.k8s.io": ("customresourcedefinitions",),
    _RESOURCES: (
        "deviceclasses",
        "devicetaintrules",
        "resourceclaims",
        "resourceclaimtemplates",
        "resourceslices",
    ),
    "scheduling.k8s.io": ("priorityclasses",),
}
# What `up` reads to say why pods do not become ready.
_WAITS: Mapping[str, tuple[str, ...]] = {
    "": ("pods/log",),
    "apps": ("controllerrevisions", "replicasets"),
}
# Helm's records of the release, and the Lease that keeps two runs apart.
_RECORDS: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("", "secrets"): ("get", "list", "create", "update", "patch", "delete"),
    ("coordination.k8s.io", "leases"): ("get", "create", "update"),
}
_READS = ("get", "list")
_CHANGES = ("get", "create", "patch", "delete")
_OBSERVED = {
    "observability": {
        "serviceMonitor": True,
        "alerts": True,
        "networkPolicy": {"team": "x"},
    }
}

Rules = dict[tuple[str, str], set[str]]


def your_cluster_page() -> str:
    """Return the page with both roles."""
    text = PAGE.read_text(encoding="utf-8")
    for role, manifests in (("viewer", viewer()), ("deployer", deployer())):
        begin, end = _BEGIN.format(role=role), _END.format(role=role)
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        text = f"{before}{begin}\n```yaml\n{_yaml(manifests)}```\n\n{end}{after}"
    return text


def viewer() -> list[dict[str, Any]]:
    """Return the roles of who looks: of the cluster, and of Divvy's namespace for metrics."""
    proxy = [{"apiGroups": [""], "resources": ["pods/proxy"], "verbs": ["get"]}]
    return [
        _role("ClusterRole", "divvy-viewer", _rules(_reading(_LOOKS))),
        _role("Role", "divvy-viewer", proxy, NAMESPACE),
    ]


def deployer() -> list[dict[str, Any]]:
    """Return the role of who deploys: every kind that Divvy renders, and the rights it grants.

    Kubernetes lets no user grant a right that they do not have.
    """
    rules = _reading(_LOOKS) | _reading(_WAITS)
    for kind, verbs in _RECORDS.items():
        rules.setdefault(kind, set()).update(verbs)
    for rendered in _everything():
        group = rendered["apiVersion"].rpartition("/")[0]
        rules.setdefault((group, _plural(rendered["kind"])), set()).update(_CHANGES)
        if rendered["kind"] in ("Role", "ClusterRole"):
            for rule in rendered["rules"]:
                for resource in rule["resources"]:
                    (of,) = rule["apiGroups"]
                    rules.setdefault((of, resource), set()).update(rule["verbs"])
    return [_role("ClusterRole", "divvy-deployer", _rules(rules))]


def _everything() -> Iterator[dict[str, Any]]:
    for feature in (*FEATURES.values(), _OBSERVED):
        yield from objects(parse_document({**STACK, **feature}), "image")


def _reading(resources: Mapping[str, Iterable[str]]) -> Rules:
    return {(group, name): set(_READS) for group, names in resources.items() for name in names}


def _plural(kind: str) -> str:
    name = kind.lower()
    if name.endswith("y"):
        return f"{name[:-1]}ies"
    return f"{name}es" if name.endswith("s") else f"{name}s"


def _rules(rights: Rules) -> list[dict[str, list[str]]]:
    """Return rules, one for the resources of a group with the same verbs."""
    together: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (group, resource), verbs in sorted(rights.items()):
        together.setdefault((group, tuple(sorted(verbs, key=_ORDER.index))), []).append(resource)
    return [
        {"apiGroups": [group], "resources": resources, "verbs": list(verbs)}
        for (group, verbs), resources in together.items()
    ]


_ORDER = ("get", "list", "watch", "create", "update", "patch", "delete")


def _role(
    kind: str, name: str, rules: list[dict[str, list[str]]], namespace: str | None = None
) -> dict[str, Any]:
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": kind,
        "metadata": metadata,
        "rules": rules,
    }


def _yaml(manifests: Iterable[dict[str, Any]]) -> str:
    return "---\n".join(
        yaml.safe_dump(manifest, sort_keys=False, default_flow_style=None, width=96)
        for manifest in manifests
    )
