"""The agent's image as a component."""

from __future__ import annotations

import pulumi

from plugin_image.build import input_digest
from plugin_image.resource import Builder, Image

# Where the states of stacks deployed before 89ef102 look for it.
_Builder = Builder


class PluginImage(pulumi.ComponentResource):
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
        image = Image(f"{name}-build", props, pulumi.ResourceOptions(parent=self))
        self.reference = image.reference
        self.register_outputs({"reference": self.reference})
