"""The chart's README: how to install it, and a table of its values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from divvy.render.chart.value_docs import ValueDoc, value_doc, walk
from divvy.render.chart.values_schema import CHART_VALUES, stack_values
from divvy.render.chart.yaml_text import flow

_TEXT = """\
# Divvy

GPU sharing for Kubernetes: how every GPU of the cluster is partitioned (MIG) and shared
(time-slicing). `divvy chart` generated this chart from the stack `{stack}`; it has the same
objects as the Pulumi program of that stack.

## Install

```sh
kubectl create namespace {namespace}
kubectl label namespace {namespace} pod-security.kubernetes.io/enforce=privileged
helm install divvy . --namespace {namespace}
helm test divvy --namespace {namespace}       # if tests.image is set
```

The agents are privileged: they open GPU device nodes and change MIG layouts. One release serves
a cluster, and names of objects do not follow the release's name: a second release is refused by
helm in this namespace, and by the agents in another one.

## Change how GPUs are shared

Edit `profiles` and `pools`, then run `helm upgrade divvy . --namespace {namespace}`. Agents apply
the new values within seconds, without a restart. Pods keep the devices they hold; `change`
decides what happens to a GPU in use that must be reconfigured. `helm rollback` reverts the change
the same way.

* Wrong values are refused before anything changes: unknown keys and types by the schema, names
  of profiles that do not exist by the templates. A MIG layout that does not fit a GPU is found
  by the agent, which keeps the last good layout and says so, or before by `divvy validate`.
* helm merges maps. To give a profile another layout in a values file of your own, give it a new
  name, or set the old keys to null: `profiles: {{seven: {{mig: {{1g.5gb: null, 3g.20gb: 2}}}}}}`.
* Changes here are overwritten when the chart is made again; keep them in the stack file, or in
  a values file of your own.

## Uninstall

`helm uninstall divvy --namespace {namespace}` removes every object. MIG layouts stay on the
cards. The namespace is yours.

## Values

| key | what it is | default |
|---|---|---|
{rows}
"""


def readme(stack: str, namespace: str, own: Mapping[str, Any]) -> str:
    """Return README.md; ``own`` are the values that only a chart has."""
    values, parts = stack_values()
    rows = [
        row for key, schema in values.items() for row in _rows(value_doc(key, schema, parts), {})
    ]
    rows += [
        row
        for key, schema in CHART_VALUES.items()
        for row in _rows(value_doc(key, schema, {}), own)
    ]
    return _TEXT.format(stack=stack, namespace=namespace, rows="\n".join(rows))


def _rows(doc: ValueDoc, own: Mapping[str, Any]) -> Iterator[str]:
    for path, below in walk(doc):
        default: Any = own
        for key in path.split("."):
            default = default.get(key) if isinstance(default, Mapping) else None
        if below.has_default:
            default = below.default
        is_leaf = not below.below or below.has_default
        default_text = f"`{flow(default)}`" if default not in (None, "") and is_leaf else ""
        yield f"| `{path}` | {below.description.replace('|', '/')} | {default_text} |"
