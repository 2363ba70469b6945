"""What has to come of one process of an MPS share."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from conformance.load.mps_share import ask, judge_memory, judge_sms
from conformance.skips import CheckSkipped
from divvy.model.sharing import Sharing

SOUND = """\
allocated 64 MiB of 64 MiB asked for; device: 15360 MiB total, 3456 MiB free, 10 SMs; OK
code 0
allocated 3520 MiB of 4224 MiB asked for; device: 15360 MiB total, 0 MiB free, 10 SMs; CUDA_ERROR
code 12
"""


def test_passes_a_process_that_mps_limits() -> None:
    expected, actual = judge_memory([3840], SOUND)
    assert expected == actual


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("code 0", "code 12", "little: not granted"),
        ("code 12", "code 0", "beyond the limit: not refused"),
        ("allocated 3520", "allocated 3841", "3841 MiB granted of 3840"),
        ("3456 MiB free", "15000 MiB free", "shown as free: 15000 MiB of 3840"),
        ("code 12\n", "", "1 of 2 exit codes"),
        ("allocated 64 MiB of", "no CUDA driver", "1 of 2 answers"),
    ],
)
def test_fails_on_each_wrong_answer_to_a_request(old: str, new: str, says: str) -> None:
    expected, actual = judge_memory([3840], SOUND.replace(old, new))
    assert expected != actual
    assert says in actual


def test_fails_a_limit_of_another_share() -> None:
    log = SOUND.replace("allocated 3520", "allocated 1000").replace("3456 MiB free", "936 MiB free")
    expected, actual = judge_memory([3840], log)
    assert expected != actual
    assert actual == "no more than 1000 MiB of 3840 granted or shown as free"


def test_judges_no_share_of_all_sms() -> None:
    """A process that is no client of MPS has them, too."""
    with pytest.raises(CheckSkipped):
        judge_sms(promised(40, 100), SOUND)


def test_asks_for_nothing_on_a_share_too_small_for_a_context() -> None:
    small = SimpleNamespace(
        mps=Sharing(48, memory_mib=320, threads=2),
        device=SimpleNamespace(memory_mib=15360, placement=None),
        node=SimpleNamespace(
            name="n",
            labels={},
            plan=SimpleNamespace(gpus=(SimpleNamespace(model=SimpleNamespace(memory_mib=15360)),)),
        ),
    )
    pods: Any = None
    with pytest.raises(CheckSkipped, match="320 MiB has no room"):
        ask(pods, small)  # type: ignore[arg-type]


class Pods:
    """Pods that run nothing and keep what they were to run."""

    def __init__(self) -> None:
        self.scripts: list[str] = []

    def run(self, node: str, command: list[str], resource: str, seconds: float) -> None:
        self.scripts.append(command[-1])


@pytest.mark.parametrize(
    ("driver", "drops"), [("615.71.09", True), ("580.95.05", False), ("", False)]
)
def test_asks_without_the_containers_variables_if_a_share_is_a_namespace(
    driver: str, *, drops: bool
) -> None:
    promise = SimpleNamespace(
        resource="nvidia.com/gpu.shared",
        mps=Sharing(4, memory_mib=3840, threads=25),
        device=SimpleNamespace(memory_mib=15360, placement=None),
        node=SimpleNamespace(
            name="n",
            labels={"nvidia.com/cuda.driver-version.full": driver} if driver else {},
            plan=SimpleNamespace(gpus=(SimpleNamespace(model=SimpleNamespace(memory_mib=15360)),)),
        ),
    )
    pods: Any = Pods()
    ask(pods, promise)  # type: ignore[arg-type]
    little, beyond = pods.scripts[0].splitlines()
    assert little.startswith("mem-hog ")
    assert beyond.startswith("unset CUDA_MPS_PINNED_DEVICE_MEM_LIMIT ") is drops
    assert beyond.endswith("mem-hog --mib 4224 --chunk 64; echo code $?")


def promised(sms: int | None, threads: int | None) -> Any:
    mps = None if threads is None else Sharing(4, threads=threads)
    return SimpleNamespace(device=SimpleNamespace(sms=sms), mps=mps)


@pytest.mark.parametrize(
    ("sms", "threads", "holds"),
    [(40, 25, True), (44, 25, True), (40, 20, True), (40, 50, False)],
)
def test_compares_the_sms_with_the_part_of_a_share(sms: int, threads: int, *, holds: bool) -> None:
    expected, actual = judge_sms(promised(sms, threads), SOUND)
    assert (expected == actual) is holds, actual


def test_passes_no_process_that_shows_two_numbers_of_sms_or_none() -> None:
    two = SOUND.replace("10 SMs; OK", "40 SMs; OK")
    for text, sms in ((two, 40), ("no CUDA driver", 40), (SOUND, None)):
        expected, actual = judge_sms(promised(sms, 25), text)
        assert expected != actual
