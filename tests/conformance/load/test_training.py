"""What has to come of trainings on shares."""

import pytest

from conformance.cluster.pods import Outcome
from conformance.load.training import judge_training, read_training, side_by_side
from conformance.promise import DevicePromise
from tests.conformance.promised_nodes import limited_share

SOUND = """\
   1 s   step    87   loss 0.142210   memory 1 of 3000 MiB
trained from 1000.0 to 1015.0
| N/A   37C    P0             21W /   70W |       1MiB /   3000MiB |     18%      Default |
loss 1.652950 -> 0.051367 in 1417 steps
the same again: equal
memory 1 of 3000 MiB
3064 MiB more: refused with CUDA's code 2, Allocation of 2.99 GB failed on CUDA. Used: 24 KB
one step more: loss 0.051311
losses: all finite
"""


@pytest.fixture
def promise() -> DevicePromise:
    return limited_share(3000)


def ended(log: str) -> Outcome:
    return Outcome("Succeeded", 0, log, "")


def test_passes_trainings_within_their_shares(promise: DevicePromise) -> None:
    expected, actual = judge_training(promise, [ended(SOUND), ended(SOUND)])
    assert expected == actual
    assert expected.startswith("2 trainings: learns")


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("-> 0.051367", "-> 0.2", "does not learn (phase Succeeded, exit code 0)"),
        ("-> 0.051367", "-> nan", "does not learn"),
        ("equal", "differs from step 3 on", "not the same again: it computes wrong"),
        (
            "\nmemory 1 of 3000",
            "\nmemory 1 of 15360",
            "CUDA shows 15360 MiB and nvidia-smi 3000 MiB",
        ),
        ("/   3000MiB", "/  15360MiB", "CUDA shows 3000 MiB and nvidia-smi 15360 MiB"),
        ("/   3000MiB", "", "CUDA shows 3000 MiB and nvidia-smi None MiB"),
        ("\nmemory 1 of 3000", "\nmemory 3001 of 3000", "uses more"),
        ("\nmemory 1 of 3000", "\nmemory 0 of 3000", "uses more, or nothing"),
        ("refused with CUDA's code 2, Allocation", "granted", "more not refused"),
        ("code 2,", "code 700,", "more not refused with it"),
        ("code 2,", "code 20,", "more not refused with it"),
        ("one step more: loss 0.051311", "", "does not train on"),
        ("one step more: loss 0.051311", "one step more: loss nan", "does not train on"),
        ("losses: all finite", "losses: not all finite", "does not learn"),
        (SOUND, "", "does not learn"),
    ],
)
def test_fails_on_each_wrong_word_of_a_training(
    promise: DevicePromise, old: str, new: str, says: str
) -> None:
    expected, actual = judge_training(promise, [ended(SOUND), ended(SOUND.replace(old, new))])
    assert expected != actual
    assert says in actual


def test_reads_the_row_of_the_mig_device() -> None:
    card = (
        "|       1MiB /  81559MiB |     18%\n| MIG devices:\n|   1MiB /  3000MiB |  2MiB / 65536MiB"
    )
    log = SOUND.replace("|       1MiB /   3000MiB |", card)
    assert read_training(ended(log)).smi_mib == 81559
    assert read_training(ended(log), is_mig=True).smi_mib == 3000


@pytest.mark.parametrize("code", [139, None])
def test_fails_a_training_that_crashes_or_hangs_after_its_last_line(
    promise: DevicePromise, code: int | None
) -> None:
    crashed = Outcome("Failed", code, SOUND, "")
    expected, actual = judge_training(promise, [ended(SOUND), crashed])
    assert expected != actual
    assert "does not learn" in actual


def test_distinguishes_sequential_trainings_from_concurrent_ones() -> None:
    later = SOUND.replace("from 1000.0 to 1015.0", "from 1010.0 to 1030.0")
    last = SOUND.replace("from 1000.0 to 1015.0", "from 1016.0 to 1030.0")
    assert side_by_side([ended(SOUND), ended(later)])
    assert not side_by_side([ended(SOUND), ended(last)])
    assert read_training(ended("")).used is None
