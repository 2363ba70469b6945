"""Claims and slices of the Kubernetes API, as plain values: no field is lost on the way."""

from __future__ import annotations

import contextlib
import random
from asyncio import timeout
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any, cast

from lightkube import ApiError, AsyncClient
from lightkube.generic_resource import create_global_resource, create_namespaced_resource

from divvy.model.contract import CLAIMS_DRIVER

_GROUP, _VERSION = "resource.k8s.io", "v1"
_SLICE = create_global_resource(_GROUP, _VERSION, "ResourceSlice", "resourceslices")
_CLAIM = create_namespaced_resource(_GROUP, _VERSION, "ResourceClaim", "resourceclaims")
FORBIDDEN, NOT_FOUND, CONFLICT = 403, 404, 409


def is_forbidden(error: Exception) -> bool:
    """Return whether the agent has no right to what it asked for."""
    return isinstance(error, ApiError) and error.status.code == FORBIDDEN


class ClaimsApi:
    """Reads claims, and keeps this node's slices; raises what ``client.AWAY`` lists."""

    def __init__(self, node: str, watch_seconds: float = 240.0) -> None:
        self._client = AsyncClient(field_manager="divvy-agent")
        self._fields = {"spec.nodeName": node, "spec.driver": CLAIMS_DRIVER}
        self._watch_seconds = watch_seconds

    async def claim(self, namespace: str, name: str) -> dict[str, Any] | None:
        """Return a ResourceClaim, None where there is none."""
        try:
            return dict(await self._client.get(_CLAIM, name, namespace=namespace))
        except ApiError as error:
            if error.status.code == NOT_FOUND:
                return None
            raise

    async def claims(self) -> list[dict[str, Any]]:
        """Return every ResourceClaim of the cluster."""
        return [dict(claim) async for claim in self._client.list(_CLAIM, namespace="*")]

    async def slices(self) -> tuple[dict[str, dict[str, Any]], str]:
        """Return this node's slices by name, and the version from which a watch goes on."""
        listed = self._client.list(_SLICE, fields=cast("dict[str, Any]", self._fields))
        found = [dict(each) async for each in listed]
        return {each["metadata"]["name"]: each for each in found}, listed.resourceVersion

    async def watch_slices(self, version: str) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        """Yield what happens to this node's slices; ends when nothing has for a while."""
        events = self._client.watch(
            _SLICE, fields=cast("dict[str, Any]", self._fields), resource_version=version
        )
        generator = cast("AsyncGenerator[tuple[str, Any], None]", events)
        async with contextlib.aclosing(generator):
            while True:
                patience = self._watch_seconds * random.uniform(0.8, 1.2)  # noqa: S311
                try:
                    async with timeout(patience):
                        kind, seen = await anext(generator)
                except (TimeoutError, StopAsyncIteration):
                    return
                yield kind, dict(seen)

    async def create_slice(self, slice_: Mapping[str, Any]) -> dict[str, Any]:
        """Create a slice and return it as the API server has it."""
        return dict(await self._client.create(_SLICE(**slice_)))

    async def replace_slice(self, slice_: Mapping[str, Any]) -> dict[str, Any]:
        """Replace the version of a slice that its metadata name, and return the new one."""
        return dict(await self._client.replace(_SLICE(**slice_)))

    async def delete_slice(self, name: str) -> None:
        """Delete a slice; one that is not there any more is no error."""
        try:
            await self._client.delete(_SLICE, name)
        except ApiError as error:
            if error.status.code != NOT_FOUND:
                raise

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()
