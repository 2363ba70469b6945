"""The loop of the template maker: does what has been decided, as soon as something changes."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping

from divvy.claim_templates.client import Api
from divvy.claim_templates.desired_templates import Key, Step, Templates, digest_of
from divvy.claim_templates.offered import OfferedShares, Share
from divvy.kube.errors import CONFLICT, TOO_MANY_REQUESTS, ApiError, KubeError, Unreachable
from divvy.model.api_names import MAX_TEMPLATES_OF_NAMESPACE

_log = logging.getLogger(__name__)
_AT_ONCE = 8
_TICK_SECONDS = 5.0
_HANGING_SECONDS = 120.0
# Most often a refusal stays one for a while.
_REFUSED_SECONDS, _AWAY_SECONDS = 30.0, 1.0
_TELL_SECONDS = 60.0
_MOST_REPORTED = 1000


class Maker:
    """Makes and removes templates.

    ``created``, ``deleted`` and ``failed`` count since its start. A template goes when no pod has
    named it for ``unused_seconds``; sizes that no slice has any longer count for as long.
    """

    def __init__(self, api: Api, unused_seconds: float = 600.0) -> None:
        self._api = api
        self.templates = Templates(unused_seconds, OfferedShares(unused_seconds))
        self._wake = asyncio.Event()
        self._known: set[str] = set()
        self._reported: dict[Key, str] = {}
        self._told: dict[str, float] = {}
        self._pods_known = asyncio.Event()
        self._alive = time.monotonic()
        self.created = self.deleted = self.failed = 0

    @property
    def ready(self) -> bool:
        """Return whether all that decides is known as it is now."""
        return self.templates.complete and self._api.in_touch

    @property
    def hanging(self) -> bool:
        """Return whether the loop has not come around for long."""
        return time.monotonic() - self._alive > _HANGING_SECONDS

    async def run(self) -> None:
        """Work forever."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._api.watch_pods(self._pods, self._pod))
            tasks.create_task(
                self._api.watch_templates(self._templates, self._template, self._is_unneeded)
            )
            tasks.create_task(self._api.watch_slices(self._slices, self._slice))
            tasks.create_task(self._tick())
            tasks.create_task(self._watch_waiting_pods())
            for _ in range(_AT_ONCE):
                tasks.create_task(self._work())

    async def _tick(self) -> None:
        """Look at everything now and then: some of it is due by time alone."""
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            self.templates.look_again()
            self._wake.set()

    async def _watch_waiting_pods(self) -> None:
        """Look at them now and then: beside the ticks, for the server may be slow with each."""
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            await self._look_at_waiting_pods()

    async def _look_at_waiting_pods(self) -> None:
        """Have the pods of namespaces that have room again told once more, and tell of the others.

        The events of others keep coming meanwhile: what is told twice is noted twice, as it is.
        """
        for namespace in self.templates.with_room():
            try:
                async for uid, named in self._api.pods_of(namespace):
                    self.templates.pod(uid, named)
                    self._wake.set()
            except KubeError as error:
                _log.warning("pods of namespace %s cannot be read: %s", namespace, error)
            self._wake.set()
        over = self.templates.over()
        self._told = {name: at for name, at in self._told.items() if name in over}
        for namespace, (pods, key) in over.items():
            now = time.monotonic()
            if now - self._told.get(namespace, -_TELL_SECONDS) < _TELL_SECONDS:
                continue
            self._told[namespace] = now
            text = (
                f"{pods} pods of this namespace wait: GPU requests of "
                f"{MAX_TEMPLATES_OF_NAMESPACE} different sizes are served at a time in one "
                "namespace; the next ones follow when pods end"
            )
            _log.warning("namespace %s: %s", namespace, text)
            try:
                await self._api.event(key, "TooManySizes", text)
            except KubeError as error:
                _log.warning("namespace %s has not been told: %s", namespace, error)

    async def _work(self) -> None:
        while True:
            self._wake.clear()
            now = self._alive = time.monotonic()
            step = self.templates.next_step(now)
            if step is None:
                # Others have their turn in between: the kubelet's probes, for example.
                await (asyncio.sleep(0) if self.templates.has_due else self._wake.wait())
                continue
            done = False
            try:
                done = await self._take(step)
            finally:
                self.templates.finished(step.key, failed=not done)

    async def _take(self, step: Step) -> bool:
        """Take a step; return whether that was possible."""
        key = step.key
        try:
            if step.delete:
                await self._api.delete(key)
                self._alive = time.monotonic()  # each request may take a minute
                self.templates.template(key, None)
                self.deleted += 1
            if step.create is not None:
                created = await self._api.create(key, step.create)
                self._alive = time.monotonic()
                if created is None:
                    await self._read_taken(step)
                else:
                    self.templates.created(key, step.create, created)
                    self.created += 1
            self._reported.pop(key, None)
        except KubeError as error:
            self.failed += 1
            self._report(key, error)
            self._again(key, error)
            return False
        return True

    async def _read_taken(self, step: Step) -> None:
        """Note the template that has a step's name; raises KubeError if it stays in the way.

        Another replica has made it a moment ago, or somebody before the policy kept the name: then
        it lacks our label, and the list of templates leaves it out.
        """
        present = await self._api.read(step.key)
        self.templates.template(step.key, None if present is None else digest_of(present))
        if present is None:
            raise Unreachable("its creation is in conflict with what is already gone")
        if step.delete and present != step.create:
            raise ApiError(CONFLICT, "it stays after its deletion: it may have a finalizer")

    def _report(self, key: Key, error: Exception) -> None:
        text = str(error) or type(error).__name__
        if self._reported.get(key) != text:
            if len(self._reported) >= _MOST_REPORTED:
                self._reported.clear()
            self._reported[key] = text
            _log.warning("template %s/%s: %s", key.namespace, key.name, text)

    def _again(self, key: Key, error: Exception) -> None:
        refused = isinstance(error, ApiError) and 400 <= error.code < TOO_MANY_REQUESTS
        delay = _REFUSED_SECONDS if refused else _AWAY_SECONDS

        def look_again() -> None:
            self.templates.look_again([key])
            self._wake.set()

        asyncio.get_running_loop().call_later(delay, look_again)

    def _note(self, what: str = "") -> None:
        if what:
            self._known.add(what)
            self.templates.complete = self._known == {"pods", "templates", "slices"}
        self._wake.set()

    def _pods(self, pods: Mapping[str, frozenset[Key]]) -> None:
        self.templates.pods(pods)
        self._pods_known.set()
        self._note("pods")

    def _pod(self, uid: str, named: frozenset[Key]) -> None:
        self.templates.pod(uid, named)
        self._note()

    async def _is_unneeded(self, key: Key) -> bool:
        await self._pods_known.wait()
        return self.templates.is_unneeded(key)

    def _templates(self, templates: Mapping[Key, bytes]) -> None:
        self.templates.templates(templates)
        self._note("templates")

    def _template(self, key: Key, spec: bytes | None) -> None:
        self.templates.template(key, spec)
        self._note()

    def _slices(self, slices: Mapping[str, frozenset[Share]]) -> None:
        self.templates.slices(slices, time.monotonic())
        self._note("slices")

    def _slice(self, name: str, shares: frozenset[Share]) -> None:
        self.templates.slice(name, shares, time.monotonic())
        self._note()
