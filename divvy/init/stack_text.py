"""The stack file that `divvy init` writes: a draft as YAML, with what a reader should know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from textwrap import wrap
from typing import Any

from divvy.init.draft import Draft
from divvy.init.other_software import DRIVER_CONTAINERS, Other
from divvy.init.selectors import HOSTNAME
from divvy.model.phrases import some
from divvy.model.problems import printable
from divvy.model.versions import version_numbers
from divvy.stack.yaml_flow import flow

_WIDTH = 98
_OLDEST = (1, 32)
NO_IMAGE = "    #plugin:"
_NO_IMAGE = (
    "    # `divvy preview` and `divvy up` need the agent's image. Remove the # of the next line",
    "    # and of one of the two below it: the first has the image built on a Debian 12 with the",
    "    # package python3, and pushed; the second names an image that is in a registry.",
    NO_IMAGE,
    '    #  image: {registry: "registry.example/gpus", base: "registry.example/debian-python"}',
    '    #  image: {reference: "registry.example/divvy-agent@sha256:DIGEST"}',
)


def stack_text(
    draft: Draft,
    others: Sequence[Other],
    connection: Mapping[str, Any],
    image: Mapping[str, Any],
    schema: str = "",
) -> str:
    """Return the file; ``connection`` are keys of the cluster that come first.

    ``image`` is the agent's image as `plugin.image` writes it, empty if it is not known yet.
    ``schema`` is the path of the JSON Schema from the file, for editors.
    """
    notes = ["Written by `divvy init` from the cluster's nodes; `divvy plan` says what they get."]
    notes += remarks(draft, others)
    lines = [f"# yaml-language-server: $schema={schema}"] if schema else []
    # A command in a note can be copied: its labels are not broken at their hyphens.
    fold = partial(wrap, width=_WIDTH, subsequent_indent="  ", break_on_hyphens=False)
    lines += [f"# {line}" for note in notes for line in fold(note)]
    lines += ["config:", "  divvy:cluster:"]
    cluster = {**connection, **draft.cluster, **_driver(draft, others)}
    if image:
        cluster["plugin"] = {"image": dict(image)}
    for key, value in cluster.items():
        if key in ("profiles", "pools"):
            lines.append(f"    {key}:")
            for name, entry in value.items():
                lines += _pool(name, entry) if key == "pools" else _profile(name, entry)
        else:
            lines.append(f"    {key}: {flow(value)}")
    if not image:
        lines += _NO_IMAGE
    return "\n".join(lines) + "\n"


def remarks(draft: Draft, others: Sequence[Other]) -> list[str]:
    """Return what a reader should know, one sentence or two for each thing."""
    lines = []
    for other in others:
        remedy = f": {other.remedy}" if other.remedy else ""
        lines.append(f"At work: {other.name} ({other.where}){remedy}.")
    lines += [f"Left out: {some(group.nodes)}: {group.reason}." for group in draft.left_out]
    if draft.idle:
        lines.append(f"Nothing is offered yet by {some(draft.idle)}.")
    if draft.reduced:
        lines.append(
            f"Fewer devices than they have are allocatable on {some(draft.reduced)}: the plan is "
            "that of healthy nodes."
        )
    if draft.assumed:
        lines.append(
            "The API does not reveal which GPU of a node has which part of "
            f"{', '.join(draft.assumed)}: compare with `nvidia-smi -L` on a node, and move the "
            "indices."
        )
    if draft.renamed:
        names = ", ".join(f"{old} is {new}" for old, new in draft.renamed.items())
        lines.append(f"Imported under another name, as nodes' labels would choose it: {names}.")
    chosen = [pool.get("select", {}) for pool in draft.cluster.get("pools", {}).values()]
    if any(HOSTNAME in select for select in chosen):
        lines.append(
            "No label tells nodes with other GPUs apart, so every node is a pool: label them, and "
            "write the file again."
        )
    if draft.unknown:
        lines.append(
            f"Divvy does not know the model {', '.join(draft.unknown)}: for its pools nothing is "
            "predicted, unless you write their `hardware` with the `memory` of a GPU."
        )
    lines += _old_kubelets(draft)
    # A node says of itself what it wants: no line break may end the comment that this becomes.
    return [printable(line) for line in lines]


def _old_kubelets(draft: Draft) -> list[str]:
    versions = {
        node.kubelet for node in draft.nodes if () < version_numbers(node.kubelet) < _OLDEST
    }
    if not versions:
        return []
    return [
        f"Divvy needs Kubernetes 1.32 or later; there are kubelets {', '.join(sorted(versions))}."
    ]


def _driver(draft: Draft, others: Sequence[Other]) -> dict[str, Any]:
    versions = {node.driver for node in draft.nodes}
    driver: dict[str, Any] = {}
    if len(versions) == 1 and None not in versions:
        driver["version"] = versions.pop()
    if any(other.name == DRIVER_CONTAINERS for other in others):
        driver["root"] = "/run/nvidia/driver"
    return {"driver": driver} if driver else {}


def _profile(name: str, profile: Any) -> list[str]:
    if isinstance(profile, list):
        return [f"      {flow(name)}:", *(f"        - {flow(rule)}" for rule in profile)]
    return [f"      {flow(name)}: {flow(profile)}"]


def _pool(name: str, pool: Mapping[str, Any]) -> list[str]:
    lines = [f"      {flow(name)}:"]
    for key, value in pool.items():
        if key == "tolerations":
            lines += [f"        {key}:", *(f"          - {flow(item)}" for item in value)]
        elif key == "overrides":
            lines += [f"        {key}:"]
            lines += [f"          {flow(node)}: {flow(own)}" for node, own in value.items()]
        else:
            lines.append(f"        {key}: {flow(value)}")
    return lines
