"""Observations of a cluster: what its API and its agents report of the GPUs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from divvy.live.agent_readings import Sample
from divvy.live.live_diff import device_counts, node_status
from divvy.live.pods import LivePod
from divvy.plan.fit.live_claims import ClaimedGpu


@dataclass(frozen=True)
class ObservedNode:
    """What the API says of a node with GPUs."""

    name: str
    labels: Mapping[str, str]
    allocatable: Mapping[str, int]
    status: Mapping[str, Any]


@dataclass(frozen=True)
class AgentAnswer:
    """What an agent answered; ``problem`` says why there are no samples."""

    samples: tuple[Sample, ...] = ()
    problem: str = ""


@dataclass(frozen=True)
class ObservedCluster:
    """What the API and the agents of a cluster reported; agents by the names of their nodes.

    ``has_all_pods`` is False if this user may not read all of them; ``no_answer`` says why a
    node has no answer; ``notes`` are what else this user may not see, and why.
    """

    nodes: Sequence[ObservedNode]
    pods: Sequence[LivePod]
    gpus: Sequence[ClaimedGpu]
    agents: Mapping[str, AgentAnswer]
    has_all_pods: bool = True
    no_answer: str = "no agent of Divvy runs on it"
    notes: tuple[str, ...] = ()


def observed_node(raw: Mapping[str, Any]) -> ObservedNode:
    """Read a Node of the API: no more than is shown of it."""
    meta = raw["metadata"]
    labels = meta.get("labels") or {}
    return ObservedNode(
        meta["name"],
        labels,
        device_counts((raw.get("status") or {}).get("allocatable") or {}),
        node_status(meta.get("annotations") or {}),
    )


def gpu_entries(status: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the GPUs of a status that can be read: the annotation may say anything."""
    listed = status.get("gpus")
    return [
        entry
        for entry in (listed if isinstance(listed, list) else ())
        if isinstance(entry, dict)
        and isinstance(entry.get("uuid"), str)
        and isinstance(entry.get("index"), int)
        and isinstance(entry.get("resources", []), list)
        and isinstance(entry.get("mig") or {}, dict)
    ]
