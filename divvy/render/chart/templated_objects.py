"""The objects of a cluster as patterns: what a stack file decides is a template action in them.

The patterns are made from ``render.objects`` itself, for a cluster in which everything is
switched on; what is conditional is found by switching one thing off at a time. So the chart
has no pod of its own that could drift from the program's.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from divvy.model import generation, parse_document
from divvy.model.api_names import CONFIG_KEY, CONFIG_MAP, component_of
from divvy.render.chart.actions import EVERYTHING, GENERATION, IMAGE, RUNTIME
from divvy.render.chart.conditionals import conditional
from divvy.render.chart.switches import READERS, SWITCHES
from divvy.render.chart.yaml_text import Conditional, Expression, Lines
from divvy.render.objects.claims.pod_variables import DERIVED
from divvy.render.objects.cluster import configuration_of, objects

_LABEL = "app.kubernetes.io/name"
_POD = ("spec", "template", "spec")
_REQUIRED = (*_POD, "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
_CONTAINER = (*_POD, "containers", 0)
_VALUES = {
    "agent": "agent",
    "node-runtime": "nodeRuntime",
    "claims": "claimTemplates",
}
_WORKLOADS = ("DaemonSet", "Deployment")


@dataclass(frozen=True)
class TemplatedObjects:
    """Templates of objects, files that they read, and the values that they have by default."""

    objects: tuple[Any, ...]
    files: Mapping[str, str]
    defaults: Mapping[str, Any]


@cache
def templated_objects() -> TemplatedObjects:
    """Return the patterns of all objects but the Namespace, which a chart does not make."""
    full = _objects(EVERYTHING)
    for switch in SWITCHES:
        value = copy.deepcopy(EVERYTHING)
        switch.off(value)
        without = _objects(value)
        for key, pattern in full.items():
            if switch.component not in (None, component_of(unwrap(pattern))):
                continue
            if key in without:
                full[key] = conditional(pattern, without[key], switch.opening)
            else:
                full[key] = Conditional(switch.opening, pattern)
    files: dict[str, str] = {}
    defaults = {
        _VALUES[str(component_of(unwrap(pattern)))]: _defaults(pod_spec_of(unwrap(pattern)))
        for pattern in full.values()
        if unwrap(pattern)["kind"] in _WORKLOADS
    }
    return TemplatedObjects(
        tuple(_filled(pattern, files) for pattern in full.values()), files, defaults
    )


def unwrap(pattern: Any) -> Any:
    """Return what stands below the actions around a pattern."""
    return unwrap(pattern.node) if isinstance(pattern, Conditional) else pattern


def pod_spec_of(workload: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the pod of a DaemonSet or a Deployment."""
    pod: Mapping[str, Any] = workload["spec"]["template"]["spec"]
    return pod


def _objects(value: dict[str, Any]) -> dict[tuple[str, str], Any]:
    stack = parse_document(value)
    named = generation(configuration_of(stack))
    return {
        (document["kind"], document["metadata"]["name"]): _with_text(document, named, GENERATION)
        for document in objects(stack, IMAGE)
        if document["kind"] != "Namespace"
    }


def _with_text(node: Any, old: str, new: str) -> Any:
    """Replace a text everywhere but in the configuration, of which it is a digest."""
    if isinstance(node, Mapping):
        fields = {key: value for key, value in node.items() if key != CONFIG_KEY}
        return {key: _with_text(value, old, new) for key, value in fields.items()}
    if isinstance(node, list | tuple):
        return [_with_text(item, old, new) for item in node]
    return node.replace(old, new) if isinstance(node, str) else node


def _defaults(pod: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "priorityClassName": pod["priorityClassName"],
        "resources": pod["containers"][0]["resources"],
    }


def _filled(pattern: Any, files: dict[str, str]) -> Any:
    """Put actions where whole blocks come from values or files."""
    if isinstance(pattern, Conditional):
        return Conditional(pattern.opening, _filled(pattern.node, files))
    template = copy.deepcopy(pattern)
    own = template["metadata"]["labels"]
    template["metadata"]["labels"] = {
        "": Lines('{{- include "divvy.labels" @ | nindent %d }}'),
        **{key: value for key, value in own.items() if key != _LABEL},
    }
    if template["kind"] == "ConfigMap":
        template["data"] = _data(template, files)
    if template["kind"] == "NetworkPolicy":
        (ingress,) = template["spec"]["ingress"]
        readers = Lines(f"{{{{- toYaml ({READERS}) | nindent %d }}}}")
        ingress["from"][0]["namespaceSelector"]["matchLabels"] = readers
    for variable in map(unwrap, template.get("spec", {}).get("variables", ())):
        if variable["name"] in DERIVED:
            computed = f'{{{{ include "divvy.claims.{variable["name"]}" @ | quote }}}}'
            variable["expression"] = Expression(computed)
    if template["kind"] in _WORKLOADS:
        _fill_workload(template, str(component_of(pattern)))
    return template


def _data(config_map: Mapping[str, Any], files: dict[str, str]) -> dict[str, Any]:
    if config_map["metadata"]["name"] == CONFIG_MAP:
        text = '{{- include "divvy.configuration" @ | nindent 4 }}'
        return {"": Lines(f"{CONFIG_KEY}: |-\n  {text}")}
    lines = []
    for key, text in config_map["data"].items():
        path = f"files/{key}"
        files[path] = text
        read = f'@.Files.Get "{path}" | trimSuffix "\\n" | nindent 4'
        lines += [f"{key}: {'|' if text.endswith(chr(10)) else '|-'}", f"  {{{{- {read} }}}}"]
    return {"": Lines("\n".join(lines))}


def _fill_workload(workload: dict[str, Any], component: str) -> None:
    values = f"@.Values.{_VALUES[component]}"
    resources = Lines(f"{{{{- toYaml {values}.resources | nindent %d }}}}")
    _put(workload, (*_CONTAINER, "resources"), resources)
    _put(
        workload,
        (*_POD, "priorityClassName"),
        Expression(f"{{{{ {values}.priorityClassName }}}}"),
    )
    names = Lines("{{- range . }}\n- name: {{ . | quote }}\n{{- end }}")
    _put(workload, (*_POD, "imagePullSecrets"), names)
    if component == "claims":
        workload["spec"]["template"]["spec"].update(_placement(values))
        return
    if component == "agent":
        _put(workload, (*_POD, "tolerations"), Lines("{{- . | nindent %d }}"))
        terms = Lines('{{- include "divvy.nodeSelectorTerms" @ | nindent %d }}')
        _put(workload, (*_REQUIRED, "nodeSelectorTerms"), terms)
        return
    listed = Lines('{{- include "divvy.tolerationList" . | nindent %d }}')
    _put(workload, (*_POD, "tolerations"), listed)
    _put(workload, (*_POD, "nodeSelector"), Lines("{{- toYaml . | nindent %d }}"))
    for variable in pod_spec_of(workload)["containers"][0]["env"]:
        if variable.get("value") == RUNTIME:
            variable["value"] = Expression(f'{{{{ dig "runtime" "name" "{RUNTIME}" $pool }}}}')


def _placement(values: str) -> dict[str, Conditional]:
    """Return what the values of a controller say of where its pod runs."""
    pools = 'include "divvy.controllerTolerations" @ | fromYamlArray'
    placement = {
        "nodeSelector": f"{values}.nodeSelector",
        "tolerations": f"concat ({pools}) ({values}.tolerations | default list)",
        "affinity": f"{values}.affinity",
    }
    return {
        key: Conditional(f"with {value}", Lines("{{- toYaml . | nindent %d }}"))
        for key, value in placement.items()
    }


def _put(document: Any, keys: tuple[str | int, ...], new: Any) -> None:
    """Replace the value at a path, below whatever actions are on the way."""
    here = document
    for key in keys[:-1]:
        here = unwrap(here[key])
    here[keys[-1]] = _replaced(here[keys[-1]], new)


def _replaced(old: Any, new: Any) -> Any:
    return (
        Conditional(old.opening, _replaced(old.node, new)) if isinstance(old, Conditional) else new
    )
