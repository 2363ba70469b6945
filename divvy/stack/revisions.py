"""Stack files as git has them: the two sides of a comparison."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

from divvy.stack.errors import StackError
from divvy.stack.file import StackFile, read_path, stack_path
from divvy.stack.project import Project, is_stack_file, stack_name


def read_side(text: str, other: str | None) -> StackFile:
    """Read one side of a diff: a file, a stack, ``REV:path``, or ``REV`` of the other side."""
    if Path(text).is_file():
        return read_path(Path(text))
    revision, colon, path = text.partition(":")
    if colon and path:
        return _read_revision(revision, Path(path))
    try:
        return read_path(stack_path(text))
    except StackError as unknown:
        if not _is_revision(text):
            raise StackError(
                f"{text} is not a file, a stack, or a git revision: {unknown}{_why_unknown()}"
            ) from None
    if other is None or _is_only_revision(other):
        if other is not None and not _is_revision(other):
            read_path(stack_path(other))  # raises, and names the stacks
        raise StackError(
            f"{text} is a revision; write {text}:<path> to say which of its stack files you mean"
        )
    where = other.partition(":")[2] if ":" in other and not Path(other).is_file() else other
    return _read_revision(text, Path(where) if Path(where).suffix else stack_path(where))


def stacks_at(revision: str, project: Project) -> dict[str, Callable[[], StackFile]]:
    """Return what reads the stack files that a project has in a revision, by stack."""
    if not _is_revision(revision):
        raise StackError(f"{revision} is not a revision that git knows{_why_unknown()}")
    # A path below the folder that git runs in, which may be a folder of the repository.
    done = _git("ls-tree", "--name-only", "-z", revision, "./", folder=project.stack_folder)
    paths = [Path(name) for name in done.stdout.split("\0") if is_stack_file(Path(name))]
    return {
        stack_name(path): partial(_read_revision, revision, project.stack_folder / path.name)
        for path in paths
    }


def _is_only_revision(text: str) -> bool:
    if ":" in text or Path(text).is_file():
        return False
    try:
        stack_path(text)
    except StackError:
        return True
    return False


def _read_revision(revision: str, path: Path) -> StackFile:
    source = f"{revision}:{path}"
    # As git wants it, without `..`; the file itself may be a link of the revision's own.
    # Folders of today may be links, and have been none: first the path as it is named.
    named = [path] if not path.is_absolute() and ".." not in path.parts else []
    for place in (*named, path.parent.resolve() / path.name):
        at = f"{revision}:./{os.path.relpath(place)}"
        answer = _git("cat-file", "--batch-check", "--follow-symlinks", given=f"{at}\n").stdout
        if answer.removeprefix(at) != " missing\n":
            break
    match answer.removeprefix(at).splitlines():
        case [line] if line.split()[1:2] == ["blob"]:
            text = _git("cat-file", "blob", line.split()[0], source=source).stdout
            return StackFile(source, text, f"{stack_name(path)}@{revision}")
        case [line] if line.split()[1:2] == ["tree"]:
            raise StackError(f"{source} is a folder: name a file")
        case [_, target]:
            raise StackError(f"{source} is a link to {target}, which the revision does not have")
    reason = _git("show", "--end-of-options", at).stderr.strip().removeprefix("fatal: ")
    if _is_revision(revision):
        reason += f"; a new stack file has no older side: divvy plan --file {path} shows it"
    raise StackError(f"git has no {source}: {reason}{_why_unknown()}")


def _is_revision(text: str) -> bool:
    return _git("rev-parse", "--verify", "--quiet", f"{text}^{{commit}}").returncode == 0


def _why_unknown() -> str:
    """Return what keeps git from knowing a revision, "" if nothing does."""
    done = _git("rev-parse", "--is-shallow-repository")
    if done.returncode:
        return f"; git: {done.stderr.strip().removeprefix('fatal: ')}"
    if done.stdout.strip() == "true":
        return (
            "; this clone is shallow and may lack the revision: git fetch --unshallow, or in CI"
            " fetch the whole history (GitHub: fetch-depth: 0, GitLab: GIT_DEPTH: 0)"
        )
    if not _is_revision("HEAD"):
        return "; this repository has no commit yet: commit the stack file first"
    return ""


def _git(
    *arguments: str, folder: Path | None = None, given: str = "", source: str = "git's answer"
) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            ["git", *arguments],
            cwd=folder,
            env={**os.environ, "LC_ALL": "C"},  # its messages are taken apart
            input=given,
            capture_output=True,
            encoding="utf-8",
            check=False,
        )
    except FileNotFoundError:
        raise StackError(
            "git is not installed; give files or stacks instead of revisions"
        ) from None
    except UnicodeDecodeError:
        raise StackError(f"{source} is not text in UTF-8") from None
