"""What a removed Divvy left on a Node: after `helm uninstall`, labels and status stay."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from divvy.init.gpu_node import gpu_node
from divvy.model.api_names import AGENT, OWNED_LABELS, STATUS_ANNOTATION
from divvy.model.resource_names import GPU, VENDOR

# True of the hardware and the driver, however the GPUs are shared.
_LASTING = re.compile(rf"{VENDOR}/(gpu[.](product|count|memory|family|compute[.].*)|cuda[.].*)")
# These write the labels that agents write.
_WRITERS = frozenset({"GPU Feature Discovery", "GPU Operator"})


def is_agents(workload: Mapping[str, Any]) -> bool:
    """Return whether a DaemonSet is that of Divvy's agents, in whichever namespace."""
    return bool(workload["metadata"]["name"] == AGENT)


def are_labels_current(software: Iterable[str]) -> bool:
    """Return whether other programs on the cluster write the labels of GPUs."""
    return not _WRITERS.isdisjoint(software)


def without_leftovers(node: Mapping[str, Any], *, labels_are_current: bool) -> Mapping[str, Any]:
    """Return a Node as it is without Divvy; itself if no agent has ever written to it.

    The labels of agents that say how GPUs were shared go, unless another program has written them
    since.
    """
    metadata = node["metadata"]
    annotations = metadata.get("annotations") or {}
    if STATUS_ANNOTATION not in annotations:
        return node
    read = gpu_node(node)
    labels: dict[str, str] = dict(metadata.get("labels") or {})
    if not labels_are_current and read is not None:
        labels = {
            key: text
            for key, text in labels.items()
            if not re.fullmatch(OWNED_LABELS, key) or _LASTING.fullmatch(key)
        }
        # Of MIG devices where the strategy was single.
        of_gpus = {"product": read.product, "count": read.gpus, "memory": read.memory_mib}
        for name, fact in of_gpus.items():
            labels.pop(f"{GPU}.{name}", None)
            if fact is not None:
                labels[f"{GPU}.{name}"] = str(fact)
    others = {key: text for key, text in annotations.items() if key != STATUS_ANNOTATION}
    return {**node, "metadata": {**metadata, "labels": labels, "annotations": others}}
