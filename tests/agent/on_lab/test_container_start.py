"""A real kubelet asks before it starts a container with a limited share."""

from __future__ import annotations

from typing import Any

import pytest

from tests.agent.tenants import NODE, POOL, SHARED
from tests.deployment import Deployment
from tests.limited_shares import LIMITED, followed_rules

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600), pytest.mark.usefixtures("original")]
GPU = "nvidia.com/gpu"
SHARE, BOTH = {SHARED: 1}, {SHARED: 1, GPU: 1}


def test_holds_back_a_container_with_a_share_and_another_gpu(
    deployed: Deployment,
) -> None:
    rules = [{"devices": [0, 1], **LIMITED}, {"devices": [2, 3]}]
    with followed_rules(deployed, rules, POOL), deployed.lab.namespace() as namespace:
        deployed.until(lambda: deployed.offered(NODE) == {SHARED: 8, GPU: 2}, 120)

        def pod(name: str, *limits: dict[str, int]) -> dict[str, Any]:
            containers = [
                {
                    "name": f"c{number}",
                    "image": deployed.base_image,
                    "command": ["sleep", "infinity"],
                    "resources": {"limits": limit},
                }
                for number, limit in enumerate(limits)
            ]
            spec = {
                "nodeName": NODE,
                "restartPolicy": "Always",
                "terminationGracePeriodSeconds": 0,
                "containers": containers,
            }
            metadata = {"name": name, "namespace": namespace}
            return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

        def state(name: str, container: int = 0) -> dict[str, Any]:
            status = deployed.lab.get("pod", name, f"-n={namespace}")["status"]
            for container_status in status.get("containerStatuses", ()):
                if container_status["name"] == f"c{container}":
                    return dict(container_status["state"])
            return {}

        def waits(name: str) -> bool:
            waiting = state(name).get("waiting", {})
            sentence = f"{SHARED}: container c0 also has {GPU}, whose driver library"
            return (
                waiting.get("reason") == "CreateContainerConfigError"
                and sentence in waiting["message"]
                and "request them in two containers" in waiting["message"]
            )

        deployed.lab.apply(
            pod("share-first", BOTH, SHARE),
            pod("gpu-first", dict(reversed(BOTH.items()))),
            pod("alone", SHARE),
        )
        for name in ("share-first", "gpu-first"):
            deployed.until(lambda name=name: waits(name), 120)
        deployed.until(lambda: "running" in state("share-first", 1), 120)
        deployed.until(lambda: "running" in state("alone"), 120)
        # Its name, and perhaps its share, are the next one's.
        deployed.lab.kubectl("delete", "pod", "share-first", f"-n={namespace}", "--wait=true")
        deployed.lab.apply(pod("share-first", SHARE))
        deployed.until(lambda: "running" in state("share-first"), 120)
