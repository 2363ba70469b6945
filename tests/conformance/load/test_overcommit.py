"""What has to come of asking for more memory than a device has."""

from conformance.cluster.pods import Outcome
from conformance.load.overcommit import Overcommit, refuses_beyond

REFUSED = "allocated {} MiB of 5350 MiB asked for; device: 4864 MiB total, 9 MiB free; refused"


def overcommit(granted: int, code: int = 12, *neighbours: bool) -> Overcommit:
    greedy = Outcome("Failed", code, REFUSED.format(granted), "")
    return Overcommit(("mem-hog",), greedy, neighbours, 0)


def test_passes_a_device_that_gives_its_memory_and_no_more() -> None:
    assert refuses_beyond(4864, overcommit(4608, 12, True, True))[0]
    # A context takes most of a small share.
    assert refuses_beyond(694, overcommit(192))[0]


def test_fails_a_device_that_gives_more_or_disturbs_a_neighbour() -> None:
    assert not refuses_beyond(4864, overcommit(5350, 0))[0]
    holds, _, seen = refuses_beyond(4864, overcommit(4608, 12, True, False))
    assert not holds
    assert seen.endswith("1 of 2 neighbours compute on")


def test_fails_a_device_that_refuses_before_half_of_its_memory() -> None:
    holds, expected, seen = refuses_beyond(4864, overcommit(0))
    assert not holds
    assert "at least 1920 MiB of 4864 allocated" in expected
    assert "allocated 0 MiB" in seen
    assert not refuses_beyond(694, overcommit(0))[0]
