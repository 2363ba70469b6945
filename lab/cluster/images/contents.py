"""What is in the lab's own images."""

import shutil
import tempfile
from pathlib import Path

from lab.cluster.images.build import run
from lab.cluster.images.mirror import debian_mirror


def pause(root: Path) -> None:
    """Fill in the process that keeps a pod's namespaces."""
    source = Path(__file__).parent / "pause.c"
    run(["gcc", "-static", "-Os", "-s", "-o", str(root / "pause"), str(source)])


def busybox(root: Path) -> None:
    """Fill in one static shell with all its applets, for small pods in tests."""
    directory = root / "bin"
    directory.mkdir()
    shutil.copy("/usr/bin/busybox", directory / "busybox")
    for applet in run([str(directory / "busybox"), "--list"]).split():
        if applet != "busybox":
            (directory / applet).symlink_to("busybox")
    for name, mode in (("tmp", 0o1777), ("etc", 0o755), ("root", 0o700)):
        (root / name).mkdir()
        (root / name).chmod(mode)


def base(root: Path) -> None:
    """Fill in a small Debian with Python, the base of images that need a C library."""
    mirror = debian_mirror("bookworm")
    options = ["--variant=minbase", "--include=python3"]
    run(["debootstrap", *options, "bookworm", str(root), mirror.uri], mirror.environment)
    for name in ("usr/share/doc", "usr/share/man", "var/lib/apt/lists", "var/cache/apt"):
        shutil.rmtree(root / name)
        (root / name).mkdir()
    for package in (root / "var/cache/debconf").glob("*-old"):
        package.unlink()
    # It names the machine's own mirror, which does not belong in an image.
    (root / "etc/apt/sources.list").write_text("")


def base_arm64(root: Path) -> None:
    """Fill in the same packages for arm64: unpacked alone, as none of their programs runs here."""
    mirror = debian_mirror("bookworm")
    options = ["--download-only", "--arch=arm64", "--variant=minbase", "--include=python3"]
    with tempfile.TemporaryDirectory(prefix="divvy-debootstrap-") as scratch:
        run(["debootstrap", *options, "bookworm", scratch, mirror.uri], mirror.environment)
        for package in sorted(Path(scratch, "var/cache/apt/archives").glob("*.deb")):
            run(["dpkg-deb", "--extract", str(package), str(root)])
    for name in ("usr/share/doc", "usr/share/man"):
        shutil.rmtree(root / name)
