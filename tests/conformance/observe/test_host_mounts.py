"""What of its host a container sees."""

import os
import subprocess
from pathlib import Path

import pytest

from conformance.observe.host_mounts import SCRIPT, host_mounts


def test_a_mount_is_writable_by_its_flags_or_by_a_try() -> None:
    log = "mount ro refused /usr/bin/nvidia-smi\nmount rw refused /run/a b\nmount ro written /c\n"
    assert [(mount.place, mount.writable) for mount in host_mounts(log)] == [
        ("/usr/bin/nvidia-smi", False), ("/run/a b", True), ("/c", True),
    ]  # fmt: skip


def test_what_a_limited_share_writes_is_its_account_and_its_pages_alone() -> None:
    places = ("account", "7b6c245f061228b6-0", "limits", "GPU-1/7b6c245f061228b6-1", "account/x")
    log = "".join(f"mount rw written /usr/lib/divvy/share/{place}\n" for place in places)
    of_its_share = [mount.of_its_share for mount in host_mounts(log)]
    assert of_its_share == [True, True, False, False, False]


@pytest.mark.skipif(os.geteuid() != 0, reason="makes mounts")
def test_a_mount_is_found_and_tried(tmp_path: Path) -> None:
    for name in ("open", "closed"):
        (tmp_path / name).mkdir()
    mounts = (
        f"mount -t tmpfs none {tmp_path}/open; mount -t tmpfs -o ro none {tmp_path}/closed; "
        f"mount --bind /dev/null {tmp_path}/node"
    )
    (tmp_path / "node").touch()
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", f'{mounts}; exec sh -c "$0"', SCRIPT],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = {
        mount.place: (mount.read_only, mount.written)
        for mount in host_mounts(done.stdout)
        if mount.place.startswith(str(tmp_path))
    }
    assert found == {f"{tmp_path}/open": (False, True), f"{tmp_path}/closed": (True, False)}
