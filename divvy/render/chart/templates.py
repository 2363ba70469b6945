"""The template files: patterns of objects, sorted into files as charts have them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from divvy.model.api_names import component_of
from divvy.model.mig_names import resource_part
from divvy.render.chart.actions import MIG_PROFILE, TENANT, with_actions
from divvy.render.chart.templated_objects import unwrap
from divvy.render.chart.yaml_text import Conditional, yaml_text

_RBAC = {"Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"}
_ADMISSION = {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
_CLASSES = "device-classes.yaml"
_NODE_RUNTIME = "node-runtime.yaml"
_DASHBOARD = ("observability", "ConfigMap")
_FILES = {
    **dict.fromkeys(_RBAC, "rbac.yaml"),
    **dict.fromkeys(_ADMISSION, "admission-policy.yaml"),
}
_OF_CLAIMS = {
    "DeviceClass": _CLASSES,
    "ServiceAccount": "claim-templates.yaml",
    "Deployment": "claim-templates.yaml",
    **dict.fromkeys(_RBAC, "rbac.yaml"),
}
_ABOUT = {
    _CLASSES: "What pods can claim.",
    "claim-policies.yaml": "Limits by size become claims; what could only wait is refused.",
    "claim-templates.yaml": "The template maker: writes the claims that pods ask for by size.",
    "configmap.yaml": "Configuration of the agents: changing it restarts none of them.",
    "daemonset.yaml": "The agent: device plugin and partitioner, one on every node of the pools.",
    "node-runtime.yaml": "Prepares the container runtime of pools with runtime.configure.",
    "rbac.yaml": "Rights of the agents and the template maker in the cluster.",
    "admission-policy.yaml": "Holds each agent to its own node and the keys it owns.",
    "service.yaml": "Where the agents' metrics are.",
    "networkpolicy.yaml": "Who may read the agents' metrics.",
}
_SWITCHES = {
    "rbac.yaml": ("if .Values.rbac.create",),
    "admission-policy.yaml": ("if .Values.admissionPolicy.create",),
}
_CHECK = '{{- include "divvy.check" . -}}\n'


def template_files(patterns: Sequence[Any]) -> dict[str, str]:
    """Return the text of every template by its name."""
    sorted_out: dict[str, list[Any]] = {}
    for pattern in patterns:
        sorted_out.setdefault(_file_of(unwrap(pattern)), []).append(pattern)
    return {
        name: _about(name) + _WRITERS.get(name, _file)(name, own)
        for name, own in sorted_out.items()
    }


def _about(name: str) -> str:
    return f"{{{{/* {_ABOUT[name]} */}}}}\n" if name in _ABOUT else ""


def _file_of(document: dict[str, Any]) -> str:
    component = component_of(document)
    if component == "node-runtime":
        return _NODE_RUNTIME
    if component == "claims":
        return _OF_CLAIMS.get(document["kind"], "claim-policies.yaml")
    name = _FILES.get(document["kind"], f"{document['kind'].lower()}.yaml")
    return f"dashboard-{name}" if (component, document["kind"]) == _DASHBOARD else name


def _file(name: str, patterns: Sequence[Any]) -> str:
    openings = [_openings(pattern) for pattern in patterns]
    shared = openings[0] if all(opening == openings[0] for opening in openings) else []
    documents = [
        _wrapped(("---\n" if at else "") + yaml_text(unwrap(pattern)), own if own != shared else [])
        for at, (pattern, own) in enumerate(zip(patterns, openings, strict=True))
    ]
    text = _wrapped("".join(documents), [*shared, *_SWITCHES.get(name, ())])
    return with_actions((_CHECK if name == "configmap.yaml" else "") + text)


def _device_classes(_: str, patterns: Sequence[Any]) -> str:
    """Return the file in which a class is there once for every tenant, or MIG profile."""
    ranges = (
        (TENANT, "divvy.tenants", "$tenant", {TENANT: "$tenant"}),
        (
            resource_part(MIG_PROFILE),
            "divvy.claimedMig",
            "$profile",
            {
                MIG_PROFILE: "$profile",
                resource_part(MIG_PROFILE): '$profile | replace "+" "."',
            },
        ),
    )
    text = ""
    for at, pattern in enumerate(patterns):
        document, loops = yaml_text(unwrap(pattern)), []
        for stands, listed, variable, actions in ranges:
            if unwrap(pattern)["metadata"]["name"].endswith(stands):
                for stand_in, action in actions.items():
                    document = document.replace(stand_in, f"{{{{ {action} }}}}")
                loops = [f"range {variable} := include {json.dumps(listed)} @ | fromJsonArray"]
        document = ("---\n" if at else "") + document
        text += _wrapped(document, [*loops, *_openings(pattern)[:-1]])
    return with_actions(_wrapped(text, _openings(patterns[0])), root="$")


def _node_runtime(_: str, patterns: Sequence[Any]) -> str:
    """Return the file in which a part is there once for every pool that asks for it."""
    once = [unwrap(pattern) for pattern in patterns if unwrap(pattern)["kind"] != "DaemonSet"]
    daemon_sets = [
        unwrap(pattern) for pattern in patterns if unwrap(pattern)["kind"] == "DaemonSet"
    ]
    account = [pattern for pattern in once if pattern["kind"] not in _RBAC]
    roles = [pattern for pattern in once if pattern["kind"] in _RBAC]
    text = "---\n".join(with_actions(yaml_text(pattern)) for pattern in account)
    rights = "".join("---\n" + with_actions(yaml_text(pattern)) for pattern in roles)
    text += _wrapped(rights, _SWITCHES["rbac.yaml"])
    pods = "".join("---\n" + with_actions(yaml_text(pattern), root="$") for pattern in daemon_sets)
    per_pool = ["range $name, $pool := .Values.pools", 'if dig "runtime" "configure" false $pool']
    text += _wrapped(pods, per_pool[::-1])
    return _wrapped(text, ['if include "divvy.configuresRuntime" .'])


_WRITERS = {_NODE_RUNTIME: _node_runtime, _CLASSES: _device_classes}


def _openings(pattern: Any) -> list[str]:
    return [*_openings(pattern.node), pattern.opening] if isinstance(pattern, Conditional) else []


def _wrapped(text: str, openings: Sequence[str]) -> str:
    """Put a text below actions, the last of them outermost."""
    for opening in openings:
        text = f"{{{{- {opening} }}}}\n{text}{{{{- end }}}}\n"
    return text
