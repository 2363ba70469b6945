"""The agent's image as a resource: built and pushed when what goes into it changes."""

from __future__ import annotations

from typing import Any

import pulumi
from pulumi.dynamic import (
    CreateResult,
    DiffResult,
    ReadResult,
    Resource,
    ResourceProvider,
    UpdateResult,
)

from plugin_image.build import build_and_push, exists, input_digest


class _Builder(ResourceProvider):  # type: ignore[misc]
    """Builds with buildah; the same inputs are never built twice."""

    # The inputs are no secrets, and a secret would need a passphrase for every run.
    serialize_as_secret_always = False

    def create(self, props: dict[str, Any]) -> CreateResult:
        """Build and push."""
        reference = build_and_push(props["registry"], props["base"], props["inputs"])
        return CreateResult(reference, {**props, "reference": reference})

    def diff(self, _id: str, olds: dict[str, Any], news: dict[str, Any]) -> DiffResult:
        """Compare the digest of the inputs and where the image goes."""
        keys = ("registry", "base", "inputs")
        return DiffResult(changes=any(olds.get(key) != news.get(key) for key in keys))

    def update(self, _id: str, _olds: dict[str, Any], news: dict[str, Any]) -> UpdateResult:
        """Build and push anew; old images stay in the registry for rollbacks."""
        reference = build_and_push(news["registry"], news["base"], news["inputs"])
        return UpdateResult({**news, "reference": reference})

    def read(self, id_: str, props: dict[str, Any]) -> ReadResult:
        """Look whether the registry still has the image."""
        return ReadResult(id_ if exists(props["reference"]) else "", props)


class _Image(Resource):  # type: ignore[misc]
    reference: pulumi.Output[str]

    def __init__(self, name: str, props: dict[str, Any], opts: pulumi.ResourceOptions) -> None:
        super().__init__(_Builder(), name, {**props, "reference": None}, opts)


class PluginImage(pulumi.ComponentResource):  # type: ignore[misc]
    """The agent's image.

    Creates:
    * an image in the registry, keyed by the digest of its inputs

    ``reference`` is the image by digest.
    """

    reference: pulumi.Output[str]

    def __init__(
        self, name: str, args: dict[str, str], opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("divvy:index:PluginImage", name, {}, opts)
        props = {**args, "inputs": input_digest(args["base"])}
        image = _Image(f"{name}-build", props, pulumi.ResourceOptions(parent=self))
        self.reference = image.reference
        self.register_outputs({"reference": self.reference})
