"""Claims and slices of the Kubernetes API, as plain values: no field is lost on the way."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from divvy.kube.access import access_from
from divvy.kube.async_client import AsyncClient, raising_unreachable, until_silent
from divvy.kube.errors import FORBIDDEN, NOT_FOUND, ApiError, Unreachable
from divvy.kube.shapes import shape_problem
from divvy.model.api_names import CLAIMS_DRIVER

_API = "/apis/resource.k8s.io/v1"
_SLICES = f"{_API}/resourceslices"
# Of a list: a large cluster's claims would not fit into the agent's memory at once.
_PAGE = 500


def is_forbidden(error: Exception) -> bool:
    """Return whether the agent has no right to what it asked for."""
    return isinstance(error, ApiError) and error.code == FORBIDDEN


class ClaimsApi:
    """Reads claims, and keeps this node's slices; raises KubeError."""

    def __init__(self, node: str, watch_seconds: float = 240.0) -> None:
        self._client = AsyncClient(access_from(os.environ))
        self._mine = f"spec.nodeName={node},spec.driver={CLAIMS_DRIVER}"
        self._watch_seconds = watch_seconds

    async def claim(
        self, namespace: str, name: str, patience: float | None = None
    ) -> dict[str, Any] | None:
        """Return a ResourceClaim, or None if it does not exist.

        ``patience`` is how many seconds each answer of the API server may take, here and below.
        """
        try:
            path = f"{_API}/namespaces/{namespace}/resourceclaims/{name}"
            with raising_unreachable():
                claim = dict(await self._client.request("GET", path, patience=patience))
        except ApiError as error:
            if error.code == NOT_FOUND:
                return None
            raise
        # What is taken of it goes into the record, and is read again by every agent after this one.
        if problem := shape_problem(claim, "resourceclaims"):
            raise Unreachable(f"claim {namespace}/{name}: {problem}")
        return claim

    async def claims(
        self, unread: Callable[[str], None], patience: float
    ) -> AsyncIterator[dict[str, Any]]:
        """Yield every ResourceClaim of the cluster, read by pages.

        ``unread`` is told the names of those that cannot be read.
        """
        pages = self._client.pages(f"{_API}/resourceclaims", _PAGE, patience=patience)
        async for page in pages:
            for name in page.skipped:
                unread(name)
            for claim in page.items:
                yield claim
            del page  # before the next one is read

    async def slices(self, patience: float) -> tuple[dict[str, dict[str, Any]], str]:
        """Return this node's slices by name, and the version from which a watch goes on."""
        slices: dict[str, dict[str, Any]] = {}
        version = ""
        mine = {"fieldSelector": self._mine}
        async for page in self._client.pages(_SLICES, _PAGE, patience=patience, query=mine):
            slices |= {item["metadata"]["name"]: item for item in page.items}
            # A later page may be of a later version, and miss what happened to an earlier one.
            version = version or page.version
        return slices, version

    async def watch_slices(
        self, version: str, on_open: Callable[[], None]
    ) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        """Yield what happens to this node's slices; ends when nothing has for a while."""
        mine = {"fieldSelector": self._mine}
        events = self._client.watch(_SLICES, version, on_open, query=mine)
        async for event in until_silent(events, self._watch_seconds):
            yield event

    async def create_slice(self, slice_: Mapping[str, Any]) -> dict[str, Any]:
        """Create a slice and return it as the API server has it."""
        with raising_unreachable():
            return dict(await self._client.request("POST", _SLICES, slice_))

    async def replace_slice(self, slice_: Mapping[str, Any]) -> dict[str, Any]:
        """Replace the version of a slice that its metadata name, and return the new one."""
        path = f"{_SLICES}/{slice_['metadata']['name']}"
        with raising_unreachable():
            return dict(await self._client.request("PUT", path, slice_))

    async def delete_slice(self, name: str) -> None:
        """Delete a slice; one that is already gone is no error."""
        try:
            await self._client.request("DELETE", f"{_SLICES}/{name}")
        except ApiError as error:
            if error.code != NOT_FOUND:
                raise

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()
