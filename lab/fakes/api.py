"""A Kubernetes API with one node and one ConfigMap: watches, patches of the node, Events.

It follows the real one where the agent can tell the difference: a watch begins
with what there is and goes on with every change; a merge patch that says None
removes a key. It can be slow, or silent (accept connections and answer nothing), let the
connections there are die without a word, as a load balancer does, and keep an
eviction waiting.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from lab.fakes.kubeconfig import write_kubeconfig
from lab.fakes.resources import FakeResources

NAMESPACE = "divvy-system"
RUNTIME = {"containerRuntimeVersion": "containerd://2.3.0"}
_NODE_INFO = (
    *("architecture", "bootID", "kernelVersion", "kubeProxyVersion", "kubeletVersion"),
    *("machineID", "operatingSystem", "osImage", "systemUUID"),
)


class FakeApi:
    """Start with ``async with fake_api(node) as api``."""

    def __init__(self, node: str) -> None:
        self.node: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": node, "uid": "1", "labels": {}, "annotations": {}},
            "status": {"nodeInfo": {**dict.fromkeys(_NODE_INFO, ""), **RUNTIME}},
        }
        self.config: dict[str, Any] | None = None
        self.resources = FakeResources(node)
        self.events: list[dict[str, Any]] = []
        self.evictions: list[tuple[str, dict[str, Any]]] = []
        self.evictions_hang = False
        self.silent = False
        self.answer_seconds = 0.0  # what each answer takes
        self.refused: set[tuple[str, str]] = set()
        self.forbidden: set[tuple[str, str]] = set()
        """Methods and paths that it has no time for."""
        self.patches: list[dict[str, Any]] = []
        self.port = 0
        self._dead: set[asyncio.Task[Any]] = set()
        self.version = 1
        self._changed = asyncio.Event()
        self._clients: set[asyncio.Task[Any]] = set()
        self._server: asyncio.Server | None = None

    def configure(self, text: str) -> None:
        """Give the ConfigMap this content."""
        metadata = {"name": "divvy", "namespace": NAMESPACE}
        data = {"cluster.json": text}
        self.config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
        self._tell()

    def label(self, **labels: str | None) -> None:
        """Change labels of the node; None removes one."""
        merged = {**self.node["metadata"]["labels"], **labels}
        self.node["metadata"]["labels"] = {k: v for k, v in merged.items() if v is not None}
        self._tell()

    def forget_connections(self) -> None:
        """Let every open connection be silent from now on, without closing it."""
        self._dead |= self._clients

    def drop_connections(self) -> None:
        """Close every connection, as an API server does that comes back."""
        for client in self._clients:
            client.cancel()

    def kubeconfig(self, path: Path) -> Path:
        """Write a kubeconfig for this API."""
        return write_kubeconfig(path, f"http://127.0.0.1:{self.port}")

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._client, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for client in self._clients:
            client.cancel()
        await asyncio.gather(*self._clients, return_exceptions=True)

    def _tell(self) -> None:
        self.version += 1
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._clients.add(task)
        try:
            method, target, _ = (await reader.readline()).decode().split(" ", 2)
            size = 0
            while line := (await reader.readline()).strip():
                name, _, value = line.decode().partition(":")
                size = int(value) if name.lower() == "content-length" else size
            body = json.loads(await reader.readexactly(size)) if size else None
            if self.silent:
                await asyncio.Event().wait()
            await asyncio.sleep(self.answer_seconds)
            if (method, target.partition("?")[0]) in self.refused:
                text = json.dumps({"kind": "Status", "message": "too many requests"}).encode()
                writer.write(b"HTTP/1.1 429 Too Many Requests\r\nConnection: close\r\n\r\n")
                writer.write(text)
                await writer.drain()
                return
            if (method, target.partition("?")[0]) in self.forbidden:
                text = json.dumps({"kind": "Status", "message": "no such right"}).encode()
                writer.write(b"HTTP/1.1 403 Forbidden\r\nConnection: close\r\n\r\n" + text)
                await writer.drain()
                return
            if "/resource.k8s.io/" in target:
                await self.resources.answer(method, target, body, writer)
                await writer.drain()
                return
            absent = method == "GET" and "watch=true" not in target and self.seen(target) is None
            writer.write(b"HTTP/1.1 %s\r\n" % (b"404 Not Found" if absent else b"200 OK"))
            writer.write(b"Content-Type: application/json\r\nConnection: close\r\n\r\n")
            await self._answer(method, target, body, writer)
        except (ConnectionError, ValueError, asyncio.CancelledError):
            pass  # the agent was ended in the middle of a request, or the API is
        finally:
            self._clients.discard(task)
            writer.close()

    async def _answer(
        self, method: str, target: str, body: Any, writer: asyncio.StreamWriter
    ) -> None:
        if method == "GET" and "watch=true" in target:
            await writer.drain()  # the real one, too, answers before there is anything to tell
            await self._watch(target, writer)
        elif method == "GET":
            writer.write(json.dumps(self.seen(target) or {"message": "not found"}).encode())
        elif method == "PATCH":
            self.patches.append(body)
            metadata = self.node["metadata"]
            for field in ("labels", "annotations"):
                merged = {**metadata[field], **body["metadata"].get(field, {})}
                metadata[field] = {key: text for key, text in merged.items() if text is not None}
            self._tell()
            writer.write(json.dumps(self.seen(target)).encode())
        elif "/eviction" in target:
            self.evictions.append((target.split("/")[-2], body))
            if self.evictions_hang:
                await asyncio.Event().wait()
            writer.write(json.dumps(body).encode())
        else:
            self.events.append(body)
            writer.write(json.dumps(body).encode())
        await writer.drain()

    def seen(self, target: str) -> dict[str, Any] | None:
        """Return the object that is asked for, as of now."""
        now = self.config if "/configmaps" in target else self.node
        if now is None:
            return None
        return {**now, "metadata": {**now["metadata"], "resourceVersion": str(self.version)}}

    async def _watch(self, target: str, writer: asyncio.StreamWriter) -> None:
        sent = None
        while True:
            changed = self._changed
            if asyncio.current_task() in self._dead:
                await asyncio.Event().wait()
            now = self.seen(target)
            metadata = {} if now is None else {**now["metadata"], "resourceVersion": ""}
            text = json.dumps([now and {**now, "metadata": metadata}])
            if now is not None and text != sent:
                event = {"type": "ADDED" if sent is None else "MODIFIED", "object": now}
                writer.write(json.dumps(event).encode() + b"\n")
                await writer.drain()
                sent = text
            await changed.wait()


@asynccontextmanager
async def fake_api(node: str) -> AsyncIterator[FakeApi]:
    """Run a fake API for one node."""
    api = FakeApi(node)
    await api.start()
    try:
        yield api
    finally:
        await api.stop()
