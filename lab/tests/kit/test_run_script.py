"""run.sh by itself, with a payload of a few bytes: on whatever machine the folder was copied to."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tarfile
import time
from pathlib import Path

import pytest

from lab.cluster.paths import REPOSITORY

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the kit needs root")
_PYTHON = '#!/bin/sh\n[ "$1" = -c ] || { echo "$0"; printf "%s\\n" "$@"; }\n'


@pytest.fixture
def kit(tmp_path: Path) -> Path:
    """Give a kit whose Python says how it was started."""
    folder = tmp_path / "a kit"
    folder.mkdir()
    shutil.copy(REPOSITORY / "lab/kit/run.sh", folder)
    python = tmp_path / "payload/kit/python/bin/python3"
    python.parent.mkdir(parents=True)
    python.write_text(_PYTHON)
    python.chmod(0o755)
    with tarfile.open(folder / "payload.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "payload/kit", "kit")
    return folder


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Give the folder for temporary files."""
    folder = tmp_path / "room for it"
    folder.mkdir()
    return folder


def run(
    kit: Path, place: Path | None, *options: str, path: str = "/usr/bin:/bin"
) -> tuple[int, str]:
    """Run the kit with dash, as Debian does; return its exit code and all that it says."""
    variables = {"PATH": path, **({"TMPDIR": str(place)} if place else {})}
    done = subprocess.run(
        ["/bin/dash", str(kit / "run.sh"), *options], env=variables,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=30, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout


def test_unpacks_where_it_is_told_spaces_or_not(kit: Path, place: Path) -> None:
    code, output = run(kit, place, "--out=a b")
    python, *arguments = output.splitlines()
    assert (code, arguments) == (0, ["-m", "lab.kit", "--out=a b"])
    assert Path(python).is_relative_to(place)


@pytest.mark.parametrize("content", [None, b"", b"\x1f\x8b\x08 cut short"])
def test_names_a_payload_that_was_not_copied_as_a_whole(
    content: bytes | None, kit: Path, place: Path
) -> None:
    payload = kit / "payload.tar.gz"
    payload.unlink()
    if content is not None:
        payload.write_bytes(content)
    assert run(kit, place) == (
        2, f"hardware kit: {payload} is missing or damaged: copy the whole folder again\n"
    )  # fmt: skip
    assert list(place.iterdir()) == []


def test_names_each_place_once_that_has_no_room(kit: Path, tmp_path: Path) -> None:
    full = tmp_path / "bin/df"
    full.parent.mkdir()
    full.write_text("#!/bin/sh\necho\necho none 1 1 1024 1% /\n")
    full.chmod(0o755)
    places = ["/tmp", "/var/tmp", "/run", "/dev/shm"]
    for own in (None, tmp_path):
        code, output = run(kit, own, path=f"{full.parent}:/usr/bin:/bin")
        assert code == 2
        tried = [f"{name} has 1 MiB" for name in ([str(own)] if own else []) + places]
        assert output.partition("set TMPDIR; ")[2] == "; ".join(tried) + "\n"


def test_needs_none_of_the_programs_that_it_does_not_name(
    kit: Path, tmp_path: Path, place: Path
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("sh", "id", "uname", "tar", "gzip", "df", "mktemp", "rm"):
        (programs / name).symlink_to(f"/bin/{name}")
    code, output = run(kit, place, path=str(programs))
    assert code == 0, output


def test_leaves_nothing_when_it_is_stopped_while_it_unpacks(
    kit: Path, tmp_path: Path, place: Path
) -> None:
    slow = tmp_path / "bin/tar"
    slow.parent.mkdir()
    slow.write_text("#!/bin/sh\nexec sleep 20\n")
    slow.chmod(0o755)
    variables = {"TMPDIR": str(place), "PATH": f"{slow.parent}:/usr/bin:/bin"}
    command = ["/bin/dash", str(kit / "run.sh")]
    with subprocess.Popen(command, env=variables, start_new_session=True) as running:
        deadline = time.monotonic() + 10
        while not list(place.glob("*/owner")) and time.monotonic() < deadline:
            time.sleep(0.02)
        time.sleep(0.2)
        os.killpg(running.pid, signal.SIGTERM)
        assert running.wait(10) == 143
    assert list(place.iterdir()) == []
