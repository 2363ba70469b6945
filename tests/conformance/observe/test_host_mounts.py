"""What of its host a container sees."""

import os
import subprocess
from pathlib import Path

import pytest

from conformance.observe.host_mounts import SCRIPT, host_mounts, of_mps, of_one_share


def test_finds_a_writable_mount_by_its_flags_or_a_try() -> None:
    log = (
        "mount ro refused /usr/bin/nvidia-smi /usr/bin/nvidia-smi\n"
        "mount rw refused /run/a /run/a b\nmount ro written /x/c /c\n"
    )
    assert [(mount.place, mount.writable) for mount in host_mounts(log)] == [
        ("/usr/bin/nvidia-smi", False), ("/run/a b", True), ("/c", True),
    ]  # fmt: skip


def test_accepts_writes_of_a_limited_share_to_its_account_and_pages_only() -> None:
    own, other = "7b6c245f061228b6", "0f6c245f061228b6"
    by_design = {
        f"shares/{own}/account": "account",
        f"pages/GPU-1/{own}-0": f"{own}-0",
    }
    others = {
        f"shares/{own}/limits": "limits",
        f"shares/{other}/account": "account",
        f"pages/GPU-1/{other}-0": f"{own}-0",
        f"pages/GPU-2/{other}-1": f"{other}-1",
        f"pages/GPU-2/{own}-1": f"GPU-2/{own}-1",
        f"shares/{own}/account/x": "account/x",
    }
    log = "".join(
        f"mount rw written /var/lib/divvy/{source} /usr/lib/divvy/share/{place}\n"
        for source, place in (*by_design.items(), *others.items())
    )
    assert [mount.source for mount in of_one_share(host_mounts(log))] == [
        f"/var/lib/divvy/{source}" for source in by_design
    ]
    without = "".join(line for line in log.splitlines(True) if "/limits" not in line)
    assert of_one_share(host_mounts(without)) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="makes mounts")
def test_finds_and_tries_a_mount(tmp_path: Path) -> None:
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
    results = {
        mount.place: (mount.read_only, mount.written)
        for mount in host_mounts(done.stdout)
        if mount.place.startswith(str(tmp_path))
    }
    assert results == {f"{tmp_path}/open": (False, True), f"{tmp_path}/closed": (True, False)}


@pytest.mark.skipif(os.geteuid() != 0, reason="makes mounts")
def test_finds_a_folder_of_the_host_in_place_of_shared_memory(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for mount, places in (
        (f"--bind {tmp_path}/folder", ["/dev/shm"]),
        ("-t tmpfs none", []),
    ):
        done = subprocess.run(
            ["unshare", "--mount", "sh", "-c", f'mount {mount} /dev/shm; exec sh -c "$0"', SCRIPT],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        shown = host_mounts(done.stdout)
        assert [mount.place for mount in shown if mount.place == "/dev/shm"] == places


def test_accepts_writes_of_a_client_of_mps_to_one_gpus_sockets_only() -> None:
    right = "mount rw written /var/lib/divvy/mps/GPU-1/pipe /usr/lib/divvy/mps\n"
    assert [mount.source for mount in of_mps(host_mounts(right))] == [
        "/var/lib/divvy/mps/GPU-1/pipe"
    ]
    for source in ("/", "/var/lib/kubelet", "/var/lib/divvy/mps", "/var/lib/divvy/mps/GPU-1"):
        assert of_mps(host_mounts(f"mount rw written {source} /usr/lib/divvy/mps\n")) == []
    assert of_mps(host_mounts(right + right.replace("GPU-1", "GPU-2"))) == []
    assert of_mps(host_mounts(right.replace(" /usr/lib/divvy/mps", " /mnt"))) == []
