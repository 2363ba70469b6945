"""The agent's image as a Pulumi resource: built and pushed when what goes into it changes."""

from __future__ import annotations

from collections.abc import Sequence
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

from divvy.image.build import build_and_push, exists
from divvy.image.platforms import DEFAULT_PLATFORMS


class Builder(ResourceProvider):
    """Builds with buildah; the same inputs are never built twice."""

    # The inputs are no secrets, and a secret would need a passphrase for every run.
    serialize_as_secret_always = False

    def create(self, props: dict[str, Any]) -> CreateResult:
        """Build and push."""
        reference = _built(props)
        return CreateResult(reference, {**props, "reference": reference})

    def diff(self, _id: str, olds: dict[str, Any], news: dict[str, Any]) -> DiffResult:
        """Compare the digest of the inputs and where the image goes."""
        keys = ("registry", "base", "inputs")
        changes = any(olds.get(key) != news.get(key) for key in keys)
        changes = changes or _insecure(olds) != _insecure(news)
        return DiffResult(changes=changes or set(_platforms(olds)) != set(_platforms(news)))

    def update(self, _id: str, _olds: dict[str, Any], news: dict[str, Any]) -> UpdateResult:
        """Build and push again; old images stay in the registry for rollbacks."""
        return UpdateResult({**news, "reference": _built(news)})

    def read(self, id_: str, props: dict[str, Any]) -> ReadResult:
        """Look whether the registry still has the image."""
        return ReadResult(
            id_ if exists(props["reference"], insecure=_insecure(props)) else "", props
        )


def _built(props: dict[str, Any]) -> str:
    return build_and_push(
        props["registry"],
        props["base"],
        props["inputs"],
        insecure=_insecure(props),
        platforms=_platforms(props),
    )


def _insecure(props: dict[str, Any]) -> bool:
    """Read the leave; earlier states record none."""
    return bool(props.get("insecure"))


def _platforms(props: dict[str, Any]) -> Sequence[str]:
    """Read the platforms; earlier states record none."""
    return props.get("platforms") or DEFAULT_PLATFORMS


class Image(Resource):
    """An image in a registry; ``reference`` is its name by digest."""

    reference: pulumi.Output[str]

    def __init__(self, name: str, props: dict[str, Any], opts: pulumi.ResourceOptions) -> None:
        super().__init__(Builder(), name, {**props, "reference": None}, opts)
