"""Which templates there should be: decided from pods, slices and templates, all of them values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from divvy.claim_templates.offered import OfferedShares, Share
from divvy.claim_templates.template import template_of
from divvy.model.claim_names import SizedRequest, parse_template_name


class Key(NamedTuple):
    """A template's place."""

    namespace: str
    name: str


@dataclass(frozen=True)
class Step:
    """What to do about a template: delete what is there, create what should be; maybe both."""

    key: Key
    delete: bool
    create: Mapping[str, Any] | None


class Templates:
    """What is known of pods, slices and templates, and what is to be done about it.

    A template that no pod has named for ``unused_seconds`` goes. ``complete`` is set once all
    pods, slices and templates have been told: nothing is deleted before. Namespaces take turns: one
    that floods the cluster with sizes keeps no other one waiting.
    """

    def __init__(self, unused_seconds: float, offered: OfferedShares) -> None:
        self._unused_seconds = unused_seconds
        self._offered = offered
        self._pods: dict[str, frozenset[Key]] = {}
        self._named: Counter[Key] = Counter()
        self._live: dict[Key, Mapping[str, Any]] = {}
        # What the API server made of a specification, where it does not keep it as it is.
        self._stored: dict[Key, tuple[Mapping[str, Any], Mapping[str, Any]]] = {}
        self._idle_since: dict[Key, float] = {}
        # By namespace, in the order of their turns; both are sets that keep their order.
        self._due: dict[str, dict[Key, None]] = {}
        self._in_work: set[Key] = set()
        # What was refused, or failed, and is left alone until it is named to ``look_again``.
        self._resting: set[Key] = set()
        self.complete = False

    @property
    def live(self) -> int:
        """Return how many templates there are."""
        return len(self._live)

    def waiting(self) -> list[Key]:
        """Return the templates that pods name and that are not there."""
        return sorted(key for key in self._named if key not in self._live and _request(key))

    def pod(self, uid: str, named: frozenset[Key]) -> None:
        """Note which templates a pod names, none if it is over or gone."""
        before = self._pods.pop(uid, frozenset())
        for key in before - named:
            self._named[key] -= 1
            if not self._named[key]:
                del self._named[key]
        self._named.update(named - before)
        if named:
            self._pods[uid] = named
        self._is_due(sorted(before ^ named))

    def pods(self, pods: Mapping[str, frozenset[Key]]) -> None:
        """Note that there are these pods and no others."""
        for uid in self._pods.keys() | pods.keys():
            self.pod(uid, pods.get(uid, frozenset()))

    def template(self, key: Key, spec: Mapping[str, Any] | None) -> None:
        """Note what a template is, None if it is gone."""
        if _request(key) is None:
            return
        self._is_due([key])
        if spec is None:
            self._live.pop(key, None)
        else:
            self._live[key] = spec

    def created(self, key: Key, given: Mapping[str, Any], stored: Mapping[str, Any]) -> None:
        """Note what has become of a template that was just created.

        A server of another version, or a policy of somebody's, may add to what it was given.
        """
        self._stored.pop(key, None)
        if stored != given and _request(key) is not None:
            self._stored[key] = (given, stored)
        self.template(key, stored)

    def templates(self, templates: Mapping[Key, Mapping[str, Any]]) -> None:
        """Note that there are these templates and no others."""
        for key in self._live.keys() | templates.keys():
            self.template(key, templates.get(key))

    def slice(self, name: str, shares: frozenset[Share], now: float) -> None:
        """Note what a slice offers, nothing if it is gone."""
        self._news(self._offered.put(name, shares, now))

    def slices(self, slices: Mapping[str, frozenset[Share]], now: float) -> None:
        """Note that there are these slices and no others."""
        self._news(self._offered.replace(slices, now))

    def look_again(self, keys: Collection[Key] | None = None) -> None:
        """Have templates looked at once more: these, even if they rest, or all others."""
        if keys is None:
            self._is_due(sorted(self._named.keys() | self._live.keys()))
        else:
            self._resting.difference_update(keys)
            self._is_due(keys)

    def next_step(self, now: float) -> Step | None:
        """Return what is to be done next, None if nothing is.

        Until ``finished`` is called nothing else is to be done about the same template.
        """
        while (key := self._next_key()) is not None:
            step = self._step(key, key in self._named, now)
            if step is not None and key not in self._resting:
                self._in_work.add(key)
                return step
        return None

    def finished(self, key: Key, *, failed: bool = False) -> None:
        """Note that a step has been taken; or has failed: then the template rests."""
        self._in_work.discard(key)
        if failed:
            self._resting.add(key)

    def _next_key(self) -> Key | None:
        """Take a template out of what is due, from the namespace whose turn it is."""
        for namespace in list(self._due):
            keys = self._due.pop(namespace)
            key = next((candidate for candidate in keys if candidate not in self._in_work), None)
            if key is not None:
                del keys[key]
            if keys:
                self._due[namespace] = keys
            if key is not None:
                return key
        return None

    def _is_due(self, keys: Iterable[Key]) -> None:
        for key in keys:
            self._due.setdefault(key.namespace, {})[key] = None

    def _step(self, key: Key, named: bool, now: float) -> Step | None:
        request = _request(key)
        if request is None:
            return None
        live = self._live.get(key)
        if live is None and not named:
            self._resting.discard(key)
        # Only a percentage is of what is offered.
        offered = self._offered.counted(now) if request.unit == "p" else {}
        spec = template_of(request, offered)
        if named:
            self._idle_since.pop(key, None)
        if live is None:
            if not named:
                self._idle_since.pop(key, None)
            return Step(key, delete=False, create=spec) if named and spec is not None else None
        if not self.complete:
            return None
        if not named and now - self._idle_since.setdefault(key, now) >= self._unused_seconds:
            self._stored.pop(key, None)
            return Step(key, delete=True, create=None)
        # The sizes of GPUs have changed, or somebody has made it before our policy kept the name.
        if spec is not None and live != spec and (spec, live) != self._stored.get(key):
            return Step(key, delete=True, create=spec)
        return None

    def _news(self, news: bool) -> None:
        if news:
            keys = sorted(self._named.keys() | self._live.keys())
            self._is_due(key for key in keys if (request := _request(key)) and request.unit == "p")


def _request(key: Key) -> SizedRequest | None:
    return parse_template_name(key.name)
