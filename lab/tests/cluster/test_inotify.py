"""A lab has inotify instances enough; where it has not, it says so."""

from pathlib import Path

import pytest

from lab.cluster.inotify import ensure_instances, shortage


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
def test_names_the_setting_behind_a_shortage(tmp_path: Path, instances: int, short: bool) -> None:
    problem = shortage(*machine(tmp_path, instances, 128))
    assert (problem is not None) is short
    if problem:
        assert f"{instances} of 128" in problem
        assert "fs.inotify.max_user_instances=1024" in problem


@pytest.mark.parametrize(("allowed", "after"), [(128, 1024), (1024, 1024), (8192, 8192)])
def test_raises_only_a_low_limit(tmp_path: Path, allowed: int, after: int) -> None:
    _, limit = machine(tmp_path, 0, allowed)
    message = ensure_instances(limit)
    assert int(limit.read_text()) == after
    changed = f"fs.inotify.max_user_instances raised from {allowed} to {after}"
    assert message == (changed if allowed < after else None)


def test_continues_when_a_limit_cannot_be_raised() -> None:
    # A number that the kernel does not accept.
    assert ensure_instances(Path("/proc/sys/kernel/cap_last_cap")) is None
