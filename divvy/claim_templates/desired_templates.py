"""The desired templates: decided from pods, slices and templates, all of them values."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from itertools import chain
from typing import Any, NamedTuple

from divvy.claim_templates.offered import OfferedShares, Share
from divvy.claim_templates.template import template_of
from divvy.model.api_names import MAX_TEMPLATES_OF_NAMESPACE
from divvy.model.claim_names import SizedRequest, parse_template_name

# So many templates are looked at in a piece: the loop that decides also answers the kubelet.
_AT_A_TIME = 200


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


def digest_of(spec: Mapping[str, Any]) -> bytes:
    """Return what tells one specification from another: of a tenant's many little is kept."""
    return blake2b(json.dumps(spec, sort_keys=True).encode(), digest_size=16).digest()


class Templates:
    """What is known of pods, slices and templates, and what is to be done about it.

    A template that no pod has named for ``unused_seconds`` goes. ``complete`` is set once all
    pods, slices and templates have been told: nothing is deleted before. Namespaces take turns: one
    that floods the cluster with sizes keeps no other one waiting.

    A namespace has a bound: pods that would name more than that many templates wait, and of them
    nothing is kept but that they do; once there is room they have to be told again. As many
    templates as that stay that no pod names.
    """

    def __init__(self, unused_seconds: float, offered: OfferedShares) -> None:
        self._unused_seconds = unused_seconds
        self._offered = offered
        self._pods: dict[str, frozenset[Key]] = {}
        self._named: Counter[Key] = Counter()
        self._named_in: Counter[str] = Counter()
        # Pods that wait, by uid: their namespace, and one of the templates that they name.
        self._over: dict[str, Key] = {}
        self._live: dict[Key, bytes] = {}
        self._live_in: Counter[str] = Counter()
        # What the API server made of a specification, where it does not keep it as it is.
        self._stored: dict[Key, tuple[bytes, bytes]] = {}
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

    def over(self) -> dict[str, tuple[int, Key]]:
        """Return how many pods of each namespace wait for others, and a template that one names."""
        counts: dict[str, tuple[int, Key]] = {}
        for key in self._over.values():
            counts[key.namespace] = (counts.get(key.namespace, (0, key))[0] + 1, key)
        return counts

    def with_room(self) -> list[str]:
        """Return the namespaces of which pods wait, and that have room for some."""
        namespaces = {key.namespace for key in self._over.values()}
        most = MAX_TEMPLATES_OF_NAMESPACE
        return sorted(name for name in namespaces if self._named_in[name] < most)

    def is_unneeded(self, key: Key) -> bool:
        """Return whether no pod that is served names a template."""
        return key not in self._named

    def pod(self, uid: str, named: frozenset[Key]) -> None:
        """Note which templates a pod names, none if it is over or gone."""
        before = self._pods.pop(uid, frozenset())
        for key in before - named:
            self._named[key] -= 1
            if not self._named[key]:
                del self._named[key]
                self._named_in[key.namespace] -= 1
        self._over.pop(uid, None)
        if named and self._has_room(named):
            self._named_in.update(key.namespace for key in named if key not in self._named)
            self._named.update(named - before)
            self._pods[uid] = named
        elif named:
            self._over[uid] = min(named)
            named = frozenset()
        self._is_due(sorted(before ^ named))

    def _has_room(self, named: frozenset[Key]) -> bool:
        more = Counter(key.namespace for key in named if key not in self._named)
        return all(
            self._named_in[name] + count <= MAX_TEMPLATES_OF_NAMESPACE
            for name, count in more.items()
        )

    def pods(self, pods: Mapping[str, frozenset[Key]]) -> None:
        """Note that there are these pods and no others."""
        known = self._pods.keys() | self._over.keys()
        for uid in known - pods.keys():
            self.pod(uid, frozenset())
        for uid, named in pods.items():
            self.pod(uid, named)

    def template(self, key: Key, spec: bytes | None) -> None:
        """Note the digest of what a template is, None if it is gone."""
        if _request(key) is None:
            return
        self._is_due([key])
        before = self._live.pop(key, None)
        self._live_in[key.namespace] += (spec is not None) - (before is not None)
        if not self._live_in[key.namespace]:
            del self._live_in[key.namespace]
        if spec is not None:
            self._live[key] = spec

    def created(self, key: Key, given: Mapping[str, Any], stored: Mapping[str, Any]) -> None:
        """Note what has become of a template that was just created.

        A server of another version, or a policy of somebody's, may add to what it was given.
        """
        self._stored.pop(key, None)
        if stored != given and _request(key) is not None:
            self._stored[key] = (digest_of(given), digest_of(stored))
        self.template(key, digest_of(stored))

    def templates(self, templates: Mapping[Key, bytes]) -> None:
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
            self._is_due(chain(self._named, self._live))
        else:
            self._resting.difference_update(keys)
            self._is_due(keys)

    def next_step(self, now: float) -> Step | None:
        """Return what is to be done next, None if nothing is, or much has been looked at.

        Until ``finished`` is called nothing else is to be done about the same template.
        """
        for _ in range(_AT_A_TIME):
            key = self._next_key()
            if key is None:
                break
            step = self._step(key, key in self._named, now)
            if step is not None and key not in self._resting:
                self._in_work.add(key)
                return step
        return None

    @property
    def has_due(self) -> bool:
        """Return whether there is more to look at now."""
        return any(key not in self._in_work for keys in self._due.values() for key in keys)

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
        idle = 0.0 if named else now - self._idle_since.setdefault(key, now)
        if not named and (idle >= self._unused_seconds or self._has_too_many(key.namespace)):
            self._stored.pop(key, None)
            return Step(key, delete=True, create=None)
        # The sizes of GPUs have changed, or somebody has made it before our policy kept the name.
        wanted = None if spec is None else digest_of(spec)
        if wanted is not None and live != wanted and (wanted, live) != self._stored.get(key):
            return Step(key, delete=True, create=spec)
        return None

    def _has_too_many(self, namespace: str) -> bool:
        idle_at_least = self._live_in[namespace] - self._named_in[namespace]
        return idle_at_least > MAX_TEMPLATES_OF_NAMESPACE

    def _news(self, news: bool) -> None:
        if news:
            keys = sorted(self._named.keys() | self._live.keys())
            self._is_due(key for key in keys if (request := _request(key)) and request.unit == "p")


def _request(key: Key) -> SizedRequest | None:
    return parse_template_name(key.name)
