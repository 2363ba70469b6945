"""Exhaustive search over placements: on how few GPUs could pods have run with a profile.

It reads profiles as a stack file has them, and has NVIDIA's table of the A100-40GB typed by hand;
it shares no code with the advice.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from divvy.advise.trace import RecordedPod

MEMORY = 40_960
# MiB, compute slices of 7, memory slices of 8, where it may begin.
PROFILES = {
    "1g.5gb": (4864, 1, 1, range(7)),
    "1g.10gb": (9984, 1, 2, (0, 2, 4, 6)),
    "2g.10gb": (9984, 2, 2, (0, 2, 4)),
    "3g.20gb": (20096, 3, 4, (0, 4)),
    "4g.20gb": (20096, 4, 4, (0,)),
}


@dataclass(frozen=True)
class Wanted:
    """A pod: MiB and per cent of one GPU, from a time to another."""

    memory: int
    cores: int
    begin: float
    end: float


def wanted(pod: RecordedPod) -> Wanted:
    assert pod.peak_mib is not None
    assert pod.cores is not None
    assert pod.end is not None
    memory = int(-(-(pod.peak_mib * 1.2) // 64) * 64)
    return Wanted(min(memory, MEMORY), int(pod.cores), pod.begin, pod.end)


def rules_of(profile: Any, gpus: int) -> list[Mapping[str, Any]]:
    """Return the rule of each GPU of a node."""
    rules = profile if isinstance(profile, list) else [profile]
    return [
        next((rule for rule in rules if gpu in rule.get("devices", (gpu,))), {})
        for gpu in range(gpus)
    ]


def layout_of(rule: Mapping[str, Any]) -> Mapping[str, int]:
    return rule["mig"].get("layout", rule["mig"])


def sizes_of(rule: Mapping[str, Any]) -> Iterator[tuple[int, float, str]]:
    """Yield what a pod can ask for on a GPU: MiB, per cent, name."""
    if "mig" in rule:
        yield from (
            (PROFILES[name][0], PROFILES[name][1] / 7 * 100, name) for name in layout_of(rule)
        )
    elif "timeSlicing" in rule:
        replicas = rule["timeSlicing"]["replicas"]
        limited = "memoryLimit" in rule["timeSlicing"]
        yield (MEMORY // replicas if limited else MEMORY), 100 / replicas, "replica"
    elif "claims" in rule:
        yield MEMORY, 100, "whole"
        if "shares" in rule["claims"]:
            yield MEMORY - 1, 100, "share"
        for name in rule["claims"].get("mig", ()):
            yield PROFILES[name][0], PROFILES[name][1] / 7 * 100, name
    else:
        yield MEMORY, 100, "whole"


def asked(pod: Wanted, rules: Sequence[Mapping[str, Any]], *, slow: bool) -> str | None:
    """Return the smallest device that holds a pod; ``slow``: whatever its compute."""
    sizes = sorted({size for rule in rules for size in sizes_of(rule)})
    holding = [size for size in sizes if size[0] >= pod.memory]
    fast = [size for size in holding if size[1] >= pod.cores]
    if fast:
        return fast[0][2]
    return max(holding, key=lambda size: size[1])[2] if holding and slow else None


def is_safe(pods: Sequence[Wanted], rules: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether any pods that replicas without limits may put together have the memory."""
    for rule in rules:
        if "timeSlicing" not in rule or "memoryLimit" in rule["timeSlicing"]:
            continue
        replicas = rule["timeSlicing"]["replicas"]
        for pod in pods:
            beside = [other.memory for other in pods if other.begin <= pod.begin < other.end]
            if sum(sorted(beside)[-replicas:]) > MEMORY:
                return False
    return True


def fewest(
    profile: Any, gpus: int, nodes: int, pods: Sequence[Wanted], *, slow: bool
) -> int | None:
    """Return the fewest GPUs on which all pods run when they come, None if they cannot."""
    rules = rules_of(profile, gpus)
    names = [asked(pod, rules, slow=slow) for pod in pods]
    if None in names or not is_safe(pods, rules):
        return None
    order = sorted(range(len(pods)), key=lambda number: pods[number].begin)
    kinds = [number % gpus for number in range(gpus * nodes)]
    # What each GPU has: the pod, what it asked for, and where its instance begins.
    on: list[list[tuple[Wanted, str, int]]] = [[] for _ in kinds]
    best = [len(kinds) + 1]

    def search(at: int, used: int) -> None:
        if used >= best[0]:
            return
        if at == len(order):
            best[0] = used
            return
        pod, name = pods[order[at]], names[order[at]]
        assert name is not None
        empty: set[str] = set()
        for number, kind in enumerate(kinds):
            if not on[number]:
                # Empty GPUs with one rule are alike.
                if str(rules[kind]) in empty:
                    continue
                empty.add(str(rules[kind]))
            now = [entry for entry in on[number] if entry[0].end > pod.begin]
            for start in starts(rules[kind], now, pod, name):
                on[number].append((pod, name, start))
                search(at + 1, used + (len(on[number]) == 1))
                on[number].pop()

    search(0, 0)
    return best[0] if best[0] <= len(kinds) else None


def starts(
    rule: Mapping[str, Any], now: Sequence[tuple[Wanted, str, int]], pod: Wanted, name: str
) -> Iterator[int]:
    """Yield where on a GPU a device could be for a pod: once, or for each place of an instance."""
    if "mig" in rule:
        if sum(other == name for _, other, _ in now) < layout_of(rule).get(name, 0):
            yield 0
    elif "timeSlicing" in rule:
        if name == "replica" and len(now) < rule["timeSlicing"]["replicas"]:
            yield 0
    elif "shares" in rule.get("claims", {}):
        taken = [(MEMORY, 100) if held == "whole" else (p.memory, p.cores) for p, held, _ in now]
        taken.append((MEMORY, 100) if name == "whole" else (pod.memory, pod.cores))
        if (
            sum(memory for memory, _ in taken) <= MEMORY
            and sum(cores for _, cores in taken) <= 100
            and len(taken) <= rule["claims"]["shares"]["max"]
        ):
            yield 0
    elif name == "whole":
        if not now and "mig" not in rule:
            yield 0
    elif name in PROFILES and "claims" in rule:
        if any(held == "whole" for _, held, _ in now):
            return
        slices = {
            place for _, held, start in now for place in range(start, start + PROFILES[held][2])
        }
        compute = sum(PROFILES[held][1] for _, held, _ in now)
        for start in PROFILES[name][3]:
            own = set(range(start, start + PROFILES[name][2]))
            if not own & slices and compute + PROFILES[name][1] <= 7:
                yield start
