"""What claims are offered while the agent does not know its node, or has no rights to slices."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from divvy.agent.claims import retirement, service
from divvy.agent.claims.claims_file import ClaimsFile
from divvy.agent.claims.service import Claims
from divvy.agent.gpu.desired import DesiredState
from divvy.agent.gpu.owner import KubeletFence, hand_over
from divvy.agent.settings import settings_from
from tests.agent.claim_values import BY_SIZE, claim_record, offered_gpu
from tests.agent.devices import gpu, snapshot
from tests.fakes.scene import play

LOOK = 0.02
OFFERED = offered_gpu(0, BY_SIZE)
SEEN = snapshot(gpu(0))


class NoClaims:
    """An API server that has no claims; the slices are out of reach."""

    async def claims(self) -> AsyncIterator[dict[str, Any]]:
        for claim in ():
            yield claim


def test_no_gpu_leaves_the_slices_before_its_taint_is_in_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent that starts without the API server cannot write slices: it does not know its node.

    The lists of claims may come back first, and no scheduler has heard of a taint by then.
    """
    monkeypatch.setattr(retirement, "_LOOK_SECONDS", LOOK)
    monkeypatch.setattr(retirement, "_SETTLED_SECONDS", 3 * LOOK)
    monkeypatch.setattr(service, "ClaimsApi", lambda *_: NoClaims())
    folders = {
        f"DIVVY_{name}_FOLDER": str(tmp_path) for name in ("STATE", "CDI", "CLAIMS", "REGISTRY")
    }
    settings = settings_from({"NODE_NAME": "node", "NAMESPACE": "divvy", **folders})
    ClaimsFile(tmp_path, tmp_path, lambda: None).save(claim_record(OFFERED))
    driver: Any = SimpleNamespace(snapshot=SEEN, problem="")
    injection: Any = SimpleNamespace(by_cdi=True, described=(), described_as=lambda _: None)
    health: Any = SimpleNamespace(health=SimpleNamespace(faults={}))
    pod_resources: Any = None

    async def scene() -> None:
        claims = Claims(settings, driver, health, injection, pod_resources, lambda: None)
        following = asyncio.create_task(claims.retire())
        try:
            for _ in range(50):
                owner = hand_over(OFFERED.uuid, None, KubeletFence({}, {}), claims.view)
                claims.consider(DesiredState(config="{}"), SEEN, {OFFERED.uuid: owner}, "")
                assert OFFERED.uuid in claims.record.offered
                await asyncio.sleep(LOOK)
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

    play(scene)
