"""A node that is served by claims: the agent's process over a fake kubelet and a fake API."""

from __future__ import annotations

import json
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from lab.cluster.paths import REPOSITORY
from lab.fakes.agent import AgentNode, agent_node

BY_SIZE = {"claims": {"shares": {}}}
ON_DEMAND = {"claims": {"shares": {}, "mig": ["1g.5gb", "2g.10gb", "3g.20gb"]}}
_LIMITER = REPOSITORY / "plugin_image/limiter"


@asynccontextmanager
async def claims_node(gpus: int, profile: Any, **more: Any) -> AsyncIterator[AgentNode]:
    """Run the agent on a node whose slices are published, and whose driver is registered."""
    subprocess.run(["make", "--silent", "-C", str(_LIMITER)], check=True)
    async with agent_node(gpus, profile, **more) as node:
        node.patience = 60  # for machines that are busy
        await node.kill()
        node.environment["DIVVY_LIMITER"] = str(REPOSITORY / "build/limiter")
        await node.start()
        await offered(node)
        yield node


async def offered(node: AgentNode) -> None:
    """Wait until the slices are there and the kubelet has taken the driver in."""
    await node.until(
        lambda: (
            node.claims.registered
            and complete(node)
            and len(devices(node)) >= node.gpus
            and not any(device.get("taints") for device in devices(node).values())
        ),
        60,
    )


def complete(node: AgentNode) -> bool:
    """Return whether all slices of the pool are there, in one generation."""
    pools = [
        resource_slice["spec"]["pool"] for resource_slice in node.api.resources.slices.values()
    ]
    return all(pool == {**pools[0], "resourceSliceCount": len(pools)} for pool in pools)


def devices(node: AgentNode) -> dict[str, dict[str, Any]]:
    """Return the devices of the slices by name."""
    return {device["name"]: device for device in node.api.resources.devices()}


def tainted(node: AgentNode, key: str) -> list[str]:
    """Return the devices with a taint of ours."""
    return [
        name
        for name, device in devices(node).items()
        if any(taint["key"] == f"divvy.gpu/{key}" for taint in device.get("taints", ()))
    ]


def names(node: AgentNode, kind: str) -> list[str]:
    """Return the names of the devices of a kind, in the slices' order."""
    return [
        device["name"]
        for device in node.api.resources.devices()
        if device["attributes"]["kind"]["string"] == kind
    ]


def specifications(node: AgentNode) -> list[dict[str, Any]]:
    """Return the CDI specifications of claims."""
    files = sorted((node.folder / "cdi").glob("divvy.gpu-claim-*.json"))
    return [json.loads(path.read_text()) for path in files]


def record(node: AgentNode) -> dict[str, Any]:
    """Return the driver's checkpoint."""
    return dict(json.loads((node.folder / "state/claims.json").read_text()))


def nothing_left(node: AgentNode) -> Callable[[], bool]:
    """Return whether a node has nothing of any claim."""

    def met() -> bool:
        shares = node.folder / "tenants/shares"
        return (
            not record(node)["claims"]
            and not specifications(node)
            and "MIG" not in node.mig_devices()
            and not (shares.exists() and any(shares.iterdir()))
        )

    return met
