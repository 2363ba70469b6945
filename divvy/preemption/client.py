"""What the controller asks of the Kubernetes API: lists, evictions, Events."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from divvy.kube.access import access_from
from divvy.kube.async_client import AsyncClient
from divvy.kube.errors import NOT_FOUND, ApiError
from divvy.model import Cluster, parse_canonical
from divvy.model.contract import CLAIMS_DRIVER, CONFIG_KEY, CONFIG_MAP, PREEMPTION
from divvy.plan.preemption import MIRROR, Observed, PodName

_RESOURCES = "/apis/resource.k8s.io/v1"
_NOT_ENDED = "status.phase!=Succeeded,status.phase!=Failed"
_PAGE = 250
_CONTAINERS = ("containers", "initContainers")


class Api:
    """Reads the cluster and evicts; ``namespace`` is Divvy's own."""

    def __init__(self, namespace: str) -> None:
        self._client = AsyncClient(access_from(os.environ))
        self._namespace = namespace

    async def waiting(self) -> list[dict[str, Any]]:
        """Return the pods that have no node."""
        return await self._listed("/api/v1/pods", "spec.nodeName=,status.phase=Pending")

    async def observed(self) -> Observed:
        """Return what decides."""
        return Observed(
            nodes=await self._listed("/api/v1/nodes"),
            pods=await self._listed("/api/v1/pods", _NOT_ENDED),
            claims=await self._listed(f"{_RESOURCES}/resourceclaims"),
            slices=await self._listed(
                f"{_RESOURCES}/resourceslices", f"spec.driver={CLAIMS_DRIVER}"
            ),
            budgets=await self._listed("/apis/policy/v1/poddisruptionbudgets"),
            quotas=await self._listed("/api/v1/resourcequotas"),
            taint_rules=await self._taint_rules(),
        )

    async def _taint_rules(self) -> list[dict[str, Any]]:
        """Return the DeviceTaintRules, which Kubernetes has since 1.37."""
        try:
            return await self._listed(f"{_RESOURCES}/devicetaintrules")
        except ApiError as error:
            if error.code != NOT_FOUND:
                raise
        return []

    async def cluster(self) -> Cluster:
        """Return the cluster that the agents' configuration describes."""
        path = f"/api/v1/namespaces/{self._namespace}/configmaps/{CONFIG_MAP}"
        answer = await self._client.request("GET", path)
        return parse_canonical(answer["data"][CONFIG_KEY])

    async def evict(self, pod: PodName, *, dry_run: bool) -> None:
        """Evict a pod, or ask whether that is possible; another one of its name is left alone."""
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod.name, "namespace": pod.namespace},
            "deleteOptions": {
                "preconditions": {"uid": pod.uid},
                **({"dryRun": ["All"]} if dry_run else {}),
            },
        }
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/eviction"
        await self._client.request("POST", path, eviction)

    async def event(self, pod: PodName, kind: str, reason: str, message: str) -> None:
        """Record an Event of a pod; ``kind`` is "Normal" or "Warning"."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        about = {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid}
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{pod.name[:200]}.", "namespace": pod.namespace},
            "involvedObject": {**about, "namespace": pod.namespace},
            "type": kind,
            "reason": reason,
            "message": message[:1024],
            "source": {"component": PREEMPTION},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        await self._client.request("POST", f"/api/v1/namespaces/{pod.namespace}/events", event)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _listed(self, path: str, fields: str = "") -> list[dict[str, Any]]:
        query = {"fieldSelector": fields} if fields else {}
        items: list[dict[str, Any]] = []
        async for page in self._client.pages(path, _PAGE, query=query):
            items += map(_less, page["items"])
            del page  # before the next one is read
        return items


def _less(item: dict[str, Any]) -> dict[str, Any]:
    """Return an object without what may be large and decides nothing."""
    meta, spec = item["metadata"], item.get("spec") or {}
    meta = {key: value for key, value in meta.items() if key != "managedFields"}
    if not spec.get("nodeName") or "containers" not in spec:
        return {**item, "metadata": meta}
    annotations = meta.get("annotations") or {}
    meta["annotations"] = {key: annotations[key] for key in (MIRROR,) if key in annotations}
    spec = {
        key: [_requests(container) for container in value] if key in _CONTAINERS else value
        for key, value in spec.items()
        if key not in ("volumes", "ephemeralContainers")
    }
    return {**item, "metadata": meta, "spec": spec}


def _requests(container: Mapping[str, Any]) -> dict[str, Any]:
    return {key: container[key] for key in ("resources", "restartPolicy") if key in container}
