"""The objects rendered for the stack file beside those in the cluster."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any

from conformance.cluster.cluster_under_test import ClusterUnderTest
from conformance.cluster.last_look import last_look
from conformance.cluster.running_images import images_by_node
from conformance.evidence import Verdict
from conformance.observe.owned_fields import differences
from conformance.observe.rollout import not_rolled_out
from conformance.skips import not_applicable, not_made
from divvy.image.build import input_digest
from divvy.kube.errors import FORBIDDEN, NOT_FOUND, ApiError
from divvy.kube.kind import POD, kind_named
from divvy.model import PluginImage, generation
from divvy.model.api_names import AGENT, CONFIG_MAP, Component, component_of
from divvy.render.objects.cluster import configuration_of, objects

_WORKLOADS = ("DaemonSet", "Deployment")
# What has just been changed is rolled out within this.
_PATIENCE = 30.0
_MOST = 8
_MANAGED_BY = "app.kubernetes.io/managed-by"
# As much of the digest as an agent's status has.
_SHORT = 12


class Part(StrEnum):
    """What one check is about: a component of Divvy, its admission policies taken together."""

    AGENTS = "agents"
    CONFIGURATION = "configuration"
    POLICIES = "admission policies"
    CLAIMS = "claims"
    NODE_RUNTIME = "node runtime"
    OBSERVABILITY = "observability"


_PARTS = {
    Component.CONFIGURATION: Part.CONFIGURATION,
    Component.CLAIMS: Part.CLAIMS,
    Component.NODE_RUNTIME: Part.NODE_RUNTIME,
    Component.OBSERVABILITY: Part.OBSERVABILITY,
}


@dataclass(frozen=True)
class InstalledObject:
    """An object as it is rendered, and as the cluster has it: None if it is missing.

    ``refused`` are the API server's words where this account may not read it.
    """

    rendered: Mapping[str, Any]
    live: Mapping[str, Any] | None
    refused: str = ""

    @property
    def name(self) -> str:
        """Return how people call it: ``DeviceClass divvy-share``."""
        return f"{self.rendered['kind']} {self.rendered['metadata']['name']}"


def part_of(rendered: Mapping[str, Any]) -> Part:
    """Return what an object belongs to."""
    if "AdmissionPolicy" in rendered["kind"]:
        return Part.POLICIES
    return _PARTS.get(component_of(rendered), Part.AGENTS)  # type: ignore[call-overload, no-any-return]


def differing(installed: Iterable[InstalledObject]) -> Iterator[str]:
    """Yield what is missing, or has another value than the program writes."""
    for obj in installed:
        if obj.refused:
            continue
        if obj.live is None:
            yield f"{obj.name} is missing"
        elif obj.live["metadata"].get("deletionTimestamp"):
            yield f"{obj.name} is being deleted"
        else:
            for difference in differences(_without_kind(obj.rendered), obj.live):
                yield f"{obj.name}: {difference}"


def stuck(installed: Iterable[InstalledObject], unready: int) -> Iterator[str]:
    """Yield what is not rolled out."""
    for obj in installed:
        if obj.live is None or obj.rendered["kind"] not in _WORKLOADS:
            continue
        if why := not_rolled_out(obj.live, unready):
            yield f"{obj.name}: {why}"


def judged(installed: Sequence[InstalledObject], unready: int) -> Verdict:
    """Judge the objects of one part."""
    expected = f"{len(installed)} objects as this program writes them"
    amiss = [*differing(installed), *stuck(installed, unready)]
    more = [f"and {len(amiss) - _MOST} more"] if len(amiss) > _MOST else []
    return expected, "; ".join([*amiss[:_MOST], *more]) or expected


def expected_image(named: PluginImage | None, live: str) -> tuple[str, str]:
    """Return the image that the program gives its pods, and what is wrong with the live one.

    One that the program builds is known after `divvy up` alone: the live one is taken for it where
    it is from its registry, and by digest.
    """
    if named is not None and named.reference is not None:
        return named.reference, ""
    if named is None or named.registry is None:
        return live, ""
    prefix = f"{named.registry}/divvy/agent@sha256:"
    if live.startswith(prefix):
        return live, ""
    return live, f"DaemonSet {AGENT}: its image is {live or 'absent'}, not {prefix}…"


class Installation:
    """The cluster's objects, read when a check asks for them."""

    def __init__(self, target: ClusterUnderTest) -> None:
        self._target = target
        self._api = target.api

    @property
    def image(self) -> tuple[str, str]:
        """Return the image of the program's pods, and what is wrong with the live one.

        A chart names an image of its own.
        """
        live = self._agents()
        containers = () if live is None else live["spec"]["template"]["spec"]["containers"]
        image = next(
            (container["image"] for container in containers if container["name"] == "agent"), ""
        )
        named = self._target.cluster.plugin.image
        return (image, "") if _is_helms(live) else expected_image(named, image)

    @cached_property
    def images(self) -> Mapping[str, Mapping[str, tuple[str, str]]]:
        """Return node → component → (the image that its pod names, the digest that runs)."""
        return images_by_node(self._api.find(POD, namespace=self._target.cluster.namespace))

    @cached_property
    def sources(self) -> str | None:
        """Return what this program's image is built from, None if another one is named."""
        image = self._target.cluster.plugin.image
        if image is None or image.reference is not None or image.base is None:
            return None
        return input_digest(image.base)[:_SHORT]

    def judge(self, part: Part) -> Verdict:
        """Judge a part; waits a while for what is being rolled out.

        Skips the check where the stack file asks for none of it, or it may not be read.
        """

        def look() -> tuple[str, str, bool]:
            image, wrong = self.image
            installed = [self._read(obj) for obj in self._expected(image) if part_of(obj) == part]
            if not installed:
                not_applicable(f"the stack file asks for no {part}")
            if refused := next((obj.refused for obj in installed if obj.refused), ""):
                not_made(f"this account may not read what is installed: {refused}")
            expected, actual = judged(installed, len(self._target.unready))
            if wrong and part is Part.AGENTS:
                actual = f"{wrong}; {actual}".removesuffix(f"; {expected}")
            is_written = not wrong and not any(differing(installed))
            return expected, actual, actual != expected and is_written

        expected, actual, _ = last_look(look, lambda seen: not seen[2], _PATIENCE)
        return expected, actual

    def _agents(self) -> Mapping[str, Any] | None:
        """Read the agents' DaemonSet; None if it is missing, or may not be read."""
        metadata = {"name": AGENT, "namespace": self._target.cluster.namespace}
        return self._read({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": metadata}).live

    def _expected(self, image: str) -> Iterator[dict[str, Any]]:
        """Yield the objects to expect: a chart leaves the namespace to who calls helm."""
        is_helms = _is_helms(self._agents())
        for obj in self._rendered(image):
            if not (is_helms and obj["kind"] == "Namespace"):
                yield obj

    def _rendered(self, image: str) -> list[dict[str, Any]]:
        """Render the objects; of two texts that mean the same file, the cluster's counts."""
        target = self._target
        own = generation(configuration_of(target.document))
        text = json.dumps(objects(target.document, image)).replace(own, target.generation)
        rendered: list[dict[str, Any]] = json.loads(text)
        for obj in rendered:
            if obj["kind"] == "ConfigMap" and obj["metadata"]["name"] == CONFIG_MAP:
                obj["data"] = dict.fromkeys(obj["data"], target.configuration)
        return rendered

    def _read(self, rendered: Mapping[str, Any]) -> InstalledObject:
        metadata = rendered["metadata"]
        kind = kind_named(rendered["apiVersion"], rendered["kind"])
        try:
            live = self._api.get(kind, metadata["name"], metadata.get("namespace", ""))
        except ApiError as problem:
            if problem.code == NOT_FOUND:
                return InstalledObject(rendered, None)
            if problem.code == FORBIDDEN:
                return InstalledObject(rendered, None, str(problem))
            raise
        return InstalledObject(rendered, {"kind": rendered["kind"], **live})


def _is_helms(live: Mapping[str, Any] | None) -> bool:
    labels = {} if live is None else live["metadata"].get("labels") or {}
    return bool(labels.get(_MANAGED_BY) == "Helm")


def _without_kind(rendered: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in rendered.items() if key not in ("apiVersion", "kind")}
