"""What the template maker asks of an API server on which a name is taken."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from divvy.claim_templates.maker import Maker
from divvy.claim_templates.wanted import Key
from tests.fakes.scene import play

KEY = Key("team", "divvy-1x10m")
FOREIGN = {"spec": {"devices": {"requests": [{"name": "other"}]}}}
LOOK_SECONDS = 0.3


class Server:
    """An API server with one pod by size, that refuses the name of its template.

    ``present`` is the template that stays after its deletion, as one with a finalizer does; None:
    every creation conflicts with nothing that can be read, as where a quota is being updated.
    """

    def __init__(self, present: Mapping[str, Any] | None) -> None:
        self.present = present
        self.asked: list[str] = []
        self.in_touch = True

    async def watch_pods(self, replace: Callable[[Any], None], _change: Any) -> None:
        replace({"1": frozenset({KEY})})

    async def watch_templates(self, replace: Callable[[Any], None], _change: Any) -> None:
        replace({} if self.present is None else {KEY: self.present})

    async def watch_slices(self, replace: Callable[[Any], None], _change: Any) -> None:
        replace({})

    async def create(self, _key: Key, _spec: Mapping[str, Any]) -> None:
        await self._ask("create")

    async def read(self, _key: Key) -> Mapping[str, Any] | None:
        await self._ask("read")
        return self.present

    async def delete(self, _key: Key) -> None:
        await self._ask("delete")

    async def _ask(self, what: str) -> None:
        self.asked.append(what)
        await asyncio.sleep(0.001)


@pytest.mark.parametrize(
    ("present", "asked", "text"),
    [
        (FOREIGN, ["delete", "create", "read"], "stays after its deletion"),
        (None, ["create", "read"], "conflict"),
    ],
)
def test_rests_where_a_name_stays_taken(
    caplog: pytest.LogCaptureFixture,
    present: Mapping[str, Any] | None,
    asked: list[str],
    text: str,
) -> None:
    """A tenant's finalizer must not make it ask hundreds of times a second."""

    async def scene() -> None:
        server: Any = Server(present)
        maker = Maker(server)
        running = asyncio.create_task(maker.run())
        await asyncio.sleep(LOOK_SECONDS)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert server.asked == asked
        assert (maker.created, maker.failed) == (0, 1)

    play(scene)
    assert [text in message for message in caplog.messages] == [True]
