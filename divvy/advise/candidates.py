"""The profiles that a pool could have instead, as a stack file writes them, with their devices.

What a candidate offers and guarantees is what the plan predicts for it.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations, groupby, islice
from math import inf
from typing import Any

from divvy.advise.needs import Need
from divvy.model import Cluster, GpuModel, InvalidValue, MigGeometry, parse_cluster
from divvy.model.claims import MAX_SHARES, Claims
from divvy.model.mig_placement import holds
from divvy.model.profile import MAX_GATED_REPLICAS
from divvy.model.resource_names import gpu_resource, mig_resource
from divvy.plan.predict.claimable import BY_CLAIMS
from divvy.plan.predict.guarantees import WHOLE, Guarantees
from divvy.plan.predict.prediction import Device, NodePlan, predict_node

NAME = "advised"
# So many pods of a pool decide which sizes are tried, and so many sets of MIG profiles are.
_PARTS = (0.5, 0.75, 0.9, 0.95, 0.99, 1.0)
_MOST_SETS = 12


@dataclass(frozen=True)
class DeviceClass:
    """What a pod can ask for: a resource, what one device of it has, and its guarantees.

    ``cores`` is its part of the GPU's compute in per cent. ``crowd``: so many pods have the memory
    together, and each can take all of it. ``per_gpu`` says how many devices each GPU of a node has;
    empty where claims serve the node.
    """

    resource: str
    memory_mib: int
    cores: float
    guarantees: Guarantees
    per_gpu: tuple[int, ...] = ()
    crowd: int = 0
    whole: bool = False


@dataclass(frozen=True)
class Choice:
    """The class of which pods with one need get devices; ``slowed``: it has too little compute."""

    device: DeviceClass
    slowed: bool = False


@dataclass(frozen=True)
class Candidate:
    """A profile: in words, as the stack file writes it, and as the plan predicts a node with it."""

    words: str
    profile: Any
    node: NodePlan
    cluster: Cluster

    @cached_property
    def claims(self) -> Claims | None:
        """Return how claims serve the GPUs, None where the device plugin does."""
        return next((gpu.claims for gpu in self.node.gpus if gpu.claims is not None), None)

    @cached_property
    def classes(self) -> tuple[DeviceClass, ...]:
        """Return what pods can ask for, the smallest first."""
        classes = self._claimable() if self.claims else self._advertised()
        return tuple(sorted(classes, key=lambda known: (known.memory_mib, known.cores)))

    def choose(self, need: Need) -> Choice | None:
        """Return the class that a need gets, None if no device or no node has enough for it."""
        # More devices than a node has GPUs are a mistake of `hardware`, and no candidate's fault.
        devices = min(need.devices, len(self.node.gpus))
        enough = [
            known for known in self.classes if not known.per_gpu or sum(known.per_gpu) >= devices
        ]
        return smallest(enough, need)

    def _advertised(self) -> Iterator[DeviceClass]:
        of_resource: dict[str, list[Device]] = {}
        for device in self.node.devices:
            if device.gpu is not None:
                of_resource.setdefault(device.resource, []).append(device)
        for resource, devices in of_resource.items():
            device, counts = devices[0], Counter(device.gpu for device in devices)
            per_gpu = tuple(counts[gpu.index] for gpu in self.node.gpus)
            model = self.node.gpus[device.gpu or 0].model
            memory, cores = _undivided(device, model)
            yield DeviceClass(
                resource,
                device.memory_mib or 0,
                cores / device.shares,
                device.guarantees,
                per_gpu,
                device.shares if device.shares > 1 and device.memory_mib == memory else 0,
                whole=device.placement is None and device.shares == 1,
            )

    def _claimable(self) -> Iterator[DeviceClass]:
        model = self.node.gpus[0].model
        shares = gpu_resource(shared=True) + BY_CLAIMS
        for kind in self.node.claimable:
            if kind.guarantees == WHOLE or kind.name == shares:
                is_whole = kind.guarantees == WHOLE
                # A share of all the memory leaves none to others: that is a whole GPU.
                memory = model.memory_mib - (not is_whole)
                yield DeviceClass(kind.name, memory, 100.0, kind.guarantees, whole=is_whole)
            elif model.mig is not None:
                for profile in model.mig.profiles:
                    if mig_resource(profile.name) + BY_CLAIMS == kind.name:
                        part = 100 * profile.compute_slices / model.mig.compute_slices
                        yield DeviceClass(kind.name, profile.memory_mib, part, kind.guarantees)


def smallest(classes: Iterable[DeviceClass], need: Need) -> Choice | None:
    """Return the first of classes, the smallest first, that holds a need; None if none does.

    One with too little compute only where none has enough.
    """
    holding = [
        known
        for known in classes
        if known.memory_mib >= need.memory_mib and (known.whole or not need.whole)
    ]
    for known in holding:
        if known.cores >= need.cores:
            return Choice(known)
    return Choice(max(holding, key=lambda known: known.cores), slowed=True) if holding else None


def _undivided(device: Device, model: GpuModel) -> tuple[int, float]:
    """Return the memory and the part of the compute of what a device is, or is a replica of."""
    if device.placement is None or model.mig is None:
        return model.memory_mib, 100.0
    profile = model.mig.profile(device.placement.profile)
    assert profile is not None
    return profile.memory_mib, 100 * profile.compute_slices / model.mig.compute_slices


@dataclass(frozen=True)
class PoolToAdvise:
    """A pool: its cluster, and the nodes that follow its profile.

    ``kept_name`` is the resource that all its pods ask for, if no other pool offers it: what is
    alike on all GPUs may then go by it, and no pod has to change.
    """

    cluster: Cluster
    name: str
    model: GpuModel
    gpus: int
    nodes: int
    kept_name: str = ""
    _candidates: dict[tuple[str, int], Candidate | None] = field(default_factory=dict)

    def candidate(self, words: str, profile: Any, gpus: int | None = None) -> Candidate | None:
        """Return a profile for nodes of this pool, None if the model refuses it."""
        key = str(profile), gpus or self.gpus
        if key not in self._candidates:
            self._candidates[key] = self._candidate(words, profile, gpus or self.gpus)
        return self._candidates[key]

    def _candidate(self, words: str, profile: Any, gpus: int) -> Candidate | None:
        hardware = self.cluster.pools[self.name].hardware
        assert hardware is not None
        own = hardware.model_dump(by_alias=True, exclude_none=True, include={"model", "memory"})
        own |= {"gpus": gpus, "count": self.nodes}
        value = {
            "profiles": {NAME: profile},
            "pools": {self.name: {"hardware": own, "profile": NAME}},
            "names": self.cluster.names.model_dump(by_alias=True),
        }
        try:
            cluster = parse_cluster(value)
        except InvalidValue:
            return None
        node = predict_node(cluster, NAME, self.model, gpus)
        return Candidate(words, profile, node, cluster)

    def today(self) -> Candidate:
        """Return the profile that the pool has."""
        profile = self.cluster.pools[self.name].profile
        node = predict_node(self.cluster, profile, self.model, self.gpus)
        return Candidate(f"profile {profile}", None, node, self.cluster)


# Of each need the resource that it would ask for, None for none → the most at once, by resource.
Peaks = Callable[[Sequence[str | None]], Mapping[str, int]]


def candidates(
    pool: PoolToAdvise, needs: Sequence[Need], weights: Sequence[int], peaks: Peaks
) -> list[Candidate]:
    """Return the profiles that may do for pods, each once; ``weights`` counts pods by need."""
    whole = pool.candidate("whole", {}, 1)
    assert whole is not None
    drawn = [pool.candidate(whole.words, whole.profile)]
    for replicas in _replica_numbers(pool.model, needs, weights):
        for limited in (True, False):
            drawn += _covering(pool, _replica_ways(pool, replicas, limited), whole, needs, peaks)
    profiles = _mig_profiles(pool.model, needs)
    layouts = list(_layouts(pool.model.mig, profiles, {})) if pool.model.mig else []
    for names in _sets(profiles):
        drawn += _covering(pool, _mig_ways(pool, layouts, names), whole, needs, peaks)
    least = min(need.memory_mib for need in needs)
    at_most = min(MAX_SHARES, pool.model.memory_mib // max(least, 1))
    shares = {"max": at_most, "placement": "pack"}
    drawn.append(pool.candidate("shares by size", {"claims": {"shares": shares}}))
    if profiles:
        words = f"on demand: {', '.join(profiles)}"
        drawn.append(pool.candidate(words, {"claims": {"mig": list(profiles)}}))
    return list({str(known.profile): known for known in drawn if known is not None}.values())


def _replica_numbers(
    model: GpuModel, needs: Sequence[Need], weights: Sequence[int]
) -> tuple[int, ...]:
    """Return numbers of replicas whose equal parts hold some part of the pods."""
    parts = sorted(
        (min(model.memory_mib // max(need.memory_mib, 1), 100 // need.cores), weight)
        for need, weight in zip(needs, weights, strict=True)
    )
    total, numbers, passed = sum(weights), set(), 0
    for replicas, weight in reversed(parts):
        if any(passed < part * total <= passed + weight for part in _PARTS):
            numbers.add(min(replicas, MAX_GATED_REPLICAS))
        passed += weight
    return tuple(sorted(number for number in numbers if number > 1))


def _replica_ways(pool: PoolToAdvise, replicas: int, limited: bool) -> list[Candidate]:
    rule: dict[str, Any] = {"replicas": replicas}
    if limited:
        rule |= {"memoryLimit": {"limit": "auto", "action": "prevent"}, "compute": "share"}
    words = f"{replicas} {'limited shares' if limited else 'replicas'}"
    way = pool.candidate(words, {"timeSlicing": rule}, 1)
    return [way] if way else []


def _mig_profiles(model: GpuModel, needs: Sequence[Need]) -> tuple[str, ...]:
    """Return the MIG profiles that are the smallest for some need, without those of a whole GPU."""
    if model.mig is None:
        return ()
    geometry = model.mig
    plain = sorted(
        (
            profile
            for profile in geometry.profiles
            if not profile.attributes and profile.memory_slices < geometry.memory_slices
        ),
        key=lambda profile: (profile.memory_mib, profile.compute_slices),
    )
    # Also for those to whom too little compute may be given.
    fitting = {
        next(
            (
                profile.name
                for profile in plain
                if profile.memory_mib >= need.memory_mib
                and 100 * profile.compute_slices >= cores * geometry.compute_slices
            ),
            None,
        )
        for need in needs
        for cores in (need.cores, 0)
        if not need.whole
    }
    return tuple(profile.name for profile in plain if profile.name in fitting)


def _sets(names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield sets of MIG profiles: each alone, all of them, then those between."""
    sizes = dict.fromkeys((1, len(names), *range(2, len(names))))
    sets = (chosen for size in sizes if size for chosen in combinations(names, size))
    yield from islice(sets, _MOST_SETS)


def _layouts(
    geometry: MigGeometry, names: Sequence[str], layout: Mapping[str, int]
) -> Iterator[Mapping[str, int]]:
    """Yield each layout that a GPU holds with more of some profiles than a layout has."""
    for number, name in enumerate(names):
        more = _more(layout, name)
        if holds(geometry, more):
            yield more
            yield from _layouts(geometry, names[number:], more)


def _more(layout: Mapping[str, int], name: str) -> Mapping[str, int]:
    return {**layout, name: layout.get(name, 0) + 1}


def _mig_ways(
    pool: PoolToAdvise, layouts: Sequence[Mapping[str, int]], names: Sequence[str]
) -> list[Candidate]:
    """Return the layouts of some profiles to which none of them can be added."""
    of_names = [layout for layout in layouts if layout.keys() <= set(names)]
    held = {frozenset(layout.items()) for layout in of_names}
    ways = (
        pool.candidate(_layout_words(layout), {"mig": layout}, 1)
        for layout in of_names
        if not any(frozenset(_more(layout, name).items()) in held for name in names)
    )
    return [way for way in ways if way]


def _layout_words(layout: Mapping[str, int]) -> str:
    return " + ".join(f"{number} × {name}" for name, number in layout.items())


def _covering(
    pool: PoolToAdvise, ways: list[Candidate], whole: Candidate, needs: Sequence[Need], peaks: Peaks
) -> list[Candidate | None]:
    """Return profiles of these ways: the best alike on all GPUs, and the best mix with others.

    The mix is the one of the fewest GPUs on the fewest nodes that have what pods hold at once.
    """
    if not ways:
        return []
    # Alike, and with pods in the way that these ways refuse, or give too little compute.
    best = ways[0]
    if len(ways) > 1:
        most = peaks(_asking(ways, needs))
        best = min(ways, key=lambda way: gpus_for(most, way.classes))
    results = [_alike(pool, best)]
    both = [*ways, whole]
    given = [{known.resource: known.per_gpu[0] for known in way.classes} for way in both]
    mix = _mix(given, peaks(_asking(both, needs)), pool.gpus, 2 * pool.nodes)
    return [*results, _mixed(pool, both, mix)] if mix else results


def _asking(ways: Iterable[Candidate], needs: Sequence[Need]) -> list[str | None]:
    """Return the resource that each need would ask for of these ways together."""
    classes = {known.resource: known for way in ways for known in way.classes}
    sizes = sorted(classes.values(), key=lambda known: (known.memory_mib, known.cores))
    choices = [smallest(sizes, need) for need in needs]
    return [choice.device.resource if choice else None for choice in choices]


def gpus_for(most: Mapping[str, int], classes: Iterable[DeviceClass]) -> float:
    """Return how many GPUs of one way have these devices, infinite if it lacks some."""
    per_gpu = {known.resource: known.per_gpu[0] for known in classes}
    return max(
        (
            -(-number // per_gpu[resource]) if resource in per_gpu else inf
            for resource, number in most.items()
        ),
        default=0,
    )


def _mix(
    given: Sequence[Mapping[str, int]], most: Mapping[str, int], gpus: int, nodes: int
) -> tuple[int, ...]:
    """Return how each GPU of a node is used, by number of its way, for the fewest nodes.

    Empty if more than so many nodes would be needed.
    """
    per_gpu = {resource: max(way.get(resource, 0) for way in given) for resource in most}
    least = max((-(-number // (per_gpu[name] * gpus)) for name, number in most.items()), default=0)
    for count in range(max(least, 1), nodes + 1):
        wanted = tuple(
            sorted((resource, -(-number // count)) for resource, number in most.items() if number)
        )
        for size in range(1, gpus + 1):
            cover = _cover(given, wanted, size, set())
            if cover is not None:
                # GPUs beyond are as the last of them.
                return tuple(sorted(cover)) + (max(cover),) * (gpus - size)
    return ()


def _cover(
    given: Sequence[Mapping[str, int]],
    wanted: tuple[tuple[str, int], ...],
    gpus: int,
    failed: set[tuple[tuple[tuple[str, int], ...], int]],
) -> tuple[int, ...] | None:
    """Return ways for so many GPUs that have all that is wanted, None if there are none."""
    if not wanted:
        return (0,) * gpus
    if (wanted, gpus) in failed:
        return None
    # What fewest ways give is decided first.
    scarce, _ = min(wanted, key=lambda entry: sum(entry[0] in way for way in given))
    if all(count <= gpus * max(way.get(name, 0) for way in given) for name, count in wanted):
        for way in sorted(range(len(given)), key=lambda way: -given[way].get(scarce, 0)):
            if scarce not in given[way]:
                break
            left = ((name, count - given[way].get(name, 0)) for name, count in wanted)
            rest = tuple((name, count) for name, count in left if count > 0)
            cover = _cover(given, rest, gpus - 1, failed)
            if cover is not None:
                return (way, *cover)
    failed.add((wanted, gpus))
    return None


def _mixed(pool: PoolToAdvise, ways: Sequence[Candidate], mix: Sequence[int]) -> Candidate | None:
    if len(set(mix)) == 1:
        return _alike(pool, ways[mix[0]])
    rules, words, first = [], [], 0
    for number, gpus in groupby(mix):
        count = len(list(gpus))
        way = ways[number]
        rules.append({"devices": list(range(first, first + count)), **way.profile})
        on = f"{way.words} on {count} GPU{'' if count == 1 else 's'}"
        words.append(on if way.profile else f"{count} whole")
        first += count
    # The last rule takes what is left, and GPUs without a rule are whole.
    del rules[-1]["devices"]
    if not rules[-1]:
        rules.pop()
    return pool.candidate(" and ".join(words), rules)


def _alike(pool: PoolToAdvise, way: Candidate) -> Candidate | None:
    """Return one way for all GPUs, under the name that the pods ask for where that is possible."""
    profile = dict(way.profile)
    kept = pool.candidate(way.words, _kept(profile)) if pool.kept_name == gpu_resource() else None
    return kept or pool.candidate(way.words, profile)


def _kept(profile: dict[str, Any]) -> dict[str, Any]:
    """Return a profile whose devices are called as whole GPUs are."""
    if "timeSlicing" in profile:
        return {"timeSlicing": {**profile["timeSlicing"], "renameByDefault": False}}
    if len(profile.get("mig", ())) == 1:
        return {"mig": {"layout": profile["mig"], "strategy": "single"}}
    return profile
