"""What the template maker asks of an API server on which a name is taken."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import pytest

from divvy.claim_templates.desired_templates import Key, digest_of
from divvy.claim_templates.maker import Maker
from divvy.claim_templates.template import template_of
from divvy.model.claim_names import parse_template_name
from lab.fakes.scene import play, running, until

KEY = Key("team", "divvy-1x10m")
FOREIGN = {"spec": {"devices": {"requests": [{"name": "other"}]}}}
LOOK_SECONDS = 0.3


class Server:
    """An API server with one pod by size, that refuses the name of its template.

    ``present`` is the template that stays after its deletion, as one with a finalizer does; None:
    every creation conflicts with nothing that can be read, as where a quota is being updated.
    ``listed`` tells whether it has our label, ``following`` what takes its place.
    """

    def __init__(
        self,
        present: Mapping[str, Any] | None,
        *,
        listed: bool = True,
        following: Mapping[str, Any] | None = None,
    ) -> None:
        self.present, self.listed, self.following = present, listed, following
        self.asked: list[str] = []
        self.in_touch = True

    async def watch_pods(self, replace: Callable[[Any], None], _change: Any) -> None:
        replace({"1": frozenset({KEY})})

    async def watch_templates(self, replace: Callable[[Any], None], *_: Any) -> None:
        replace({KEY: digest_of(self.present)} if self.listed and self.present else {})

    async def watch_slices(self, replace: Callable[[Any], None], _change: Any) -> None:
        replace({})

    async def create(self, _key: Key, _spec: Mapping[str, Any]) -> None:
        await self._ask("create")

    async def read(self, _key: Key) -> Mapping[str, Any] | None:
        await self._ask("read")
        return self.present

    async def delete(self, _key: Key) -> None:
        await self._ask("delete")
        self.present = self.following or self.present

    async def _ask(self, what: str) -> None:
        self.asked.append(what)
        await asyncio.sleep(0.001)


@pytest.mark.parametrize(
    ("present", "listed", "asked", "text"),
    [
        (FOREIGN, True, ["delete", "create", "read"], "stays after its deletion"),
        # Somebody made it before a policy kept the name: at first it may just go.
        (FOREIGN, False, ["create", "read", "delete", "create", "read"], "stays after"),
        (None, True, ["create", "read"], "conflict"),
    ],
)
def test_rests_where_a_name_stays_taken(
    caplog: pytest.LogCaptureFixture,
    present: Mapping[str, Any] | None,
    *,
    listed: bool,
    asked: list[str],
    text: str,
) -> None:
    """A tenant's finalizer must not make it ask hundreds of times a second."""
    server = Server(present, listed=listed)
    maker = work(server, len(asked))
    assert server.asked == asked
    assert (maker.created, maker.failed) == (0, 1)
    assert [text in message for message in caplog.messages] == [True]


def test_takes_what_another_replica_has_made_meanwhile(caplog: pytest.LogCaptureFixture) -> None:
    request = parse_template_name(KEY.name)
    assert request is not None
    server = Server(FOREIGN, following=template_of(request, {}))
    maker = work(server, 3)
    assert server.asked == ["delete", "create", "read"]
    assert (maker.created, maker.failed, caplog.messages) == (0, 0, [])


def work(server: Any, requests: int) -> Maker:
    """Let a template maker make its requests, and a moment longer."""
    maker = Maker(server)

    async def scene() -> None:
        async with running(maker.run()):
            await until(lambda: len(server.asked) >= requests)
            await asyncio.sleep(LOOK_SECONDS)

    play(scene)
    return maker


class Flooded(Server):
    """An API server with six pods of one namespace that name 64 sizes each."""

    def __init__(self) -> None:
        super().__init__(None)
        self.events: list[tuple[Key, str]] = []
        self.pods = {
            f"u{pod}": frozenset(Key("team", f"divvy-1x{pod * 64 + at + 1}m") for at in range(64))
            for pod in range(6)
        }
        self.change: Callable[[str, frozenset[Key]], None] = lambda _uid, _named: None
        self.created: set[Key] = set()

    async def watch_pods(self, replace: Callable[[Any], None], change: Any) -> None:
        self.change = change
        replace(self.pods)

    async def create(self, key: Key, spec: Mapping[str, Any]) -> Any:
        self.created.add(key)
        return spec

    async def pods_of(self, namespace: str) -> AsyncIterator[tuple[str, frozenset[Key]]]:
        assert namespace == "team"
        for item in self.pods.items():
            yield item

    async def event(self, key: Key, _reason: str, message: str) -> None:
        self.events.append((key, message))


async def test_tells_that_pods_wait_and_serves_them_when_others_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("divvy.claim_templates.maker._TICK_SECONDS", 0.05)
    server = Flooded()
    api: Any = server
    maker = Maker(api)
    async with running(maker.run()):
        await until(lambda: len(server.created) == 256)
        await until(lambda: bool(server.events))
        ((key, message),) = server.events
        assert key.namespace == "team"
        assert message.startswith("2 pods of this namespace wait: GPU requests of 256 different")
        server.pods.pop("u0")
        server.change("u0", frozenset())
        await until(lambda: len(server.created) == 256 + 64)
        assert maker.templates.over()["team"][0] == 1


class SlowEvents(Flooded):
    """Six namespaces have pods that wait, and each event about them takes a while."""

    def __init__(self) -> None:
        super().__init__()
        self.pods = {
            f"{namespace}-{uid}": frozenset(Key(namespace, key.name) for key in named)
            for namespace in ("a", "b", "c", "d", "e", "f")
            for uid, named in self.pods.items()
        }

    async def event(self, key: Key, reason: str, message: str) -> None:
        await asyncio.sleep(0.4)
        await super().event(key, reason, message)


async def test_a_server_that_is_slow_with_events_does_not_look_like_a_hanging_maker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The kubelet would end it, and its successor the same."""
    monkeypatch.setattr("divvy.claim_templates.maker._TICK_SECONDS", 0.05)
    api: Any = SlowEvents()
    maker = Maker(api)
    async with running(maker.run()):
        await until(lambda: len(api.created) == 6 * 256)
        await until(lambda: bool(api.events))
        monkeypatch.setattr("divvy.claim_templates.maker._HANGING_SECONDS", 1.2)
        while len(api.events) < 6:
            assert not maker.hanging
            await asyncio.sleep(0.01)


class SlowReplacements(Flooded):
    """Each worker replaces a template of another content, and each request takes a while."""

    def __init__(self) -> None:
        super().__init__()
        self.pods = {"u0": frozenset(Key("team", f"divvy-1x{at + 1}m") for at in range(8))}

    async def watch_templates(self, replace: Callable[[Any], None], *_: Any) -> None:
        replace(dict.fromkeys(self.pods["u0"], digest_of(FOREIGN)))

    async def delete(self, _key: Key) -> None:
        await asyncio.sleep(0.8)

    async def create(self, key: Key, spec: Mapping[str, Any]) -> Any:
        await asyncio.sleep(0.8)
        return await super().create(key, spec)


async def test_a_server_that_is_slow_with_replacements_does_not_look_like_a_hanging_maker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("divvy.claim_templates.maker._HANGING_SECONDS", 1.2)
    api: Any = SlowReplacements()
    maker = Maker(api)
    async with running(maker.run()):
        while len(api.created) < 8:
            assert not maker.hanging
            await asyncio.sleep(0.01)


class SlowReads(SlowReplacements):
    """Each name is taken, and what has it is gone when it is read."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0

    async def create(self, key: Key, spec: Mapping[str, Any]) -> Any:
        await super().create(key, spec)

    async def read(self, _key: Key) -> None:
        await asyncio.sleep(0.8)
        self.reads += 1


async def test_a_server_that_is_slow_with_reads_does_not_look_like_a_hanging_maker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("divvy.claim_templates.maker._HANGING_SECONDS", 1.2)
    api: Any = SlowReads()
    maker = Maker(api)
    async with running(maker.run()):
        while api.reads < 8:
            assert not maker.hanging
            await asyncio.sleep(0.01)


class SlowPages(Flooded):
    """A list of pods takes a while for each page, here of one pod."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds

    async def pods_of(self, namespace: str) -> AsyncIterator[tuple[str, frozenset[Key]]]:
        async for item in super().pods_of(namespace):
            await asyncio.sleep(self.seconds)
            yield item


@pytest.mark.parametrize("seconds", [0.4, 2.0])
async def test_a_server_that_is_slow_with_pages_does_not_look_like_a_hanging_maker(
    monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    monkeypatch.setattr("divvy.claim_templates.maker._TICK_SECONDS", 0.05)
    server = SlowPages(seconds)
    api: Any = server
    maker = Maker(api)
    async with running(maker.run()):
        await until(lambda: bool(server.events))
        monkeypatch.setattr("divvy.claim_templates.maker._HANGING_SECONDS", 1.2)
        server.pods.pop("u0")
        server.change("u0", frozenset())
        while len(server.created) < 256 + 64:
            assert not maker.hanging
            await asyncio.sleep(0.01)
