"""The advice against an exhaustive search over candidates and placements."""

from random import Random

import pytest

from divvy.advise import adviser
from divvy.advise.trace import RecordedPod
from tests.advise.optimum import fewest, wanted
from tests.advise.traces import HOUR, advised, cluster, pod, trace

ALL = ("memory", "compute", "faults")
# What keeps the guarantees of a whole GPU.
OWN = ("whole", "mig")


def drawn_pods(random: Random) -> list[RecordedPod]:
    """Return pods whose sizes and times are random; in a pool few sizes come again and again."""
    sizes = [
        (random.choice((500, 3000, 4000, 7000, 8000, 15_000, 30_000)), random.randint(1, 60))
        for _ in range(random.randint(1, 3))
    ]
    pods = []
    for number in range(random.randint(2, 7)):
        peak, cores = random.choice(sizes)
        begin = random.randrange(12) * HOUR
        end = begin + random.randint(1, 10) * HOUR
        pods.append(pod(f"p{number}", begin, end, peak_mib=peak, cores=cores, peak_cores=cores))
    return pods


def keeps_all(profile: object) -> bool:
    text = str(profile)
    return "timeSlicing" not in text and "shares" not in text


def is_optimal(seed: int, monkeypatch: pytest.MonkeyPatch) -> bool:
    random = Random(seed)
    pods, gpus = drawn_pods(random), random.randint(1, 3)
    allow = random.choice(((), ALL))
    listed: list[object] = []
    inner = adviser.candidates

    def spied(*given: object) -> object:
        result = inner(*given)  # type: ignore[arg-type]
        listed.extend(candidate.profile for candidate in result)
        return result

    monkeypatch.setattr(adviser, "candidates", spied)
    of = cluster(nodes=7, gpus=gpus)
    advice = advised(trace(*pods), of, allow=allow)
    monkeypatch.setattr(adviser, "candidates", inner)
    assert advice.today is not None
    assert not advice.today.refused
    assert len(pods) == advice.pods
    whole = fewest({}, gpus, 7, list(map(wanted, pods)), slow=False)
    assert advice.today.gpus == whole
    counts = [
        fewest(profile, gpus, 7, list(map(wanted, pods)), slow=bool(allow))
        for profile in listed
        if allow or keeps_all(profile)
    ]
    optimum = min((count for count in counts if count is not None), default=whole)
    chosen = advice.recommended or advice.today
    assert chosen.gpus >= optimum, "it needs more than the advice says"
    for option in advice.best:
        count = fewest(option.profile, gpus, 7, list(map(wanted, pods)), slow=True)
        assert count is not None, f"a pod is refused, and {option.words} does not name it"
        assert option.gpus >= count
    return chosen.gpus == optimum


@pytest.mark.parametrize("traces", [60, 600])
def test_needs_no_more_gpus_than_the_best_candidate(
    traces: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = [seed for seed in range(traces) if not is_optimal(seed, monkeypatch)]
    assert len(wrong) * 100 <= traces, wrong
