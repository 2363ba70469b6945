"""The agent's image that a deployment names: given by digest, deployed already, or to be built."""

from __future__ import annotations

from dataclasses import dataclass

from divvy.deploy.records import Record
from divvy.image.build import (
    IMAGE_NAME,
    BuildFailed,
    build_and_push,
    build_tools,
    exists,
    input_digest,
    inspect,
    require_tools,
    tls_verify,
)
from divvy.image.platforms import platforms_of
from divvy.model import Cluster, PluginImage

INPUTS = "divvy.gpu/image-inputs"
_IMAGE = "divvy.gpu/image"
# Stands in objects for an image whose digest is known only once it is built.
_UNBUILT = f"sha256:{'0' * 64}"


@dataclass(frozen=True)
class AgentImage:
    """An image by digest, ``inputs`` what it is built of; ``build`` says it has to be built yet."""

    reference: str
    inputs: str = ""
    build: PluginImage | None = None

    @property
    def annotations(self) -> dict[str, str]:
        """Return what the chart records: whether the next run may use the image again."""
        return {INPUTS: self.inputs, _IMAGE: self.reference} if self.inputs else {}


def agent_image(cluster: Cluster, deployed: Record | None) -> AgentImage:
    """Return the image of a stack; one that is deployed and still in its registry is used again.

    Raises BuildFailed where registry, base or tools do not allow what is needed: before anything
    is changed.
    """
    if missing := cluster.plugin.missing():
        raise BuildFailed(missing)
    image = cluster.plugin.image
    assert image is not None
    if image.reference is not None:
        return AgentImage(image.reference)
    assert image.base is not None
    assert image.registry is not None
    inputs = f"{input_digest(image.base)[:16]} {' '.join(sorted(image.platforms))}"
    annotations = deployed.annotations if deployed else {}
    reference = annotations.get(_IMAGE, "")
    known = annotations.get(INPUTS) == inputs and reference.startswith(f"{image.registry}/")
    if known and exists(reference, insecure=image.insecure):
        return AgentImage(reference, inputs)
    _require_buildable(image.registry, image.base, image)
    return AgentImage(f"{image.registry}/{IMAGE_NAME}@{_UNBUILT}", inputs, image)


def built(image: AgentImage) -> AgentImage:
    """Build and push an image that is not there yet; raises BuildFailed."""
    if image.build is None:
        return image
    registry, base = image.build.registry, image.build.base
    assert registry is not None
    assert base is not None
    reference = build_and_push(
        registry, base, insecure=image.build.insecure, platforms=image.build.platforms
    )
    return AgentImage(reference, image.inputs)


def _require_buildable(registry: str, base: str, image: PluginImage) -> None:
    """Raise BuildFailed if a build would end after a minute with what can be seen now."""
    require_tools("the agent's image", *build_tools(platforms_of(image.platforms)))
    # An image that nobody has: the answer "not found" is that of a registry that can be used.
    probe = f"{registry}/{IMAGE_NAME}@{_UNBUILT}"
    try:
        exists(probe, insecure=image.insecure)
    except BuildFailed as problem:
        raise BuildFailed(f"plugin.image.registry: {problem}") from None
    same = base.partition("/")[0] == registry.partition("/")[0]
    try:
        inspect(base, "--raw", tls_verify(image.insecure and same))
    except BuildFailed as problem:
        raise BuildFailed(f"plugin.image.base: {base} cannot be pulled: {problem}") from None
