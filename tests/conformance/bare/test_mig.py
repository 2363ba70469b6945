"""Layouts that checks make fit every model with MIG; what a killed run has left is put back."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from conformance.bare import mig
from conformance.bare.mig import mixed_layout
from divvy.agent.nvml.process import DriverProblem
from divvy.model import place
from divvy.model.gpu_models import GpuModel, gpu_models

WITH_MIG = [model for model in gpu_models().values() if model.mig and model.mig.profiles]


@pytest.mark.parametrize("model", WITH_MIG, ids=lambda model: model.name)
def test_chooses_a_mixed_layout_that_fits(model: GpuModel) -> None:
    assert model.mig is not None
    layout = mixed_layout(model.mig)
    assert place(model.mig, layout)
    assert sum(layout.values()) >= 2


def test_partitions_an_a100_as_its_users_do() -> None:
    geometry = gpu_models()["A100-SXM4-40GB"].mig
    assert geometry is not None
    assert mixed_layout(geometry) == {"3g.20gb": 1, "2g.10gb": 1, "1g.5gb": 2}


class DriverWithoutGpus:
    """A driver that sees no GPU."""

    snapshot = SimpleNamespace(gpus=(), cap_minors={})

    def __init__(self, *_: object) -> None:
        pass

    async def start(self) -> None: ...

    async def rescan(self) -> None: ...

    async def stop(self) -> None: ...


def test_names_a_gpu_that_is_gone_and_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mig, "Driver", DriverWithoutGpus)
    monkeypatch.setattr(mig, "make_cap_nodes", lambda *_: None)
    monkeypatch.setattr(mig, "_RELEASE_SECONDS", 0)
    monkeypatch.setattr(mig, "_RETRY_SECONDS", 0)
    mig._write(tmp_path, "GPU-1")
    journal = tmp_path / "mig-to-put-back.json"
    with pytest.raises(DriverProblem) as problem:
        mig.put_back(tmp_path, tmp_path)
    assert str(problem.value) == (
        "this machine lacks it now; gone for good? "
        "Remove /var/lib/divvy-verify/mig-to-put-back.json"
    )
    # It may come back.
    assert json.loads(journal.read_text()) == {"uuid": "GPU-1"}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"gpu": "GPU-1"}'])
def test_does_not_take_a_damaged_record_for_nothing_to_put_back(tmp_path: Path, text: str) -> None:
    assert mig.put_back(tmp_path, tmp_path) == ""
    (tmp_path / "mig-to-put-back.json").write_text(text)
    with pytest.raises(DriverProblem, match="which GPU it was is not known"):
        mig.put_back(tmp_path, tmp_path)


def test_has_on_the_disk_what_is_to_be_put_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[Any] = []
    sync = os.fsync

    def record(descriptor: int) -> None:
        written.append(Path(f"/proc/self/fd/{descriptor}").readlink())
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", record)
    mig._write(tmp_path / "new", "GPU-1")
    # The file, and the folder that has its name.
    assert len(written) == 2
    assert written[1] == tmp_path / "new"
