"""When what is installed on the host is news to the rest of the agent."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from divvy.agent.plugin import advertise
from divvy.agent.plugin.advertise import Advertiser
from divvy.agent.settings import settings_from


def test_wakes_the_agent_only_for_a_new_installation_outcome(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(advertise, "_INSTALL_SECONDS", 0.001)
    outcomes = [True, False, False, True]
    woken: list[int] = []

    async def scene() -> None:
        settings = settings_from(
            {"NODE_NAME": "n1", "NAMESPACE": "divvy-system", "DIVVY_PLUGIN_FOLDER": str(tmp_path)}
        )
        nothing = cast("Any", None)
        advertiser = Advertiser(
            settings, nothing, nothing, nothing, nothing, lambda: woken.append(len(outcomes))
        )
        enough = asyncio.Event()

        def install() -> bool:
            if len(outcomes) == 1:
                loop.call_soon_threadsafe(enough.set)
            return outcomes.pop(0) if outcomes else False

        loop = asyncio.get_running_loop()
        advertiser.injection = cast("Any", SimpleNamespace(installed=False, install=install))
        work = asyncio.create_task(advertiser.keep_installed())
        async with asyncio.timeout(10):
            await enough.wait()
            while len(woken) < 2:
                await asyncio.sleep(0.001)
        work.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await work

    asyncio.run(scene())
    assert woken == [3, 0]
