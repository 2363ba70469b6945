"""Recommends one of the options of a pool, or none, and says why in one sentence."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from divvy.advise.advice import Guarantee, Option, duration_words
from divvy.model.phrases import plural


@dataclass(frozen=True)
class Comparison:
    """Compares options with today's profile of a pool with so many nodes.

    ``allow`` are the guarantees that may get weaker; with ``has_tenants`` today's numbers are the
    least that its pods can take.
    """

    nodes: int
    allow: frozenset[Guarantee]
    has_tenants: bool
    today: Option

    def is_kept(self, option: Option) -> bool:
        """Return whether no pod would be worse off, but for what is allowed."""
        return set(option.to_allow) <= self.allow and self._is_no_burden(option)

    def _is_no_burden(self, option: Option) -> bool:
        """Return whether it runs every pod, with no longer waits and on no more nodes."""
        return (
            option.is_harmless
            and (not option.waiting or option.gpus < self.today.gpus)
            and option.longest_wait <= self.today.longest_wait
            and option.nodes <= max(self.today.nodes, self.nodes)
        )

    def is_better(self, option: Option) -> bool:
        """Return whether it refuses none, lets none wait, or takes fewer GPUs, in this order."""
        before = bool(self.today.refused), bool(self.today.waiting), self.today.gpus
        return (bool(option.refused), bool(option.waiting), option.gpus) < before

    def reason(self, chosen: Option | None, best: Sequence[Option]) -> str:
        """Return why, in one sentence."""
        return self._gain(chosen) if chosen is not None else self._no_gain(best)

    def _gain(self, chosen: Option) -> str:
        words = [f"with {chosen.words} the pods need {plural(chosen.gpus, 'GPU')} at the peak"]
        if chosen.gpus < self.today.gpus:
            words[0] += f" instead of {self.today.gpus:,}"
        if self.today.refused:
            words.append(f"none is refused where {plural(len(self.today.refused), 'pod')} would be")
        if self.today.waiting and not chosen.waiting:
            words.append(f"none waits where {plural(len(self.today.waiting), 'pod')} would")
        if chosen.nodes > self.nodes:
            more = plural(chosen.nodes - self.nodes, "node")
            words.append(f"{more} more than the pool has")
        if chosen.waiting:
            words.append(
                f"on its {plural(self.nodes, 'node')} {_waiting(chosen)} would wait "
                f"instead of {_waiting(self.today)}"
            )
        if chosen.nodes <= self.nodes:
            is_known = not self.has_tenants and not self.today.refused
            spare = self.today.spare_nodes if is_known else 0
            words.append(self._spare(chosen.spare_nodes, spare))
        verb = "gets" if len(chosen.to_allow) == 1 else "get"
        weaker = f"{_listed(chosen.to_allow)} {verb} weaker, as allowed"
        words.append(weaker if chosen.to_allow else "no guarantee gets weaker")
        return f"{', '.join(words[:-1])}, and {words[-1]}"

    def _no_gain(self, best: Sequence[Option]) -> str:
        gpus = plural(self.today.gpus, "GPU")
        words = f"no profile that keeps every guarantee needs fewer than the {gpus}"
        words += " that the pods take at the peak today"
        if any(option.is_harmless and set(option.to_allow) <= self.allow for option in best):
            words += ", without more nodes or longer waits"
        cheaper = next(
            (
                option
                for option in best
                if set(option.to_allow) - self.allow and self._is_no_burden(option)
            ),
            None,
        )
        if cheaper is not None:
            options = " ".join(f"--allow {name}" for name in cheaper.to_allow)
            words += f"; with {options}, {cheaper.words} would need {cheaper.gpus:,}"
        if self.today.spare_nodes and not self.has_tenants:
            words += f"; {self._spare(self.today.spare_nodes, 0)}"
        return words

    def _spare(self, nodes: int, today: int) -> str:
        """Say how many nodes could go, and how many of them without a change."""
        could_go = f"{nodes:,} of {self.nodes:,} nodes" if nodes else "no node"
        with_today = f" ({today:,} without a change)" if today else ""
        return f"{could_go} could go{with_today}"


def rank(option: Option) -> tuple[Any, ...]:
    """Return what puts the best first."""
    by_claims = isinstance(option.profile, dict) and "claims" in option.profile
    changed = sum(option.requests.values())
    mixed = isinstance(option.profile, list)
    return (
        bool(option.waiting),
        option.gpus,
        option.nodes,
        len(option.to_allow),
        sum(change.steps for change in option.lost),
        by_claims,
        mixed,
        changed,
        -len(option.gained),
        option.words,
    )


def _waiting(option: Option) -> str:
    longest = option.longest_wait
    wait = "forever" if longest == inf else f"up to {duration_words(longest)}"
    return f"{plural(len(option.waiting), 'pod')} ({wait})"


def _listed(words: Sequence[str]) -> str:
    return " and ".join((", ".join(words[:-1]), words[-1]) if len(words) > 1 else words)
