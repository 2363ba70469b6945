"""What the controller reads of a cluster whose tenants write as much as they may."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from divvy.kube.access import Access
from divvy.kube.async_client import AsyncClient
from divvy.kube.errors import FORBIDDEN, NOT_FOUND, ApiError, Unreachable
from divvy.preemption.client import Api

MAX_PAGE = 1 << 24


class Server(AsyncClient):
    """Lists objects page by page, but none that is longer than a client takes."""

    def __init__(self, *items: dict[str, Any]) -> None:
        super().__init__(Access("api.example", 443))
        self.items = items

    async def request(self, method: str, _path: str, *_: Any, **options: Any) -> dict[str, Any]:
        assert method == "GET"
        query = options["query"]
        start = int(query.get("continue", "0"))
        end = start + int(query["limit"])
        items = self.items[start:end]
        if len(json.dumps(items)) > MAX_PAGE:
            raise Unreachable("the answer is too long", too_long=True)
        more = {"continue": str(end)} if end < len(self.items) else {}
        return {"metadata": more, "items": list(items)}


def api(monkeypatch: pytest.MonkeyPatch, *items: dict[str, Any]) -> Api:
    monkeypatch.setattr("divvy.preemption.client.access_from", lambda _: None)
    monkeypatch.setattr("divvy.preemption.client.AsyncClient", lambda _: Server(*items))
    return Api("divvy-system")


def pod(name: str, large: str, **spec: Any) -> dict[str, Any]:
    resources = {"requests": {"cpu": "1"}}
    container = {"name": "main", "resources": resources, "env": [{"name": "A", "value": large}]}
    annotations = {"large": large, "kubernetes.io/config.mirror": "hash"}
    meta = {"name": name, "uid": name, "annotations": annotations, "managedFields": [large]}
    return {"metadata": meta, "spec": {"containers": [container], **spec}}


def test_reads_pods_as_large_as_the_api_accepts(monkeypatch: pytest.MonkeyPatch) -> None:
    pods = [pod(f"pod-{number}", "x" * (1 << 18)) for number in range(300)]
    listed = asyncio.run(api(monkeypatch, *pods).waiting())
    names = [entry["metadata"]["name"] for entry in listed]
    assert names == [f"pod-{number}" for number in range(300)]


def test_observes_a_cluster_without_rules_of_taints(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kubernetes has them since 1.37."""
    rule = {"metadata": {"name": "rule"}, "spec": {}}
    assert asyncio.run(api(monkeypatch, rule).observed()).taint_rules == [rule]
    request = Server.request

    code = NOT_FOUND

    async def refuse(server: Server, method: str, path: str, *more: Any, **options: Any) -> Any:
        if path.endswith("/devicetaintrules"):
            raise ApiError(code, "the server could not find the requested resource")
        return await request(server, method, path, *more, **options)

    monkeypatch.setattr(Server, "request", refuse)
    assert asyncio.run(api(monkeypatch, rule).observed()).taint_rules == []
    # While they are not known, no pod is evicted.
    code = FORBIDDEN
    with pytest.raises(ApiError):
        asyncio.run(api(monkeypatch, rule).observed())


def test_keeps_only_what_decides_of_a_running_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    large = "x" * (1 << 18)
    waits, runs = pod("waits", large), pod("runs", large, nodeName="node", priority=5)
    first, second = asyncio.run(api(monkeypatch, waits, runs).waiting())
    assert first["metadata"]["annotations"] == waits["metadata"]["annotations"]
    assert first["spec"] == waits["spec"]
    assert len(json.dumps(second)) < 1000
    assert second["metadata"]["annotations"] == {"kubernetes.io/config.mirror": "hash"}
    assert second["spec"] == {
        "containers": [{"resources": {"requests": {"cpu": "1"}}}],
        "nodeName": "node",
        "priority": 5,
    }
