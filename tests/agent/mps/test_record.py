"""What is left to undo, over restarts and accidents of its file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from divvy.agent.mps.processes import Process, start_time
from divvy.agent.mps.record import MpsRecord, Recorded


def test_keeps_a_record_beyond_its_process(tmp_path: Path) -> None:
    record = MpsRecord(tmp_path)
    record.note("GPU-0", Recorded(0))
    record.set_process("GPU-0", Process(4_194_304, 77), "580.95.05")
    record.note("GPU-1", Recorded(3))
    limits = (("default", 40960, 100), ("share_0", 10240, 25))
    record.set_limits("GPU-0", limits)
    assert MpsRecord(tmp_path).gpus == {
        "GPU-0": Recorded(0, 4_194_304, 77, "580.95.05", limits),
        "GPU-1": Recorded(3),
    }
    record.clear("GPU-0")
    assert MpsRecord(tmp_path).gpus == {"GPU-1": Recorded(3)}


@pytest.mark.parametrize(
    "text",
    [
        *("", "[", "{}", "[" * 9999),
        '{"gpus": {"GPU-0": {"mode": "x"}}}',
        '{"gpus": {"GPU-0": {"mode": 0, "driver": 550}}}',
        '{"gpus": {"GPU-0": {"mode": 0, "limits": [["share_0", "10G", 25]]}}}',
        '{"gpus": {"GPU-0": {"mode": 0, "limits": [["share_0"]]}}}',
        '{"gpus": {"GPU-0": {"mode": 0, "limits": 7}}}',
    ],
)
def test_treats_a_damaged_record_as_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "mps.json").write_text(text)
    assert MpsRecord(tmp_path).gpus == {}


def test_treats_a_pipe_as_no_record(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "mps.json")
    record = MpsRecord(tmp_path)
    assert record.gpus == {}
    record.note("GPU-0", Recorded(0))
    assert MpsRecord(tmp_path).gpus == {"GPU-0": Recorded(0)}


def test_reads_a_newer_record(tmp_path: Path) -> None:
    (tmp_path / "mps.json").write_text('{"gpus": {"GPU-0": {"mode": 0, "more": 1}}, "version": 2}')
    assert MpsRecord(tmp_path).gpus == {"GPU-0": Recorded(0)}


def test_keeps_the_record_on_a_full_disk(tmp_path: Path) -> None:
    record = MpsRecord(tmp_path / "folder")
    record.note("GPU-0", Recorded(0))
    (tmp_path / "folder/.mps.json.new").mkdir()
    with pytest.raises(OSError, match="mps"):
        record.note("GPU-1", Recorded(0))
    assert record.gpus == MpsRecord(tmp_path / "folder").gpus == {"GPU-0": Recorded(0)}


def test_completes_the_record_from_the_node(tmp_path: Path) -> None:
    here = Process(os.getpid(), start_time(os.getpid()))
    record = MpsRecord(tmp_path)
    record.note("GPU-0", Recorded(2, here.pid, here.started))
    limits = (("share_0", 10240, 25),)
    record.note("GPU-1", Recorded(2, here.pid, 1, "580.95.05", limits))
    other = Process(7, 7)
    record.add_leftovers({"GPU-0": other, "GPU-1": other, "GPU-2": other}, ["GPU-2", "GPU-3"])
    assert record.gpus == {
        "GPU-0": Recorded(2, here.pid, here.started),
        "GPU-1": Recorded(2, 7, 7, "", limits),
        "GPU-2": Recorded(0, 7, 7),
        "GPU-3": Recorded(0),
    }
    assert MpsRecord(tmp_path).gpus == record.gpus
    record.set_process("GPU-0", None)
    assert MpsRecord(tmp_path).gpus == {**record.gpus, "GPU-0": Recorded(2)}


def test_counts_leftovers_on_a_full_disk(tmp_path: Path) -> None:
    (tmp_path / ".mps.json.new").mkdir()
    record = MpsRecord(tmp_path)
    record.add_leftovers({}, ["GPU-0"])
    assert record.gpus == {"GPU-0": Recorded(0)}
