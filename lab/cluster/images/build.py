"""Turn a directory into an image of one layer with buildah."""

import hashlib
import inspect
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from lab.cluster.turns import put_whole, scratch_folder


class ImageBuildFailed(Exception):
    """One of the lab's own images could not be built."""


def fingerprint(fill: Callable[[Path], None]) -> str:
    """Return the digest of the code that decides what an image contains."""
    module = sys.modules[fill.__module__]
    sources = Path(inspect.getfile(module)).parent
    digest = hashlib.sha256(inspect.getsource(fill).encode())
    digest.update((sources / "pause.c").read_bytes())
    return digest.hexdigest()[:16]


def build_layout(
    layout: Path, fill: Callable[[Path], None], command: Sequence[str], platform: str = ""
) -> None:
    """Build an image and put it at layout as a whole; ``platform`` is empty for this machine's."""
    with scratch_folder(layout.parent, ".unfinished-") as work:
        root = work / "rootfs"
        root.mkdir()
        fill(root)
        (work / "Containerfile").write_text(
            f"FROM scratch\nCOPY rootfs /\nCMD {json.dumps(list(command))}\n"
        )
        storage = [f"--root={work / 'storage'}", f"--runroot={work / 'run'}"]
        options = ["--quiet", "--timestamp=0", "--tag=built"]
        options += [f"--platform={platform}"] if platform else []
        run(["buildah", *storage, "bud", *options, str(work)])
        run(["buildah", *storage, "push", "--quiet", "built", f"oci:{work / 'layout'}"])
        put_whole(work / "layout", layout)


def run(command: Sequence[str], environment: dict[str, str] | None = None) -> str:
    """Run a program of the build; raise with the end of its output if it fails."""
    done = subprocess.run(
        command,
        env={
            **os.environ,
            "STORAGE_DRIVER": "vfs",
            "BUILDAH_ISOLATION": "chroot",
            **(environment or {}),
        },
        check=False,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        words = (done.stderr or done.stdout).strip().splitlines()[-5:]
        raise ImageBuildFailed(f"{' '.join(command)} failed:\n" + "\n".join(words))
    return done.stdout
