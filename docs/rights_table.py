"""The table of security.md: what each account of ours may do at the API, from the objects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from divvy.model import parse_document
from divvy.render.objects.cluster import objects

PAGE = Path(__file__).parent / "security.md"
_BEGIN = "<!-- rights: written by python -m docs.generate -->\n"
_END = "<!-- end of rights -->\n"
STACK: Mapping[str, Any] = {
    "profiles": {"p": {}},
    "pools": {"all": {"profile": "p"}},
    "plugin": {"image": {"registry": "localhost:5000"}},
}
# What of a stack file gives an account more: in words, and as a change of the stack above.
FEATURES: Mapping[str, Mapping[str, Any]] = {
    "always": {},
    "`change.policy: evict`": {"change": {"policy": "evict"}},
    "a profile with `claims`": {"profiles": {"p": {"claims": {}}}},
    "`claims` with `shares`": {"profiles": {"p": {"claims": {"shares": {}}}}},
    "a pool with `runtime.configure`": {
        "pools": {
            "all": {"profile": "p", "runtime": {"name": "containerd", "configure": True}},
        }
    },
}
# Why, by account and resource: nothing may be a right without a reason.
_WHY: Mapping[tuple[str, str], str] = {
    ("divvy-agent", "nodes"): (
        "reads its node's labels; writes the status annotation and the feature labels"
    ),
    ("divvy-agent", "events"): (
        "reports a change of state on the node, and memory above the limit on the pod"
    ),
    ("divvy-agent", "configmaps"): "reads the stack's configuration",
    ("divvy-agent", "pods/eviction"): (
        "evicts pods that hold devices of a GPU to be repartitioned, each by its UID, so that a "
        "later pod of the same name is left alone. PodDisruptionBudgets apply"
    ),
    ("divvy-agent", "resourceclaims"): "prepares what the scheduler has allocated",
    ("divvy-agent", "resourceslices"): "publishes which devices exist",
    ("divvy-claim-templates", "pods"): (
        "finds the pods that ask for GPUs by size: those with the label `divvy.gpu/by-size`. It "
        "keeps the names of their templates, so that large pods cannot fill its memory"
    ),
    ("divvy-claim-templates", "resourceslices"): "sees which sizes the cluster's GPUs have",
    ("divvy-claim-templates", "events"): (
        "tells a pod that its namespace has too many sizes in work, and it waits"
    ),
    ("divvy-claim-templates", "resourceclaimtemplates"): (
        "makes the templates that pods by size name, and removes them"
    ),
    ("divvy-node-runtime", "leases"): "changes one node at a time",
}


@dataclass(frozen=True, order=True)
class Right:
    """What an account may do with one kind of object; ``where`` is "" for all namespaces."""

    account: str
    resource: str
    verbs: tuple[str, ...]
    names: tuple[str, ...]
    where: str


def security_page() -> str:
    """Return the page with its table as the objects are now."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    return f"{before}{_BEGIN}\n{_table()}\n{_END}{after}"


def rights(value: Mapping[str, Any]) -> set[Right]:
    """Return what the accounts of a cluster value may do, by its roles and bindings."""
    rendered = objects(parse_document(value), "image")
    roles = {
        (role["kind"], role["metadata"]["name"]): role["rules"]
        for role in rendered
        if role["kind"] in ("Role", "ClusterRole")
    }
    granted = set()
    for binding in rendered:
        if binding["kind"] not in ("RoleBinding", "ClusterRoleBinding"):
            continue
        where = binding["metadata"].get("namespace", "")
        for subject in binding["subjects"]:
            for rule in roles[binding["roleRef"]["kind"], binding["roleRef"]["name"]]:
                granted |= set(_of_rule(subject["name"], rule, where))
    return granted


def _of_rule(account: str, rule: Mapping[str, Any], where: str) -> Iterator[Right]:
    for resource in rule["resources"]:
        names = tuple(rule.get("resourceNames", ()))
        yield Right(account, resource, tuple(rule["verbs"]), names, where)


def _table() -> str:
    first: dict[Right, str] = {}
    for feature, change in FEATURES.items():
        for right in sorted(rights({**STACK, **change})):
            first.setdefault(right, feature)
    lines = ["| account | may | only with | why |", "|---|---|---|---|"]
    for right, feature in sorted(first.items(), key=lambda item: (item[0].account, *item)):
        verbs = ", ".join(right.verbs)
        named = ", ".join(f"`{name}`" for name in right.names)
        only = f", only {named}" if named else ""
        where = " in its namespace" if right.where else ""
        why = _WHY[right.account, right.resource]
        may = f"`{right.resource}`{where}: {verbs}{only}"
        lines.append(f"| `{right.account}` | {may} | {feature} | {why} |")
    unused = _WHY.keys() - {(right.account, right.resource) for right in first}
    if unused:
        raise ValueError(f"reasons for no right: {sorted(unused)}")
    return "\n".join(lines) + "\n"
