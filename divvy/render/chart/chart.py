"""All files of the chart of a cluster."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files as package_files
from io import StringIO
from typing import Any

from rich.console import Console

from divvy.model import (
    SCHEMA_VERSION,
    Cluster,
    ClusterDocument,
    canonical_json,
    generation,
    gpu_model,
    gpu_models,
)
from divvy.model.kubernetes_support import SHARES_SINCE
from divvy.plan import plan
from divvy.render.chart.readme import readme
from divvy.render.chart.templated_objects import TemplatedObjects, templated_objects
from divvy.render.chart.templates import template_files
from divvy.render.chart.values import chart_values, values_text
from divvy.render.chart.values_schema import NOT_VALUES, stack_values, values_schema
from divvy.render.chart.yaml_text import scalar
from divvy.render.objects.claims.claimable import UNKNOWN_LARGEST_MIB, types_of
from divvy.render.objects.claims.template_maker import NODE_STATE, controller_affinity
from divvy.render.objects.cluster import objects
from divvy.render.views.terminal import plan_text

NAME = "divvy"
CHART_LABEL = "helm.sh/chart"
_TEMPLATES = ("_helpers.tpl", "_resources.tpl", "NOTES.txt")
_TEST = "vector-add.yaml"
_IGNORED = ".divvy-files\n*.tgz\n.git/\n.gitignore\n*.swp\n*~\n"


@dataclass(frozen=True)
class Chart:
    """What a chart is made of beside the stack file's value.

    ``image`` is the agent's by digest; without one, the chart says what to set. ``annotations``
    are the chart's own.
    """

    stack: str
    version: str
    app_version: str
    image: str | None = None
    workloads: str | None = None
    annotations: Mapping[str, str] = field(default_factory=dict)


def values_of(document: ClusterDocument) -> dict[str, Any]:
    """Return the cluster value that the chart of a stack deploys: its namespace written out."""
    return {**chart_values(document.value), "namespace": document.cluster.namespace}


def chart_files(document: ClusterDocument, chart: Chart) -> dict[str, str]:
    """Return every file of the chart by its path; the same input gives the same text."""
    value, cluster = document.value, document.cluster
    templated = templated_objects()
    own = _own_values(chart, templated, controller_affinity(cluster))
    text = canonical_json(chart_values(value))
    files = {
        ".helmignore": _IGNORED,
        "Chart.yaml": _chart_yaml(chart),
        "README.md": readme(chart.stack, cluster.namespace, own),
        "values.yaml": values_text(value, own),
        "values.schema.json": _json(values_schema()),
        "files/gpu-models.json": _gpu_models(),
        "files/plan.txt": _plan_text(cluster, chart.stack),
        f"templates/tests/{_TEST}": _packaged(_TEST),
        **{f"templates/{name}": _filled(name, generation(text)) for name in _TEMPLATES},
        **{f"templates/{name}": body for name, body in template_files(templated.objects).items()},
        **templated.files,
    }
    return dict(sorted(files.items()))


def chart_objects(document: ClusterDocument, image: str, version: str) -> list[dict[str, Any]]:
    """Return the objects that Helm makes of the chart of a stack, without what Helm adds itself."""
    own = objects(document, image)
    return [_labelled(obj, version) for obj in own if obj["kind"] != "Namespace"]


def _labelled(obj: dict[str, Any], version: str) -> dict[str, Any]:
    # As _helpers.tpl makes it: a label takes no +, and 63 characters.
    chart = f"{NAME}-{version}".replace("+", "_")[:63].rstrip("-")
    labels = {**(obj["metadata"].get("labels") or {}), CHART_LABEL: chart}
    return {**obj, "metadata": {**obj["metadata"], "labels": labels}}


def _own_values(
    chart: Chart, templated: TemplatedObjects, affinity: Mapping[str, Any]
) -> dict[str, Any]:
    repository, _, digest = (chart.image or "").partition("@")
    placement = {"nodeSelector": {}, "tolerations": [], "affinity": affinity}
    return {
        "image": {"repository": repository, "digest": digest},
        **{key: templated.defaults[key] for key in ("agent", "nodeRuntime")},
        "claimTemplates": templated.defaults["claimTemplates"] | placement,
        "rbac": {"create": True},
        "admissionPolicy": {"create": True},
        "tests": {"image": chart.workloads or "", "resources": []},
    }


def _chart_yaml(chart: Chart) -> str:
    return f"""\
apiVersion: v2
name: {NAME}
description: How every GPU of a cluster is partitioned and shared.
type: application
version: {scalar(chart.version)}
appVersion: {scalar(chart.app_version)}
# The admission policy reads the node's name from tokens, which 1.32 made stable.
kubeVersion: ">=1.32.0-0"
keywords: [gpu, mig, time-slicing, device-plugin]
{_annotations(chart.annotations)}"""


def _annotations(annotations: Mapping[str, str]) -> str:
    lines = [f"  {scalar(key)}: {scalar(value)}\n" for key, value in sorted(annotations.items())]
    return "".join(("annotations:\n", *lines)) if lines else ""


def _gpu_models() -> str:
    """Return memory and types of every model by the names that stack files have for it."""
    named = {
        name.casefold(): gpu_model(name)
        for model in gpu_models().values()
        for name in (*model.spellings, model.name)
    }
    return _json(
        {
            name: {"memory": model.memory_mib, "types": sorted(types_of(model))}
            for name, model in sorted(named.items())
        }
    )


def _filled(name: str, named: str) -> str:
    keys = [key for key in stack_values()[0] if key not in NOT_VALUES]
    return (
        _packaged(name)
        .replace("CLUSTER_KEYS", " ".join(f'"{key}"' for key in keys))
        .replace("SCHEMA_VERSION", str(SCHEMA_VERSION))
        .replace("PLANNED_VALUES", named)
        .replace("UNKNOWN_LARGEST_MIB", str(UNKNOWN_LARGEST_MIB))
        .replace("NODE_STATE", NODE_STATE)
        .replace("CLAIMS_SINCE", ".".join(map(str, SHARES_SINCE)))
    )


def _packaged(name: str) -> str:
    return (package_files(__package__) / "files" / name).read_text(encoding="utf-8")


def _plan_text(cluster: Cluster, stack: str) -> str:
    out = StringIO()
    console = Console(file=out, width=96, no_color=True, highlight=False)
    console.print(plan_text(plan(cluster, stack)))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()).strip("\n") + "\n"


def _json(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"
