"""Files of a host: links stay inside its root, and no edit is lost."""

from __future__ import annotations

import os
import stat
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from divvy.agent.host_path import HostFailed, resolve
from divvy.agent.node_runtime import host_files
from divvy.agent.node_runtime.host_files import Attributes, EditConflict, HostFile, HostFiles


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "outside").write_text("outside")
    root = tmp_path / "root"
    (root / "etc").mkdir(parents=True)
    (root / "etc/file").write_text("inside")
    (root / "outside").write_text("the root's own")
    return root


@pytest.mark.parametrize(
    ("target", "leads_to"),
    [
        ("/etc/file", "/etc/file"),
        ("file", "/etc/file"),
        ("../etc/./file", "/etc/file"),
        ("../../../../../outside", "/outside"),
        ("/../outside", "/outside"),
    ],
)
def test_follows_a_link_inside_the_root(root: Path, target: str, leads_to: str) -> None:
    (root / "etc/link").symlink_to(target)
    with resolve(root, "/etc/link") as place:
        assert place.path == leads_to
    file = HostFiles(root).read("/etc/link")
    assert file is not None
    assert file.content == (root / leads_to[1:]).read_bytes() != b"outside"


def test_follows_a_linked_folder_inside_the_root(root: Path) -> None:
    (root / "conf").symlink_to("/etc")
    file = HostFiles(root).read("/conf/file")
    HostFiles(root).replace("/conf/file", file, b"new", Attributes())
    assert (root / "etc/file").read_text() == "new"


def test_refuses_a_circle_of_links(root: Path) -> None:
    (root / "a").symlink_to("b")
    (root / "b").symlink_to("a")
    with pytest.raises(HostFailed, match="symlink loop"):
        HostFiles(root).read("/a")


def test_leaves_no_descriptor_open(root: Path) -> None:
    (root / "etc/link").symlink_to("/etc/file")
    (root / "etc/none").symlink_to("/nowhere/at/all")
    before = len(list(Path("/proc/self/fd").iterdir()))
    files = HostFiles(root)
    for path in ("/etc/link", "/etc/none", "/etc/file/x", "/x/y"):
        try:
            files.replace(path, files.read(path), b"x", Attributes())
        except HostFailed:
            continue
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.mark.parametrize("path", ["/etc", "/etc/file/below", "/etc/fifo"])
def test_refuses_what_is_not_a_file(root: Path, path: str) -> None:
    os.mkfifo(root / "etc/fifo")
    with pytest.raises(HostFailed):
        HostFiles(root).read(path)


def test_reads_and_writes_owner_mode_and_attributes(root: Path) -> None:
    files = HostFiles(root)
    old = files.read("/etc/file")
    owner, group = (1234, 4321) if os.geteuid() == 0 else (os.getuid(), os.getgid())
    wanted = Attributes(owner, group, 0o640, (("user.note", b"hello"),))
    new = files.replace("/etc/file", old, b"new", wanted)
    assert files.read("/etc/file") == new == HostFile(b"new", wanted)
    status = (root / "etc/file").stat()
    assert (status.st_uid, status.st_gid, status.st_mode & 0o7777) == (owner, group, 0o640)


@pytest.mark.parametrize("how", ["content", "mode", "replaced", "removed"])
def test_keeps_a_concurrent_edit_and_reports_the_conflict(root: Path, how: str) -> None:
    files, place = HostFiles(root), root / "etc/file"
    before = files.read("/etc/file")
    assert before is not None
    match how:
        case "content":
            place.write_text("edited")
        case "mode":
            place.chmod(0o600)
        case "replaced":
            (root / "etc/other").write_text("edited")
            (root / "etc/other").rename(place)
        case "removed":
            place.unlink()
    edited = files.read("/etc/file")
    with pytest.raises(EditConflict):
        files.replace("/etc/file", before, b"ours", Attributes())
    with pytest.raises(EditConflict):
        files.remove("/etc/file", before)
    assert files.read("/etc/file") == edited
    assert len(list((root / "etc").iterdir())) == (0 if how == "removed" else 1)


def _replace(files: HostFiles, path: str, before: HostFile) -> None:
    files.replace(path, before, b"ours", Attributes())


@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", ["pipe", "link", "folder", "endless"])
@pytest.mark.parametrize("does", ["replaces", "removes"])
def test_leaves_what_is_no_file_any_more(
    root: Path, monkeypatch: pytest.MonkeyPatch, kind: str, does: str
) -> None:
    """It takes the file's place at the last moment: a pipe was read for ever, a link lost."""
    files, place = HostFiles(root), root / "etc/file"
    before = files.read("/etc/file")
    assert before is not None
    rename = host_files._rename
    act = files.remove if does == "removes" else partial(_replace, files)

    def put_another(*arguments: Any) -> None:
        monkeypatch.setattr(host_files, "_rename", rename)
        place.unlink()
        match kind:
            case "pipe":
                os.mkfifo(place)
            case "link":
                place.symlink_to("other")
            case "folder":
                place.mkdir()
            case "endless":
                place.touch()
                os.truncate(place, 1 << 40)
        rename(*arguments)

    monkeypatch.setattr(host_files, "_rename", put_another)
    with pytest.raises(EditConflict, match="changed by someone else"):
        act("/etc/file", before)
    mode = place.lstat().st_mode
    assert (stat.S_ISFIFO(mode), stat.S_ISLNK(mode), stat.S_ISDIR(mode)) == (
        kind == "pipe",
        kind == "link",
        kind == "folder",
    )
    assert [path.name for path in (root / "etc").iterdir()] == ["file"]


def test_replaces_no_file_by_a_new_one(root: Path) -> None:
    with pytest.raises(EditConflict, match="created by someone else"):
        HostFiles(root).replace("/etc/file", None, b"ours", Attributes())
    assert (root / "etc/file").read_text() == "inside"


def test_reports_a_folder_that_is_a_file_as_a_host_failure(root: Path) -> None:
    files = HostFiles(root)
    with pytest.raises(HostFailed, match="/etc/file/x cannot be replaced: Not a directory"):
        files.replace("/etc/file/x", None, b"", Attributes())
    with pytest.raises(
        HostFailed, match="/etc/file/x cannot be removed: /etc/file is not a directory"
    ):
        files.remove("/etc/file/x", HostFile(b""))
    scratch = files.scratch("/etc/file/x", {})
    with pytest.raises(HostFailed, match="/etc/file/x cannot be made"), scratch:
        pass


def test_creates_folders_for_a_new_file(root: Path) -> None:
    files = HostFiles(root)
    new = files.replace("/etc/a/b/c", None, b"new", Attributes())
    assert (root / "etc/a/b/c").read_text() == "new"
    files.remove("/etc/a/b/c", new)
    assert not (root / "etc/a/b/c").exists()


def test_refuses_a_file_with_a_second_name(root: Path) -> None:
    files = HostFiles(root)
    (root / "etc/second").hardlink_to(root / "etc/file")
    with pytest.raises(HostFailed, match="hard link"):
        files.replace("/etc/file", files.read("/etc/file"), b"new", Attributes())
    assert (root / "etc/second").read_text() == (root / "etc/file").read_text() == "inside"


def test_creates_a_scratch_folder_for_root_only_and_removes_it(root: Path) -> None:
    (root / "run").mkdir()
    (root / "run/trial").mkdir(mode=0o777)
    (root / "run/trial/left").write_text("of a trial that was ended")
    with HostFiles(root).scratch("/run/trial", {"a": "text"}):
        assert (root / "run/trial").stat().st_mode & 0o777 == 0o700
        assert [path.name for path in (root / "run/trial").iterdir()] == ["a"]
    assert not (root / "run/trial").exists()
