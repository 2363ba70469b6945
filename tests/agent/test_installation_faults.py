"""What containers need of the image cannot be installed, or hangs."""

from __future__ import annotations

import os
import stat

from divvy.agent.inject.limiter import LIBRARIES
from lab.fakes.agent import agent_node
from lab.fakes.simulator import on_simulated_node

GPU, SHARED = "nvidia.com/gpu", "nvidia.com/gpu.shared"
pytestmark = on_simulated_node


async def test_reports_health_beside_a_hanging_hook() -> None:
    async with agent_node(2, {}) as node:
        await node.kill()
        hook = node.folder / "hook"
        hook.write_text("#!/bin/sh\nexec sleep 60\n")
        hook.chmod(0o755)
        node.environment["DIVVY_HOOK"] = str(hook)
        await node.start()
        await node.until(lambda: "timed out" in node.status.get("reason", ""), 40)
        await node.offered(GPU, 2)
        for index in range(2):
            node.simulate("fault", "xid", str(index), "48")
            await node.offered(GPU, 1 - index, 2)


async def test_marks_shares_unhealthy_until_the_limiter_is_installed() -> None:
    """Each pod that is sent there would be refused, and its controller send another."""
    limit = {"limit": "3000Mi", "action": "prevent"}
    async with agent_node(1, {}) as node:
        await node.kill()
        libraries = node.folder / "limiter"
        node.environment["DIVVY_LIMITER"] = str(libraries)
        node.configure({"timeSlicing": {"replicas": 4, "memoryLimit": limit}})
        await node.start()
        await node.until(lambda: "the limiter is not" in node.status.get("reason", ""))
        await node.offered(SHARED, 0)
        libraries.mkdir()
        for name in LIBRARIES:
            (libraries / name).touch()
        await node.offered(SHARED, 4)
        await node.until(lambda: node.status["state"] == "Ready")


async def test_serves_what_it_can_find_beside_device_files_that_it_cannot_look_for() -> None:
    """The name is longer than a file system takes; its error is the node's, not the GPUs'."""
    files = [
        {"resource": "example.com/long", "paths": [f"/dev/{'x' * 300}"]},
        {"resource": "example.com/fast", "paths": ["/dev/fast**"]},
    ]
    async with agent_node(1, {}, devices=files) as node:
        (node.folder / "dev").mkdir()
        os.mknod(node.folder / "dev/fast0", stat.S_IFCHR | 0o600, os.makedev(1, 3))
        await node.until(lambda: "cannot be looked for" in node.status.get("reason", ""))
        assert node.status["state"] == "Degraded"
        await node.offered(GPU, 1)
        await node.offered("example.com/fast", 1)
        node.simulate("fault", "xid", "0", "48")
        await node.offered(GPU, 0)
        node.configure({}, devices=files[1:])
        await node.until(lambda: "cannot be looked for" not in node.status["reason"])
