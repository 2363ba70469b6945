"""The API's slices and claims: versions, watches, conflicts, and the times of taints."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

from divvy.model.api_names import CLAIMS_DRIVER, claims_pool

_CLAIM = "ResourceClaim"
_REASONS = {
    200: "OK",
    400: "Bad Request",
    403: "Forbidden",
    404: "Not Found",
    409: "Conflict",
    410: "Gone",
    429: "Too Many Requests",
    503: "Service Unavailable",
}


class Refusal(Exception):
    """A request that the API server refuses."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


@dataclass
class FakeResources:
    """ResourceSlices by name and ResourceClaims by (namespace, name), as of resource.k8s.io/v1."""

    node: str
    slices: dict[str, dict[str, Any]] = field(default_factory=dict)
    claims: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    writes: list[tuple[str, str]] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    away: bool = False
    forbidden: bool = False
    unwatched: int | None = None
    """The status with which watches are refused: 410 says that their version is too old."""
    others: set[str] = field(default_factory=set)
    """Slices of these names are somebody else's, and no list of ours has them."""
    odd_answers: list[bytes] = field(default_factory=list)
    """What something on the way answers the next writes with, and reads of a claim."""
    requests: int = 0
    lists: int = 0
    """How often all claims were asked for, page by page."""

    def __post_init__(self) -> None:
        self._versions = itertools.count(1000)
        self._uids = itertools.count(1)
        self._changed = asyncio.Event()

    def allocate(
        self, name: str, *devices: str, pods: tuple[str, ...] = (), **consumed: str
    ) -> dict[str, Any]:
        """Make a claim of namespace "default" with these devices, or give it others."""
        results = []
        for device in devices:
            result = {"driver": CLAIMS_DRIVER, "pool": claims_pool(self.node), "device": device}
            if consumed or self.device(device).get("allowMultipleAllocations"):
                result["shareID"] = f"{next(self._uids):08d}-0000-0000-0000-000000000000"
                result["consumedCapacity"] = {**self._defaults(device), **consumed}
            results.append({"request": "gpu", **result})
        number = next(self._uids)
        claim = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": _CLAIM,
            "metadata": {"namespace": "default", "name": name, "uid": f"uid-{number}"},
            "status": {
                "allocation": {"devices": {"results": results}},
                "reservedFor": [
                    {"resource": "pods", "name": pod, "uid": f"pod-{number}"}
                    for pod in pods or (name,)
                ],
            },
        }
        self.claims["default", name] = claim
        return claim

    def device(self, name: str) -> dict[str, Any]:
        """Return a device of the slices."""
        return next(device for device in self.devices() if device["name"] == name)

    def devices(self) -> list[dict[str, Any]]:
        """Return the devices of all slices, in their order."""
        return [
            device
            for _, resource_slice in sorted(self.slices.items())
            for device in resource_slice["spec"].get("devices", ())
        ]

    def delete(self, name: str) -> None:
        """Delete a slice, as a kubelet that starts does."""
        self._tell("DELETED", self.slices.pop(name))

    def change(self, name: str, spec: dict[str, Any]) -> None:
        """Write a slice as somebody else."""
        changed = {**self.slices[name], "spec": spec}
        self.slices[name] = self._stored(changed)
        self._tell("MODIFIED", self.slices[name])

    def _defaults(self, device: str) -> dict[str, str]:
        capacity: Mapping[str, Any] = self.device(device)["capacity"]
        return {name: entry["requestPolicy"]["default"] for name, entry in capacity.items()}

    async def answer(
        self, method: str, target: str, body: Any, writer: asyncio.StreamWriter
    ) -> None:
        """Answer one request below /apis/resource.k8s.io."""
        parts = urlsplit(target)
        query = parse_qs(parts.query)
        try:
            if query.get("watch") == ["true"]:
                await self._watch(int(query["resourceVersion"][0]), writer)
                return
            status, value = 200, self._request(method, parts.path, body, query)
        except Refusal as refusal:
            status = refusal.status
            value = {"kind": "Status", "code": status, "message": str(refusal), "metadata": {}}
        _head(writer, status)
        is_odd = self.odd_answers and (method in ("POST", "PUT") or value.get("kind") == _CLAIM)
        writer.write(self.odd_answers.pop(0) if is_odd else json.dumps(value).encode())

    def _request(
        self, method: str, path: str, body: Any, query: Mapping[str, list[str]]
    ) -> dict[str, Any]:
        self.requests += 1
        if self.away:
            raise Refusal(503, "away")
        if self.forbidden:
            raise Refusal(403, "resourceslices.resource.k8s.io is forbidden")
        claim = re.fullmatch(r".*/namespaces/([^/]+)/resourceclaims/([^/]+)", path)
        if claim is not None:
            return _found(self.claims, (claim[1], claim[2]))
        if path.endswith("/resourceclaims"):
            self.lists += 1
            (limit,), (begin,) = query["limit"], query.get("continue", ["0"])
            return self._page(list(self.claims.values()), int(begin), int(limit))
        name = path.partition("/resourceslices/")[2]
        if method == "GET":
            return self._list(self.slices.values())
        self.writes.append((method, name or body["metadata"]["name"]))
        if method == "DELETE":
            _found(self.slices, name)
            self._tell("DELETED", self.slices.pop(name))
            return {"kind": "Status", "metadata": {}}
        if method == "POST":
            name = body["metadata"]["name"]
            if name in self.slices or name in self.others:
                raise Refusal(409, f"{name} already exists")
        elif (
            body["metadata"]["resourceVersion"]
            != _found(self.slices, name)["metadata"]["resourceVersion"]
        ):
            raise Refusal(409, f"{name} has been modified")
        self.slices[name] = self._stored(body)
        self._tell("ADDED" if method == "POST" else "MODIFIED", self.slices[name])
        return self.slices[name]

    def _stored(self, body: dict[str, Any]) -> dict[str, Any]:
        stored: dict[str, Any] = json.loads(json.dumps(body))
        assert len(stored["spec"].get("devices", ())) <= 64
        assert len(stored["spec"].get("sharedCounters", ())) <= 8
        for device in stored["spec"].get("devices", ()):
            for taint in device.get("taints", ()):
                taint["timeAdded"] = "2026-11-22T10:00:00Z"
        if stored["spec"]["pool"]["generation"] >= 1 << 63:
            raise Refusal(400, "json: cannot unmarshal number into field of type int64")
        stored["metadata"]["resourceVersion"] = str(next(self._versions))
        return stored

    def _list(self, items: Any) -> dict[str, Any]:
        version = {"resourceVersion": str(next(self._versions))}
        return {"kind": "List", "metadata": version, "items": list(items)}

    def _page(self, items: list[Any], begin: int, limit: int) -> dict[str, Any]:
        page = self._list(items[begin : begin + limit])
        if begin + limit < len(items):
            page["metadata"]["continue"] = str(begin + limit)
        return page

    def _tell(self, kind: str, slice_: dict[str, Any]) -> None:
        version = str(next(self._versions))
        metadata = {**slice_["metadata"]}
        if kind == "DELETED":
            metadata["resourceVersion"] = version
        self.events.append({"type": kind, "object": {**slice_, "metadata": metadata}})
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def _watch(self, version: int, writer: asyncio.StreamWriter) -> None:
        if self.unwatched is not None:
            self.requests += 1
            raise Refusal(self.unwatched, "too old resource version")
        _head(writer, 200)
        position = 0
        while True:
            changed = self._changed
            for event in self.events[position:]:
                if int(event["object"]["metadata"]["resourceVersion"]) > version:
                    writer.write(json.dumps(event).encode() + b"\n")
            position = len(self.events)
            await writer.drain()
            await changed.wait()


def _found(things: Mapping[Any, dict[str, Any]], key: Any) -> dict[str, Any]:
    if key not in things:
        raise Refusal(404, f"{key} not found")
    return things[key]


def _head(writer: asyncio.StreamWriter, status: int) -> None:
    writer.write(f"HTTP/1.1 {status} {_REASONS[status]}\r\n".encode())
    writer.write(b"Content-Type: application/json\r\nConnection: close\r\n\r\n")
