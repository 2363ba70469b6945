"""Nodes that cannot start for want of inotify instances are explained."""

from pathlib import Path

import pytest

from divvy.lab.inotify import shortage


def machine(folder: Path, instances: int, allowed: int) -> tuple[Path, Path]:
    proc = folder / "proc"
    for process in range(2):
        (proc / str(process) / "fd").mkdir(parents=True)
    for number in range(instances):
        (proc / str(number % 2) / "fd" / str(number)).symlink_to("anon_inode:inotify")
    (proc / "0/fd/other").symlink_to("/dev/null")
    limit = folder / "limit"
    limit.write_text(f"{allowed}\n")
    return proc, limit


@pytest.mark.parametrize(("instances", "short"), [(10, False), (118, True), (128, True)])
def test_a_shortage_names_the_setting(tmp_path: Path, instances: int, short: bool) -> None:
    found = shortage(*machine(tmp_path, instances, 128))
    assert (found is not None) is short
    if found:
        assert f"{instances} of 128" in found
        assert "fs.inotify.max_user_instances=1024" in found
