"""``Retirement``: finds out of which tainted GPUs the scheduler has allocated nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic

from divvy.agent.api_server.claims_api import ClaimsApi, is_forbidden
from divvy.agent.claims.record import ClaimRecord, allocated_gpus
from divvy.agent.claims.slice_publisher import SlicePublisher
from divvy.agent.gpu.holders import bounded_names
from divvy.agent.timers import next_tick
from divvy.kube.backoff import Backoff
from divvy.kube.errors import MALFORMED, KubeError
from divvy.kube.objects import name_of

_log = logging.getLogger(__name__)
_LOOK_SECONDS = 1.0
# At first, for each page: a server that is slow is given longer.
_LIST_SECONDS = 10.0
# A scheduler that has not heard of a taint may still write an allocation for so long.
_SETTLED_SECONDS = 3.0
_MAX_PAUSE_SECONDS = 15.0


class Retirement:
    """Follows the GPUs that are tainted on their way out of what is offered.

    ``pool`` is this node's; ``record`` says what is offered and held; ``serving`` whether the stack
    file has any claims; ``on_change`` is called when a GPU is free.
    """

    def __init__(
        self,
        api: ClaimsApi,
        publisher: SlicePublisher,
        pool: str,
        record: Callable[[], ClaimRecord],
        serving: Callable[[], bool],
        on_change: Callable[[], None],
    ) -> None:
        self._api = api
        self._publisher = publisher
        self._pool = pool
        self._record = record
        self._serving = serving
        self._on_change = on_change
        self.unallocated: frozenset[str] = frozenset()
        """The GPUs of which no claim was allocated anything since the schedulers know the taint."""
        self.unknown = ""
        """Why it is not known what is allocated of the others, "" if it is."""
        self._tainted_since: float | None = None
        self._next_look, self._pause = 0.0, _LOOK_SECONDS
        self.retiring: frozenset[str] = frozenset()

    def begin(self, retiring: frozenset[str]) -> None:
        """Follow these GPUs from now on."""
        if retiring != self.retiring:
            self._tainted_since, self.unknown = None, ""
            self.look_soon()
        self.retiring = retiring
        self.unallocated &= retiring

    def look_soon(self) -> None:
        """Look at the next second: something was given back."""
        self._next_look, self._pause = 0.0, _LOOK_SECONDS

    async def run(self) -> None:
        """Look every second; never returns.

        The API is not asked while each GPU is held here, and seldom while one stays allocated to
        pods that do not start: the answer is every claim of the cluster.
        """
        backoff = Backoff()
        while True:
            await next_tick(_LOOK_SECONDS)
            # Refused while some profile has claims, a scheduler may still allocate.
            gone = self._publisher.forbidden and not self._serving()
            published = self._publisher.current or gone
            if not self.retiring or not published:
                self._tainted_since = None
                if not self.retiring:
                    # Until then a server that is slow is given as long at each look.
                    backoff = Backoff()
                continue
            if self._tainted_since is None:
                self._tainted_since = monotonic()
            now, since = monotonic(), self._tainted_since
            if now - since < _SETTLED_SECONDS or now < self._next_look:
                continue
            if all(self._record().of_gpu(uuid) for uuid in self.retiring):
                self.unallocated = frozenset()
                continue
            unread: list[str] = []
            try:
                allocated = await self._allocated(unread, backoff.patience(_LIST_SECONDS))
            except KubeError as error:
                if self._serving() or not is_forbidden(error):
                    self._note(f"allocations cannot be read ({error})")
                    self._next_look = monotonic() + backoff.failed(error)
                    continue
                # No profile of the stack file has claims, and with them went rights and classes:
                # nothing more can be allocated, and what was prepared is in the record.
                allocated = frozenset()
            names = bounded_names(unread)
            self._note(f"allocations cannot be read ({names})" if names else "")
            self._next_look = monotonic() + self._pause
            self._pause = min(2 * self._pause, _MAX_PAUSE_SECONDS)
            if self._tainted_since != since:
                continue  # other GPUs retire now, and nothing kept them from being allocated
            offered = self._record().offered
            self.unallocated = frozenset(
                uuid
                for uuid in self.retiring
                if not unread  # which may be allocated any device
                and allocated.isdisjoint(device.name for device in offered[uuid].gpu.devices)
            )
            record = self._record()
            if not all(record.of_gpu(uuid) for uuid in self.unallocated):
                self._on_change()

    def _note(self, unknown: str) -> None:
        """Note why allocations are not known; the node's status says it."""
        if unknown == self.unknown:
            return
        self.unknown = unknown
        if unknown:
            _log.warning("%s", unknown)
        self._on_change()

    async def _allocated(self, unread: list[str], patience: float) -> frozenset[str]:
        """Return the devices of this node that anybody was allocated.

        The names of claims whose allocation cannot be read are added to ``unread``.
        """
        allocated: frozenset[str] = frozenset()
        async for claim in self._api.claims(unread.append, patience):
            try:
                allocated |= allocated_gpus((claim,), self._pool)
            except MALFORMED:
                unread.append(name_of(claim))
        return allocated
