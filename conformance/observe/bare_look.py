"""The GPUs that a pod without a request sees, however it asks the container runtime for them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from conformance.cluster.api import Api
from conformance.cluster.pods import Outcome, PodNamespace
from conformance.observe.probes import LOOK
from divvy.kube.kind import RUNTIME_CLASS
from divvy.model.pod_phase import FINISHED

# What images and users set; NVIDIA's container runtime gives every GPU to a pod that does.
_ALL = {"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "all"}
_COMMAND = ("/bin/sh", "-c", LOOK)
_PATIENCE = 60
_NO_HANDLER = re.compile(r"no runtime for|RuntimeHandler .* not supported|unknown runtime handler")


@dataclass(frozen=True)
class BareLook:
    """What pods without a request saw, by how they asked; ``numbers`` tried devices by number.

    ``numbers`` is None if the cluster admits no pod with the usual rights.
    """

    outcomes: Mapping[str, Outcome]
    numbers: Outcome | None


# By name of a runtime class: the labels that a node has to have for its pods.
RuntimeClasses = Mapping[str, Mapping[str, str]]


def nvidia_runtime_classes(api: Api) -> RuntimeClasses:
    """Return the runtime classes that lead to NVIDIA's container runtime."""
    return {
        runtime["metadata"]["name"]: (runtime.get("scheduling") or {}).get("nodeSelector") or {}
        for runtime in api.find_known(RUNTIME_CLASS)
        if "nvidia" in f"{runtime['metadata']['name']} {runtime.get('handler')}"
    }


def classes_of(classes: RuntimeClasses, labels: Mapping[str, str]) -> tuple[str, ...]:
    """Return the classes whose pods can run on a node: those of virtual machines select theirs."""
    return tuple(name for name, own in classes.items() if own.items() <= labels.items())


def look_without_request(
    pods: PodNamespace, node: str, classes: Sequence[str]
) -> Mapping[str, Outcome]:
    """Look as a plain pod, as one that sets NVIDIA's variables, and in each runtime class.

    A runtime class that this node's runtime does not know is left out: no pod runs with it.
    """
    names: dict[str, str] = {}
    try:
        names["a plain pod"] = pods.start(node, _COMMAND)
        names["NVIDIA_VISIBLE_DEVICES=all"] = pods.start(node, _COMMAND, env=_ALL)
        for runtime_class in classes:
            names[f"runtime class {runtime_class}"] = pods.start(
                node, _COMMAND, env=_ALL, runtime_class=runtime_class
            )
        outcomes = {}
        for how, name in names.items():
            pods.until(lambda: _is_settled(pods, name, how), _PATIENCE)  # noqa: B023
            if not _has_no_handler(pods, name, how):
                outcomes[how] = pods.wait(name, 0)
        return outcomes
    finally:
        pods.remove(*names.values())


def _is_settled(pods: PodNamespace, name: str, how: str) -> bool:
    ended = pods.phase(name) in (*FINISHED, "Deleted")
    return ended or _has_no_handler(pods, name, how)


def _has_no_handler(pods: PodNamespace, name: str, how: str) -> bool:
    if not how.startswith("runtime class") or pods.phase(name) != "Pending":
        return False
    return any(_NO_HANDLER.search(event) for event in pods.events(name))
