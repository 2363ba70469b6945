"""The images that Divvy's pods run on each node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from conformance.evidence import Verdict
from divvy.model.api_names import Component, component_of

ON_NODES = (Component.AGENT, Component.NODE_RUNTIME)


def images_by_node(pods: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, tuple[str, str]]]:
    """Return node → component → (the image that its pod names, the digest that runs)."""
    images: dict[str, dict[str, tuple[str, str]]] = {}
    for pod in pods:
        component = component_of(pod)
        if component not in ON_NODES or pod["metadata"].get("deletionTimestamp"):
            continue
        named = str(pod["spec"]["containers"][0]["image"])
        statuses = (pod.get("status") or {}).get("containerStatuses") or [{}]
        digest = str(statuses[0].get("imageID") or "").rpartition("@")[2]
        node = str(pod["spec"].get("nodeName") or "")
        images.setdefault(node, {})[str(component)] = (named, digest)
    return images


def rolled_out_to(
    images: Mapping[str, tuple[str, str]], image: str, build: str, sources: str | None
) -> Verdict:
    """Judge the pods of a node.

    ``build`` is what the agent says of the sources of its image, ``sources`` the program's own:
    None if the stack file names an image that is built elsewhere.
    """
    expected = f"{image} in the agent's pod"
    if "agent" not in images:
        return expected, "no agent on the node"
    others = [f"{named} in {component}" for component, (named, _) in images.items()
              if named != image]  # fmt: skip
    if others:
        return expected, ", ".join(others)
    if sources is None:
        return expected, expected
    expected = f"{expected}, built from the sources of this program ({sources})"
    if build == sources:
        return expected, expected
    other = f"from other sources ({build})" if build else "from sources that it does not name"
    return expected, f"{image} in the agent's pod, built {other}"
