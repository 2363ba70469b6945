"""What is read of the kubelet's PodResources."""

from __future__ import annotations

from pathlib import Path

from divvy.agent.kubelet.pod_resources import PodResources
from lab.fakes.kubelet import fake_kubelet


async def test_lists_the_containers_of_claims(tmp_path: Path) -> None:
    async with fake_kubelet(tmp_path) as kubelet:
        kubelet.claims = [("team/a", "shared"), ("team/b", "shared"), ("prod/a", "own")]
        pods = PodResources(kubelet.pod_resources)
        try:
            containers, active = await pods.claim_containers()
            assert containers == {
                ("team", "shared"): [("team/a", "main"), ("team/b", "main")],
                ("prod", "own"): [("prod/a", "main")],
            }
            assert active >= {"team/a", "team/b", "prod/a"}
        finally:
            await pods.close()
