"""Keep this node's ResourceSlices as they should be: write what changes, restore what others do."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from divvy.agent.api_server.claims_api import ClaimsApi, is_forbidden
from divvy.kube.async_client import raising_unreachable
from divvy.kube.backoff import Backoff
from divvy.kube.errors import CONFLICT, GONE, NOT_FOUND, ApiError, KubeError
from divvy.model.slice_specs import same_spec

_log = logging.getLogger(__name__)
# The API's number is an int64.
MAX_GENERATION = (1 << 63) - 1
# At first, for each page: a server that is slow is given longer.
_LIST_SECONDS = 10.0
# Somebody else has written a slice meanwhile: look again at once.
_WRITTEN_BY_OTHERS = (NOT_FOUND, CONFLICT)
_Slices = dict[str, dict[str, Any]]


class SlicePublisher:
    """Publishes the specs that it was given last; ``problem`` says why it cannot, "" if it can.

    ``forbidden``: the agent has no right to, as when the stack file no longer has claims.
    """

    def __init__(self, api: ClaimsApi, node: str, on_change: Callable[[], None]) -> None:
        self._api = api
        self._node = node
        self._on_change = on_change
        self._owner = ""
        self._wanted: Mapping[str, dict[str, Any]] = {}
        self._have: _Slices = {}
        self._generation = 0
        # What the API server made of a spec that it does not keep as it is.
        self._accepted: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}
        # What the watch has told of each slice since a write of it began: its version, if any.
        self._watched_versions: dict[str, str | None] = {}
        self._overtaken = False
        self._debouncer = asyncio.Event()
        self._backoff = Backoff()
        self._watched = False
        self._met_others = False
        self._changes = 0
        self._published = 0
        self.problem = ""
        self.forbidden = False

    @property
    def current(self) -> bool:
        """Return whether the API server has what was given last."""
        return self._published == self._changes

    def publish(self, specs: Mapping[str, dict[str, Any]], owner: str) -> None:
        """Publish these specs by name from now on; ``owner`` is the node's UID."""
        same = specs == self._wanted and (owner == self._owner or not specs)
        self._wanted, self._owner = specs, owner
        if same:
            return
        self._changes += 1
        self._debouncer.set()

    async def run(self) -> None:
        """Publish and watch; never returns. A node that never had a claim sends no request."""
        while True:
            await self._debouncer.wait()
            try:
                await self._follow()
            except KubeError as error:
                self.forbidden = is_forbidden(error)
                if not self._wanted and self.forbidden:
                    # The stack file no longer has claims, and its rights went with them. The
                    # kubelet removes the slices of a driver that is gone. There is nothing to ask
                    # for until the next change.
                    self._debouncer.clear()
                    self._published, self._have = self._changes, {}
                    self._tell("")
                    continue
                self._debouncer.set()
                code = error.code if isinstance(error, ApiError) else None
                if code in _WRITTEN_BY_OTHERS and not self._met_others:
                    self._met_others = True
                    continue
                pause = self._backoff.failed(error)
                # The server has forgotten the version that was watched from: they are listed again.
                if code != GONE:
                    self._tell(f"the slices of this node are not published: {error}")
                await asyncio.sleep(pause)
            except Exception:
                # Whoever starts this again goes on at once, and not at the next change.
                self._debouncer.set()
                raise

    def _tell(self, problem: str) -> None:
        if problem == self.problem:
            return
        if problem:
            _log.warning("%s", problem)
        self.problem = problem
        self._on_change()

    async def _follow(self) -> None:
        """Publish until the watch breaks, or there is nothing left to publish."""
        self._have, version = await self._api.slices(self._backoff.patience(_LIST_SECONDS))
        self.forbidden = False
        self._overtaken = self._watched = False
        watching = asyncio.create_task(self._watch(version))
        waiting: asyncio.Task[Any] | None = None
        try:
            while True:
                self._debouncer.clear()
                changes = self._changes
                await self._write()
                if self._overtaken:
                    self._debouncer.set()
                    return
                self._published = changes
                empty = not self._wanted and not self._have and self.current
                if self._watched or empty:
                    self._met_others = False
                    self._backoff.answered()
                    self._tell(self._loss())
                if empty:
                    return
                waiting = asyncio.create_task(self._debouncer.wait())
                await asyncio.wait({watching, waiting}, return_when=asyncio.FIRST_COMPLETED)
                waiting.cancel()
                if watching.done():
                    watching.result()
                    self._debouncer.set()
                    return
        finally:
            for task in (watching, waiting):
                if task is not None:
                    task.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    def _on_watched(self) -> None:
        self._watched = True
        self._debouncer.set()

    async def _watch(self, version: str) -> None:
        async for kind, seen in self._api.watch_slices(version, self._on_watched):
            if kind not in ("ADDED", "MODIFIED", "DELETED"):
                return
            name = seen["metadata"]["name"]
            if kind == "DELETED":
                self._watched_versions[name] = None
                self._have.pop(name, None)
            else:
                self._watched_versions[name] = seen["metadata"]["resourceVersion"]
                self._have[name] = seen
            self._debouncer.set()

    async def _write(self) -> None:
        """Write what is not as it should be.

        One slice may change within the pool's generation, and any may come back. Otherwise all
        of them are written with a new one, and no scheduler uses the pool before it has them all.
        """
        wanted, owner = self._wanted, self._owner
        stale = [name for name, spec in wanted.items() if not self._is(name, spec, owner)]
        extra = sorted(self._have.keys() - wanted.keys())
        generations = {slice_["spec"]["pool"]["generation"] for slice_ in self._have.values()}
        if stale or (len(generations) > 1 and wanted):
            last = max((self._generation, *generations))
            few = len(stale) == 1 or self._have.keys().isdisjoint(stale)
            same = last > 0 and generations <= {last} and few and not extra
            if not same and last >= MAX_GENERATION:
                # Somebody with this node's token has written the last generation that there is.
                # Without any slice the pool begins again; what is allocated is in the claims.
                await self._delete(sorted(self._have))
                last, extra = 0, []
            self._generation = last if same else last + 1
            for name in stale if same else wanted:
                self._have[name] = await self._put(name, wanted[name], owner)
        await self._delete(extra)

    async def _delete(self, names: Iterable[str]) -> None:
        for name in names:
            await self._api.delete_slice(name)
            self._have.pop(name, None)

    def _is(self, name: str, spec: dict[str, Any], owner: str) -> bool:
        have = self._have.get(name)
        if have is None:
            return False
        owners = [reference["uid"] for reference in have["metadata"].get("ownerReferences") or ()]
        if owners != [owner]:
            return False
        if same_spec(have["spec"], spec):
            return True
        given, stored = self._accepted.get(name, ({}, {}))
        return bool(given) and same_spec(given, spec) and same_spec(have["spec"], stored)

    async def _put(self, name: str, spec: dict[str, Any], owner: str) -> dict[str, Any]:
        metadata: dict[str, Any] = {
            "name": name,
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Node", "name": self._node, "uid": owner}
            ],
        }
        pool = {**spec["pool"], "generation": self._generation}
        slice_ = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": metadata,
            "spec": {**spec, "pool": pool},
        }
        self._watched_versions.pop(name, None)
        if name in self._have:
            metadata["resourceVersion"] = self._have[name]["metadata"]["resourceVersion"]
            written = await self._api.replace_slice(slice_)
        else:
            written = await self._api.create_slice(slice_)
        with raising_unreachable():
            version, stored = written["metadata"]["resourceVersion"], written["spec"]
        # Somebody may have written or deleted it before our answer arrived.
        self._overtaken |= self._watched_versions.get(name, version) != version
        self._accepted.pop(name, None)
        if not same_spec(stored, spec):
            self._accepted[name] = (spec, stored)
        return written

    def _loss(self) -> str:
        lossy = sorted(name for name in self._accepted if name in self._wanted)
        if not lossy:
            return ""
        return (
            f"the API server does not keep slice {lossy[0]} as it was written: claims by size need "
            "Kubernetes 1.36.2 or later with its default features"
        )
