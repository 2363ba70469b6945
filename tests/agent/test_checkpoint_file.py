"""The agent's checkpoint on the disk: what is damaged counts as not there."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from divvy.agent.checkpoint_file import CheckpointFile
from divvy.agent.gpu.checkpoint import Checkpoint
from divvy.model import DesiredGpu
from divvy.model.claims import Claims
from tests.agent.devices import gpu, instance

FULL = Checkpoint(
    config="{}",
    labels={"a": "b"},
    profile="p",
    last_seen={"GPU-0": "boot"},
    faults=(("GPU-0", None, "XID 79"), ("GPU-0", 3, "XID 94")),
    changing=("GPU-1",),
    applied={"GPU-0": DesiredGpu("GPU-0", 0, 0, None, (), Claims(mig=("1g.5gb",)))},
    gpus=(gpu(0, mig=True, instances=(replace(instance(1, 9, 0, 4), others=("MIG-other",)),)),),
)


def test_loads_a_saved_checkpoint(tmp_path: Path) -> None:
    CheckpointFile(tmp_path).save(FULL)
    assert CheckpointFile(tmp_path).saved == FULL


def test_keeps_the_old_checkpoint_when_saving_fails(tmp_path: Path) -> None:
    file = CheckpointFile(tmp_path)
    file.save(FULL)
    (tmp_path / ".state.json.new").mkdir()
    with pytest.raises(IsADirectoryError):
        file.save(Checkpoint())
    assert file.saved == CheckpointFile(tmp_path).saved == FULL


def test_saves_again_after_the_file_was_removed(tmp_path: Path) -> None:
    checkpoints = CheckpointFile(tmp_path)
    checkpoints.save(FULL)
    (tmp_path / "state.json").unlink()
    checkpoints.save(FULL)
    assert CheckpointFile(tmp_path).saved == FULL


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("config", 5),
        ("profile", {}),
        ("labels", ["a"]),
        ("faults", [["GPU-0", [1], "XID 79"]]),
        ("changing", 5),
        ("kubelet", [float("inf"), 1]),  # a digit of a long number has become an "e"
        ("version", 2),
    ],
)
def test_treats_another_form_as_empty(tmp_path: Path, key: str, value: Any) -> None:
    CheckpointFile(tmp_path).save(FULL)
    file = tmp_path / "state.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), key: value}))
    assert CheckpointFile(tmp_path).saved == Checkpoint()


def test_puts_a_pipe_in_the_place_of_the_checkpoint_aside(tmp_path: Path) -> None:
    """To read it would block the agent's start for good."""
    os.mkfifo(tmp_path / "state.json")
    file = CheckpointFile(tmp_path)
    assert file.saved == Checkpoint()
    file.save(FULL)
    assert "could not read" in file.problem
    assert CheckpointFile(tmp_path).saved == FULL
