"""Places the instances of a MIG layout on a card, by complete search."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import count
from operator import le

from divvy.model.gpu_models import MigGeometry, MigProfile

MEDIA_EXTENSIONS = "me"


@dataclass(frozen=True, order=True)
class Placement:
    """One GPU instance: its first memory slice, how many it takes, its profile."""

    start: int
    size: int
    profile: str

    @property
    def slices(self) -> frozenset[int]:
        """Return the memory slices that the instance takes."""
        return frozenset(range(self.start, self.start + self.size))


class NoPlacement(Exception):
    """A layout that a card cannot hold; the text proves it."""

    def __init__(self, proof: str):
        super().__init__(proof)
        self.proof = proof


def place(
    geometry: MigGeometry, layout: Mapping[str, int], fixed: Sequence[Placement] = ()
) -> tuple[Placement, ...]:
    """Return a placement for every instance of a layout, in slice order.

    ``fixed`` are instances that exist and must stay; they count towards the
    layout and are part of the answer. The search is complete: NoPlacement means
    that there is none, and its text says why.
    """
    wanted = Counter({name: number for name, number in layout.items() if number})
    _check_profiles(geometry, wanted)
    used = Counter(placement.profile for placement in fixed)
    for name in used:
        if used[name] > wanted[name]:
            raise NoPlacement(
                f"{used[name]} × {name} exist and must stay, but the layout has {wanted[name]}"
            )
    occupied = frozenset().union(*(placement.slices for placement in fixed))
    starts = next(_search(_largest_first(geometry, wanted - used), occupied), None)
    if starts is None:
        raise NoPlacement(_proof(geometry, wanted - used, fixed))
    return tuple(sorted((*fixed, *starts)))


def holds(geometry: MigGeometry, layout: Mapping[str, int]) -> bool:
    """Return whether a card can hold a layout, without the proof that it cannot."""
    wanted = Counter({name: number for name, number in layout.items() if number})
    try:
        _check_profiles(geometry, wanted)
    except NoPlacement:
        return False
    return next(_search(_largest_first(geometry, wanted), frozenset()), None) is not None


def nearest_layouts(
    geometry: MigGeometry, layout: Mapping[str, int], most: int = 3
) -> tuple[Mapping[str, int], ...]:
    """Return the feasible layouts that differ from one by the fewest instances.

    None of them is a part of another one before it.
    """
    names = [profile.name for profile in geometry.profiles]

    def distance(candidate: tuple[int, ...]) -> tuple[int, int, tuple[int, ...]]:
        steps = [have - layout.get(name, 0) for name, have in zip(names, candidate, strict=True)]
        changed = sum(abs(step) for step in steps)
        added = sum(step for step in steps if step > 0)
        return changed, added, tuple(-have for have in reversed(candidate))

    chosen: list[tuple[int, ...]] = []
    for candidate in sorted((known for known in _feasible(geometry) if any(known)), key=distance):
        if len(chosen) == most:
            break
        # A part of a layout that is listed already adds nothing.
        if not any(all(map(le, candidate, better)) for better in chosen):
            chosen.append(candidate)
    return tuple(
        {name: have for name, have in reversed([*zip(names, candidate, strict=True)]) if have}
        for candidate in chosen
    )


def describe_layout(layout: Mapping[str, int]) -> str:
    """Return a layout as a stack file writes it: ``{3g.20gb: 1, 1g.5gb: 2}``."""
    return "{" + ", ".join(f"{name}: {number}" for name, number in layout.items()) + "}"


def _check_profiles(geometry: MigGeometry, wanted: Mapping[str, int]) -> None:
    for name, number in wanted.items():
        profile = geometry.profile(name)
        if profile is None:
            has = ", ".join(profile.name for profile in geometry.profiles)
            raise NoPlacement(f"this model has no MIG profile {name}; it has {has}")
        if number > profile.max_count:
            raise NoPlacement(
                f"{number} × {name}, but a card holds at most {profile.max_count} of them"
                + _why_at_most(profile)
            )
    media = [
        name
        for name in wanted
        if (known := geometry.profile(name)) and MEDIA_EXTENSIONS in known.attributes
    ]
    if len(media) > 1:
        raise NoPlacement(
            f"{' and '.join(media)} both need the media extensions, "
            "and only one instance of a card has them"
        )
    _check_engines(geometry, wanted)


def _check_engines(geometry: MigGeometry, wanted: Mapping[str, int]) -> None:
    """Refuse a layout whose instances take more media engines than a card has.

    Profiles of equal share never do; one that takes all of them leaves none to the others.
    """
    whole = geometry.whole
    if whole is None:
        return
    taking = {
        name: (number, profile.decoders)
        for name, number in wanted.items()
        if (profile := geometry.profile(name)) and profile.decoders
    }
    needed = sum(number * decoders for number, decoders in taking.values())
    if needed > whole.decoders:
        what = " and ".join(f"{number} × {name}" for name, (number, _) in taking.items())
        raise NoPlacement(
            f"{what} take {needed} media engines of a kind, and a card has {whole.decoders}"
        )


def _why_at_most(profile: MigProfile) -> str:
    if MEDIA_EXTENSIONS in profile.attributes:
        return ": only one instance of a card has the media extensions"
    spans = [_span(start, profile.memory_slices) for start in profile.starts]
    return f": it fits at memory slices {_either(spans)}"


def _largest_first(geometry: MigGeometry, wanted: Mapping[str, int]) -> tuple[MigProfile, ...]:
    """List one profile per instance, those with the fewest places first."""
    order = sorted(
        (profile for profile in geometry.profiles if wanted.get(profile.name)),
        key=lambda profile: (-profile.memory_slices, len(profile.starts), profile.name),
    )
    return tuple(profile for profile in order for _ in range(wanted[profile.name]))


def _search(
    instances: Sequence[MigProfile], occupied: frozenset[int], after: int = -1
) -> Iterator[tuple[Placement, ...]]:
    """Yield every placement of the instances; equal ones only in ascending order."""
    if not instances:
        yield ()
        return
    profile, rest = instances[0], instances[1:]
    for start in profile.starts:
        placement = Placement(start, profile.memory_slices, profile.name)
        if start <= after or placement.slices & occupied:
            continue
        bound = start if rest and rest[0] is profile else -1
        for others in _search(rest, occupied | placement.slices, bound):
            yield (placement, *others)


@cache
def _feasible(geometry: MigGeometry) -> tuple[tuple[int, ...], ...]:
    """List every layout that a card can hold, as counts in the order of the profiles."""
    feasible: list[tuple[int, ...]] = []
    names = [profile.name for profile in geometry.profiles]

    def grow(counts: tuple[int, ...]) -> None:
        if len(counts) == len(names):
            feasible.append(counts)
            return
        for number in count():
            longer = (*counts, number)
            if not holds(geometry, dict(zip(names, longer, strict=False))):
                return
            grow(longer)

    grow(())
    return tuple(feasible)


def _proof(geometry: MigGeometry, wanted: Mapping[str, int], fixed: Sequence[Placement]) -> str:
    """Name the instance that has no place left and what takes every place of it."""
    core = _smallest_core(geometry, wanted, fixed)
    candidates = []
    for profile in {known.name: known for known in core}.values():
        rest = list(core)
        rest.remove(profile)
        occupied = frozenset().union(*(placement.slices for placement in fixed))
        ways = list(_search(tuple(rest), occupied))
        candidates.append(
            (len(ways) != 1, -profile.memory_slices, profile.name, profile, ways, rest)
        )
    _, _, _, profile, ways, rest = min(candidates, key=lambda candidate: candidate[:3])
    spans = [_span(start, profile.memory_slices) for start in profile.starts]
    need = f"{profile.name} needs memory slices {_either(spans)}"
    if len(ways) == 1:
        others = sorted((*fixed, *ways[0]))
        takers = [
            f"{_span(other.start, other.size)} by {other.profile}"
            for other in others
            if any(
                other.slices & Placement(start, profile.memory_slices, "").slices
                for start in profile.starts
            )
        ]
        return f"{need}; {_all_of(spans)} taken: {', '.join(takers)}"
    others_text = _counted([*(placement.profile for placement in fixed), *(p.name for p in rest)])
    return f"{need}; wherever {others_text} are placed, {_none_of(spans)} left free"


def _smallest_core(
    geometry: MigGeometry, wanted: Mapping[str, int], fixed: Sequence[Placement]
) -> tuple[MigProfile, ...]:
    """Drop instances as long as what is left still has no place."""
    core = list(_largest_first(geometry, wanted))
    occupied = frozenset().union(*(placement.slices for placement in fixed))
    for profile in reversed(tuple(core)):
        smaller = list(core)
        smaller.remove(profile)
        if next(_search(tuple(smaller), occupied), None) is None:
            core = smaller
    return tuple(core)


def _span(start: int, size: int) -> str:
    return str(start) if size == 1 else f"{start}–{start + size - 1}"


def _either(spans: Sequence[str]) -> str:
    return spans[0] if len(spans) == 1 else f"{', '.join(spans[:-1])} or {spans[-1]}"


def _all_of(spans: Sequence[str]) -> str:
    return "it is" if len(spans) == 1 else "both are" if len(spans) == 2 else "all are"


def _none_of(spans: Sequence[str]) -> str:
    return "it is never" if len(spans) == 1 else "neither is" if len(spans) == 2 else "none is"


def _counted(names: Sequence[str]) -> str:
    counts = Counter(names)
    return " and ".join(f"{number} × {name}" for name, number in counts.items())
