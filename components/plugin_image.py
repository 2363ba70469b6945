"""The agent's image as a component."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

import pulumi

from divvy.image.build import input_digest
from divvy.pulumi_resources.agent_image import Image


class PluginImageArgs(TypedDict):
    """Arguments of PluginImage."""

    registry: str
    """Registry and path that the image is pushed to."""
    base: str
    """Base image of the agent's image."""
    insecure: bool
    """The registry speaks plain HTTP, or its certificate is not to be verified."""
    platforms: Sequence[str]
    """Platforms that it is built for, as `linux/arm64`."""


class PluginImage(pulumi.ComponentResource):
    """The agent's image.

    Creates:
    * an image in the registry, keyed by the digest of its inputs

    ``reference`` is the image by digest.
    """

    reference: pulumi.Output[str]

    def __init__(
        self, name: str, args: PluginImageArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("divvy:index:PluginImage", name, {}, opts)
        props = {**args, "inputs": input_digest(args["base"])}
        image = Image(f"{name}-build", props, pulumi.ResourceOptions(parent=self))
        self.reference = image.reference
        self.register_outputs({"reference": self.reference})
