"""Advises: replays the recorded pods of a pool on its candidates, and compares them with today."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from itertools import compress
from math import ceil
from typing import Any

from divvy.advise.advice import (
    RANKS,
    Advice,
    Guarantee,
    GuaranteeChange,
    Option,
    PoolAdvice,
    Times,
    duration_words,
)
from divvy.advise.candidates import Candidate, Choice, PoolToAdvise, candidates
from divvy.advise.needs import Need, Needs, given_of, held_or_needed, needs_of
from divvy.advise.recommendation import Comparison, rank
from divvy.advise.replay import TIMES, Replay, Timeline, fill, replay
from divvy.advise.trace import CLAIMS, RecordedPod, Trace
from divvy.model import Cluster, Pool, hardware_model
from divvy.model.phrases import plural, some
from divvy.model.resource_names import gpu_resource
from divvy.model.sharing import sharing_of_claims
from divvy.model.stack import Names
from divvy.plan.fit import PodToFit, asking_pod, fit, nodes_of_plan
from divvy.plan.fit.pods import Around
from divvy.plan.predict.claimable import BY_CLAIMS
from divvy.plan.predict.guarantees import MIG, WHOLE, Guarantees, level, share_guarantees
from divvy.plan.predict.prediction import plan

_HOUR = 3600
# Who came so near to all the memory that it had may have wanted more.
_ALL_MEMORY = 0.98
# Sums of parts of a GPU come so near to a whole number.
_TINY = 1e-6
_BY_CLAIMS = (
    "its nodes would be served by claims in place of the device plugin: docs/claims.md says what "
    "that changes"
)
# So many are shown that keep all guarantees, and that do not.
_KEPT, _OTHERS = 3, 2
# One that refuses or kills no more than this part of the pods is shown, too: they may be few.
_FEW = 0.1
# Below this part of the GPUs' time that is known, "leave it as it is" would be a guess.
_LEAST_KNOWN = 0.5


def advise(
    cluster: Cluster,
    trace: Trace,
    pools: Iterable[str],
    wanted_seconds: float,
    allow: frozenset[Guarantee] = frozenset(),
    headroom: float = 0.2,
) -> Advice:
    """Return which profile each pool should have; half of the wanted time must be recorded."""
    unknown = trace.unread or _too_little(trace.seconds, wanted_seconds)
    results = tuple(
        PoolAdvice(name, cluster.pools[name].profile, unknown=why)
        if (why := unknown or _no_hardware(cluster.pools[name]))
        else _PoolAdviser(cluster, name, trace, allow, headroom).advice()
        for name in pools
    )
    strangers = sum(pod.pool not in cluster.pools for pod in trace.pods)
    words = f"{plural(strangers, 'pod')} of no pool of the stack file left out"
    notes = [words] if strangers else []
    if trace.gaps:
        gaps = duration_words(trace.end - trace.begin - trace.seconds)
        notes.append(f"nothing is known of {gaps} of this time")
    return Advice(trace.cluster, trace.begin, trace.end, headroom, results, tuple(notes))


def _no_hardware(pool: Pool) -> str:
    return "" if pool.hardware else "the stack file does not say which hardware it has: `hardware`"


def _too_little(seconds: float, wanted: float) -> str:
    if seconds >= wanted / 2:
        return ""
    return (
        f"too little data: {duration_words(seconds)} of {duration_words(wanted)} are recorded, and "
        f"half of it would be enough; --since {ceil(max(seconds, 60) / 60)}m takes this as enough"
    )


@dataclass(frozen=True)
class _Drawn:
    """A candidate before its replay: what each need gets, and the fewest GPUs that it may take."""

    candidate: Candidate
    choices: Sequence[Choice | None]
    estimate: int
    option: Option


class _PoolAdviser:
    """Advises on one pool."""

    def __init__(
        self,
        cluster: Cluster,
        name: str,
        trace: Trace,
        allow: frozenset[Guarantee],
        headroom: float,
    ) -> None:
        pool = cluster.pools[name]
        assert pool.hardware is not None
        self._cluster, self._name, self._trace, self._allow = cluster, name, trace, allow
        own = [pod for pod in trace.pods if pod.pool == name]
        self._pods = [pod for pod in own if pod.node not in pool.overrides]
        notes = []
        if pool.overrides:
            pods = plural(len(own) - len(self._pods), "pod")
            words = f"{', '.join(sorted(pool.overrides))} and {pods} on them"
            notes = [f"left out, since their nodes have profiles of their own: {words}"]
        model, gpus = hardware_model(pool.hardware), pool.hardware.gpus
        nodes = max(pool.hardware.count - len(pool.overrides), 0)
        self._pool = PoolToAdvise(cluster, name, model, gpus, nodes, self._kept_name())
        self._candidate_today = self._pool.today()
        claims = self._candidate_today.claims
        # No candidate keeps tenants apart on GPUs that they share.
        self._has_tenants = claims is not None and bool(claims.tenants)
        self._pods = [self._with_given(pod) for pod in self._pods]
        self._few = _FEW * len(self._pods)
        self._names = [pod.full_name for pod in self._pods]
        self._needs = needs_of(self._pods, headroom, model.memory_mib)
        self._given = given_of(self._pods, model.memory_mib)
        self._timeline = Timeline(self._pods, trace.end)
        unmeasured = sum(not self._needs.kinds[kind].is_known for kind in self._needs.of_pod)
        self._base = PoolAdvice(
            name,
            pool.profile,
            model=model.name,
            gpus=gpus,
            nodes=nodes,
            pods=len(self._pods),
            unmeasured=unmeasured,
            notes=tuple(notes),
        )

    def advice(self) -> PoolAdvice:
        """Return the advice."""
        today = self._today()
        if not self._pods or not self._pool.nodes:
            words = "no pod held one of its GPUs, so that nothing says what pods would need"
            return replace(self._base, today=today, reason=words)
        drawn = self._drawn()
        comparison = Comparison(self._pool.nodes, self._allow, self._has_tenants, today)
        best = tuple(
            option
            for option in self._best(comparison, drawn)
            if comparison.is_better(option) or (not option.is_harmless and option.gpus < today.gpus)
        )
        kept = [option for option in best if comparison.is_kept(option)]
        chosen = min(kept, key=rank, default=None)
        advice = replace(
            self._base,
            today=today,
            best=best,
            recommended=chosen,
            reason=comparison.reason(chosen, best),
            times=self._times(),
        )
        if chosen is None and self._known_part() < _LEAST_KNOWN:
            return replace(advice, unknown=self._unmeasured_words())
        return advice

    def _kept_name(self) -> str:
        """Return the resource that all pods ask for, "" if another pool offers it, too."""
        if self._cluster.pools[self._name].overrides:
            return ""
        asked = {pod.resource for pod in self._pods}
        others = (pool.totals for pool in plan(self._cluster, "").pools if pool.name != self._name)
        elsewhere = {resource.removesuffix(BY_CLAIMS) for totals in others for resource in totals}
        return asked.pop() if len(asked) == 1 and not asked & elsewhere else ""

    def _with_given(self, pod: RecordedPod) -> RecordedPod:
        """Return a pod with what today's profile gives where the recording lacks it."""
        if None not in (pod.given_mib, pod.given_cores):
            return pod
        for known in self._candidate_today.classes:
            if known.resource == pod.resource:
                memory = known.memory_mib / max(known.crowd, 1)
                return pod._replace(
                    given_mib=memory if pod.given_mib is None else pod.given_mib,
                    given_cores=known.cores if pod.given_cores is None else pod.given_cores,
                )
        return pod

    def _sizes(self, needs: Needs) -> tuple[list[float], list[float]]:
        """Return the part of a GPU that each need takes: of its memory, and of its compute."""
        memory = self._pool.model.memory_mib
        return (
            [need.devices * need.memory_mib / memory for need in needs.kinds],
            [need.devices * need.cores / 100 for need in needs.kinds],
        )

    def _parts(self, needs: Needs) -> list[float]:
        """Return the part of a GPU that each need takes, of what it takes most of."""
        return list(map(max, *self._sizes(needs)))

    @cached_property
    def _needed_hours(self) -> float:
        parts, trace = self._parts(self._needs), self._trace
        begins = trace.known_until(pod.begin for pod in self._pods)
        ends = trace.known_until(trace.end if pod.end is None else pod.end for pod in self._pods)
        times = zip(self._needs.of_pod, begins, ends, strict=True)
        return sum(parts[kind] * (end - begin) for kind, begin, end in times) / _HOUR

    @cached_property
    def _bursts(self) -> list[list[float]]:
        """Return of each need the peaks of the compute that its pods took, in order."""
        bursts: list[list[float]] = [[] for _ in self._needs.kinds]
        for pod, kind in zip(self._pods, self._needs.of_pod, strict=True):
            bursts[kind].append(pod.peak_cores or 0.0)
        return [sorted(peaks) for peaks in bursts]

    def _known_part(self) -> float:
        """Return of what part of the GPU time that pods had it is known how much they used."""
        parts = self._parts(self._given)
        known = total = 0.0
        for number, kind in enumerate(self._given.of_pod):
            time = parts[kind] * self._timeline.seconds[number]
            total += time
            known += time if self._needs.kinds[self._needs.of_pod[number]].is_known else 0.0
        return known / total if total else 0.0

    def _unmeasured_words(self) -> str:
        pods = plural(self._base.unmeasured, "pod")
        return (
            f"how much {pods} of {self._base.pods:,} used is unknown, and "
            "each counts with all that it was given: the use of replicas is measured where their "
            "rule has a `memoryLimit`"
        )

    def _idle(self, nodes: int) -> float:
        offered = nodes * self._pool.gpus * self._trace.seconds / _HOUR
        return max(offered - self._needed_hours, 0.0)

    def _today(self) -> Option:
        held = [self._held(need) for need in self._given.kinds]
        # What an earlier profile gave is now whatever is large enough.
        is_held = [choice is not None for choice in held]
        needs = held_or_needed(self._given, self._needs, is_held)
        choices = [*held, *map(self._candidate_today.choose, self._needs.kinds)]
        result, waiting = self._replays(self._candidate_today, needs, choices)
        older = sum(not is_held[kind] for kind in self._given.of_pod)
        return Option(
            self._candidate_today.words,
            None,
            result.gpus,
            result.nodes,
            max(self._pool.nodes - result.nodes, 0),
            self._idle(self._pool.nodes),
            refused=self._named(needs, [choice is None for choice in choices]),
            waiting=waiting,
            notes=(*self._older(older), *self._waited(waiting), *self._tenants(), *self._full()),
        )

    def _older(self, pods: int) -> Iterator[str]:
        if pods:
            yield (
                f"{plural(pods, 'pod')} held what the stack file no longer offers: of today's "
                "profile they would take the smallest that holds them"
            )

    def _waited(self, waiting: Iterable[tuple[str, float]]) -> Iterator[str]:
        """Say that pods waited, though the profile had room for them."""
        names = {name for name, _ in waiting}
        others = [pod.waited for pod in self._pods if pod.waited and pod.full_name not in names]
        if others:
            pods = plural(len(others), "pod")
            yield (
                f"{pods} waited, up to {duration_words(max(others))}, though this "
                "pool had room for them: for another reason than its profile"
            )

    def _tenants(self) -> Iterator[str]:
        if self._has_tenants:
            yield (
                "which tenant a pod has is not recorded: where pods of several tenants run at "
                "once, they take more GPUs today than this, and fewer nodes can go"
            )

    def _full(self) -> Iterator[str]:
        """Say who used all its memory: a peak that a limit cut off is not what the pod wanted."""
        full = [
            pod.full_name
            for pod in self._pods
            if pod.peak_mib and pod.given_mib and pod.peak_mib >= _ALL_MEMORY * pod.given_mib
        ]
        if full:
            yield (
                f"{plural(len(full), 'pod')} used all the memory that was given, and may need "
                f"more: {some(full)}"
            )

    def _held(self, need: Need) -> Choice | None:
        """Return what today's profile has of what pods have held."""
        for known in self._candidate_today.classes:
            resource = known.resource.removesuffix(BY_CLAIMS)
            if need.resource == resource or (
                need.resource == CLAIMS
                and known.whole == (need.kind == "whole")
                and (need.kind == "mig") == (known.guarantees == MIG)
                and known.memory_mib >= need.memory_mib - 1
            ):
                return Choice(known)
        return None

    def _promise(self, need: Need) -> Guarantees:
        """Return what pods have been guaranteed, at most where the stack file no longer says it."""
        held = self._held(need)
        if held is not None:
            return held.device.guarantees
        return {"whole": WHOLE, "mig": MIG}.get(need.kind, _BEST_SHARE)

    def _named(self, needs: Needs, of_kind: Sequence[bool]) -> tuple[str, ...]:
        if not any(of_kind):
            return ()
        return tuple(compress(self._names, map(of_kind.__getitem__, needs.of_pod)))

    def _drawn(self) -> list[_Drawn]:
        weights = Counter(self._needs.of_pod)
        counts = [weights[kind] for kind in range(len(self._needs.kinds))]
        peaks = partial(self._timeline.peaks, self._needs)
        shapes = [gpu.shape for gpu in self._candidate_today.node.gpus]
        listed = [
            candidate
            for candidate in candidates(self._pool, self._needs.kinds, counts, peaks)
            if [gpu.shape for gpu in candidate.node.gpus] != shapes
        ]
        load = max(self._timeline.peak(self._needs, parts) for parts in self._sizes(self._needs))
        drawn = []
        for candidate in listed:
            choices = [candidate.choose(need) for need in self._needs.kinds]
            option = self._effects(candidate, choices, counts)
            estimate = ceil(load - _TINY)
            if candidate.claims is None:
                resources = [choice.device.resource if choice else None for choice in choices]
                estimate, _ = fill(candidate, peaks(resources))
            drawn.append(_Drawn(candidate, choices, estimate, option))
        return drawn

    def _load(self, parts: Sequence[float], needs: Needs) -> list[float]:
        seconds = (self._trace.end - self._trace.begin) / TIMES
        return self._timeline.load(needs, parts, self._trace.begin, seconds)

    def _effects(
        self, candidate: Candidate, choices: Sequence[Choice | None], counts: Sequence[int]
    ) -> Option:
        """Return what a candidate does to pods wherever they run."""
        lost: Counter[tuple[Guarantee, str, str]] = Counter()
        gained: Counter[tuple[Guarantee, str, str]] = Counter()
        requests: Counter[tuple[str, str]] = Counter()
        for need, choice, count in zip(self._needs.kinds, choices, counts, strict=True):
            if choice is None:
                continue
            before, after = self._promise(need), choice.device.guarantees
            for name, ranks in RANKS.items():
                levels = level(getattr(before, name)), level(getattr(after, name))
                if levels[0] == "shared" and self._has_tenants:
                    levels = "shared by tenant", levels[1]
                step = ranks[levels[1]] - ranks[levels[0]]
                if step:
                    (lost if step > 0 else gained)[name, *levels] += count
            if (asked := _asked(choice)) != need.resource:
                requests[need.resource, asked] += count
        return Option(
            candidate.words,
            candidate.profile,
            0,
            0,
            0,
            0.0,
            refused=self._named(self._needs, [choice is None for choice in choices]),
            slowed=self._named(self._needs, [bool(choice and choice.slowed) for choice in choices]),
            lost=tuple(GuaranteeChange(*key, count) for key, count in sorted(lost.items())),
            gained=tuple(GuaranteeChange(*key, count) for key, count in sorted(gained.items())),
            requests=dict(sorted(requests.items())),
        )

    def _best(self, comparison: Comparison, drawn: Sequence[_Drawn]) -> tuple[Option, ...]:
        """Replay the most promising candidates, until no other can be better.

        Those that keep all first, then those that would have to be allowed, then the best that only
        few pods are in the way of.
        """
        kept = [entry for entry in drawn if comparison.is_kept(entry.option)]
        refusing = [entry for entry in drawn if entry.option.refused]
        others = [entry for entry in drawn if entry not in kept and entry not in refusing]
        missed = [
            entry
            for entry in refusing
            if len(entry.option.refused) <= self._few and set(entry.option.to_allow) <= self._allow
        ]
        options = [*self._replayed(kept, _KEPT), *self._replayed(others, _OTHERS)]
        crowded = [option for option in options if option.killed]
        near = sorted((*self._replayed(missed, 1), *crowded), key=rank)[:1]
        return (*(option for option in options if not option.killed), *near)

    def _replayed(self, drawn: list[_Drawn], most: int) -> list[Option]:
        results: list[Option] = []
        crowded: list[Option] = []
        for entry in sorted(drawn, key=lambda entry: (entry.estimate, rank(entry.option))):
            enough = sorted(option.gpus for option in results)[:most]
            if len(enough) == most and entry.estimate >= enough[0]:
                break
            option = self._option(entry)
            if option is not None:
                (crowded if option.killed else results).append(option)
        return [*sorted(results, key=rank)[:most], *crowded]

    def _option(self, entry: _Drawn) -> Option | None:
        """Return a candidate with what its replay shows, None if it would kill too many pods."""
        nodes, memory = self._pool.nodes, self._pool.model.memory_mib
        killed = self._timeline.crowded(self._needs, entry.choices, memory, self._few)
        if killed is None:
            return None
        result, waiting = self._replays(entry.candidate, self._needs, entry.choices)
        fitting, notes = self._judged(entry, result)
        if entry.candidate.claims and not self._candidate_today.claims:
            notes = (_BY_CLAIMS, *notes)
        notes = (*self._burst_notes(entry.choices), *notes)
        return replace(
            entry.option,
            killed=tuple(self._names[number] for number in killed),
            gpus=result.gpus,
            nodes=fitting,
            spare_nodes=max(nodes - fitting, 0),
            idle_hours=self._idle(min(fitting, nodes)),
            waiting=waiting,
            notes=notes,
        )

    def _burst_notes(self, choices: Sequence[Choice | None]) -> Iterator[str]:
        """Say how many pods took more compute for short times than their part would be."""
        above, times, most, part = 0, 0.0, 0.0, 0.0
        for peaks, choice in zip(self._bursts, choices, strict=True):
            if choice and not choice.slowed and peaks[-1] > choice.device.cores:
                peak, cores = peaks[-1], choice.device.cores
                above += len(peaks) - bisect_right(peaks, cores)
                times, most, part = max((times, most, part), (peak / cores, peak, cores))
        if above:
            yield (
                f"in bursts, up to 5 % of the time, {plural(above, 'pod')} took more of a GPU's "
                f"compute than they would have: up to {most:.0f} %, and would have {part:.0f} %"
            )

    def _replays(
        self, candidate: Candidate, needs: Needs, choices: Sequence[Choice | None]
    ) -> tuple[Replay, tuple[tuple[str, float], ...]]:
        """Replay on the nodes of the pool, and, if pods wait, again on as many as they need."""
        result = replay(candidate, self._timeline, needs, choices, self._pool.nodes)
        waiting = [(self._names[number], seconds) for number, seconds in result.waited.items()]
        if waiting:
            # A node for each pod that runs at once.
            enough = int(self._timeline.peak(needs, [1] * len(needs.kinds)))
            result = replay(candidate, self._timeline, needs, choices, enough)
        return result, tuple(sorted(waiting, key=lambda entry: (-entry[1], entry[0])))

    def _judged(self, entry: _Drawn, result: Replay) -> tuple[int, tuple[str, ...]]:
        """Return on how many nodes all pods of the busiest moment fit as the scheduler puts them.

        It spreads pods over nodes, which takes more of them than the replay did.
        """
        cluster = entry.candidate.cluster

        @cache
        def asking(limits: tuple[tuple[str, int], ...]) -> PodToFit:
            return asking_pod(_raw_pod(dict(limits)), cluster, _NOTHING_AROUND)

        running = Counter(self._needs.of_pod[number] for number in result.busiest)
        pods = [
            replace(asking(_limits(cluster.names, self._needs.kinds[kind], choice)), copies=copies)
            for kind, copies in running.items()
            if (choice := entry.choices[kind])
        ]
        nodes = nodes_of_plan(cluster, plan(cluster, ""))
        for count in range(result.nodes, 2 * result.nodes + 1):
            counted = [replace(node, count=count) for node in nodes]
            if fit(cluster, "", counted, pods):
                return count, ()
        words = f"`divvy fit` finds no room for the busiest moment on {2 * result.nodes} nodes"
        return result.nodes, (words,)

    def _times(self) -> Times:
        return Times(
            self._trace.begin,
            (self._trace.end - self._trace.begin) / TIMES,
            tuple(self._load(self._parts(self._needs), self._needs)),
            tuple(self._load(self._parts(self._given), self._given)),
        )


_BEST_SHARE = share_guarantees(sharing_of_claims(None), tenants=False)
_NOTHING_AROUND = Around({}, {}, 0, {}, {})


def _asked(choice: Choice) -> str:
    """Return what a pod names: a share by size is asked for by names of its own."""
    resource = choice.device.resource
    if resource == gpu_resource(shared=True) + BY_CLAIMS:
        return CLAIMS
    return resource.removesuffix(BY_CLAIMS)


def _limits(names: Names, need: Need, choice: Choice) -> tuple[tuple[str, int], ...]:
    """Return what a pod asks for in place of what it needs: names and numbers."""
    asked = _asked(choice)
    if asked != CLAIMS:
        return ((asked, need.devices),)
    return (names.gpu, need.devices), (names.memory, need.memory_mib), (names.cores, need.cores)


def _raw_pod(limits: Mapping[str, int]) -> dict[str, Any]:
    container = {"name": "main", "resources": {"limits": limits}}
    spec = {"containers": [container], "tolerations": [{"operator": "Exists"}]}
    return {"metadata": {"namespace": "default"}, "spec": spec}
