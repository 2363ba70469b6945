"""The text form of a share: one file of vectors for the agent's side and for the limiter's."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from divvy.model.sharing import DeviceShare, Sharing, limits_text, parse_limits
from lab.cluster.paths import REPOSITORY
from lab.target import CC, RUN

HERE = Path(__file__).parent
SOURCE = REPOSITORY / "plugin_image/limiter/share"
UUIDS = {
    "A": "GPU-00000000-1111-2222-3333-444444444444",
    "B": "MIG-00000000-1111-2222-3333-555555555555",
}
VECTORS: dict[str, list[Any]] = yaml.safe_load((HERE / "share_vectors.yaml").read_text())


def text_of(vector: Any) -> str:
    text = vector["text"] if isinstance(vector, dict) else vector
    return str(text).format(**UUIDS)


def devices_of(vector: Any) -> tuple[DeviceShare, ...]:
    return tuple(
        DeviceShare(
            uuid.format(**UUIDS),
            Sharing(
                memory_mib=mib,
                action="prevent",
                compute=compute,
                weight=weight,
                oversubscribed=oversubscribed,
            ),
            page,
        )
        for uuid, mib, compute, weight, page, oversubscribed in vector["devices"]
    )


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("reader") / "read_share"
    sources = [HERE / "read_share.c", SOURCE / "share.c"]
    subprocess.run([CC, "-Wall", "-Werror", f"-I{SOURCE}", "-o", program, *sources], check=True)
    return program


def lines_of(reader: Path, path: Path) -> list[str]:
    done = subprocess.run([*RUN, reader, path], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


@pytest.mark.parametrize("vector", VECTORS["sound"], ids=str)
def test_writes_and_reads_a_sound_share(vector: Any, reader: Path, tmp_path: Path) -> None:
    text, devices = text_of(vector), devices_of(vector)
    assert limits_text(devices) == text
    assert parse_limits(text) == devices
    (tmp_path / "limits").write_text(text)
    assert lines_of(reader, tmp_path / "limits") == [
        str(len(devices)),
        *(
            f"{device.uuid} {device.memory_mib << 20} {device.sharing.compute or 'free'} "
            f"{device.sharing.weight} {device.page} "
            f"{'yes' if device.sharing.oversubscribed else 'no'}"
            for device in devices
        ),
    ]


@pytest.mark.parametrize("vector", VECTORS["unsound"], ids=str)
def test_refuses_an_unsound_share(vector: Any, reader: Path, tmp_path: Path) -> None:
    text = text_of(vector)
    with pytest.raises(ValueError, match=r"^(has a line that|is not a file of limits)"):
        parse_limits(text)
    (tmp_path / "limits").write_text(text)
    assert lines_of(reader, tmp_path / "limits") == ["refused"]


@pytest.mark.parametrize("vector", VECTORS["newer"], ids=str)
def test_reads_a_share_of_a_newer_release(vector: Any, reader: Path, tmp_path: Path) -> None:
    text = text_of(vector)
    assert parse_limits(text) == devices_of(vector)
    (tmp_path / "limits").write_text(text)
    assert lines_of(reader, tmp_path / "limits") == ["refused"]
