"""What has to come of requests beyond a share."""

import pytest

from conformance.cluster.pods import Outcome
from conformance.load.share_limit import judge_requests, request_script
from conformance.observe.probes import visible_memory

SOUND = """\
allocated 2944 MiB of 3300 MiB asked for; device: 3000 MiB total, 56 MiB free; out of memory
code alone 12
code first 0
code second 12
code beside 12
code after 0
"""


def test_passes_a_share_that_keeps_its_limit() -> None:
    expected, actual = judge_requests([3000], SOUND)
    assert expected == actual


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("code alone 12", "code alone 0", "beyond the limit: not refused"),
        ("allocated 2944", "allocated 3001", "the most granted: beyond it"),
        ("3000 MiB total", "2640 MiB total", "the size shown: [2640]"),
        ("code second 12", "code second 0", "two at once: exit codes [0, 0]"),
        ("code first 0", "code first 12", "two at once: exit codes [12, 12]"),
        ("code beside 12", "code beside 0", "beside an orphan: not refused"),
        ("code after 0", "code after 12", "after its end: not granted"),
        ("code after 0\n", "", "after its end: not granted"),
    ],
)
def test_fails_on_each_wrong_answer_to_a_request(old: str, new: str, says: str) -> None:
    expected, actual = judge_requests([3000], SOUND.replace(old, new))
    assert expected != actual
    assert says in actual


def test_starts_only_one_process_in_a_small_share() -> None:
    assert "second" not in request_script(1000)
    alone = (
        SOUND.partition("code first")[0]
        .replace("2944", "960")
        .replace("3000 MiB total", "1000 MiB total")
    )
    expected, actual = judge_requests([1000], alone)
    assert (
        expected
        == actual
        == ("beyond the limit: refused, the size shown: the limit, the most granted: within it")
    )
    nothing = judge_requests([1000], alone.replace("allocated 960", "allocated 0"))[1]
    assert nothing.endswith("the most granted: nothing")


def test_reads_every_programs_memory_in_mib() -> None:
    log = (
        "@@ look\ncuda ID 0: T4, 3145MB (UUID: GPU-a)\n@@ 0\n"
        "@@ memory\nallocated 1 MiB of 1 MiB; device: 3000 MiB total, 9 MiB free; OK\n@@ 0\n"
        "@@ nvidia-smi\n| N/A 45C  P8  9W / 70W |  300MiB / 2999MiB | 0% |\n@@ 0\n"
    )
    memory = visible_memory(Outcome("Succeeded", 0, log, ""), is_mig=False)
    assert memory == {"cuDeviceTotalMem": 2999, "cuMemGetInfo": 3000, "nvidia-smi": 2999}
    of_mig = log.replace("| 0% |", "| 0% |\n| MIG devices:\n| 0 1 0 0 | 1MiB / 2400MiB |")
    memory = visible_memory(Outcome("Succeeded", 0, of_mig, ""), is_mig=True)
    assert memory["nvidia-smi"] == 2400
    assert visible_memory(Outcome("Failed", 1, "", ""), is_mig=False)["nvidia-smi"] is None
