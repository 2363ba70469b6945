"""The lab's own images, built once and kept in the cache as OCI layouts."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lab.cluster.images.build import build_layout, fingerprint
from lab.cluster.images.contents import base, base_arm64, busybox, pause
from lab.cluster.paths import cache


@dataclass(frozen=True)
class Image:
    """One image: how its root file system is filled, and what a container of it runs.

    ``platform`` is empty if it is this machine's.
    """

    name: str
    tag: str
    fill: Callable[[Path], None]
    command: tuple[str, ...]
    platform: str = ""

    @property
    def layout(self) -> Path:
        """Return the OCI layout of the built image."""
        return cache() / "images" / f"{self.name}-{fingerprint(self.fill)}"

    def digest(self) -> str:
        """Return the digest of the built image's manifest."""
        index = json.loads((self.layout / "index.json").read_text())
        return str(index["manifests"][0]["digest"])

    def build(self) -> bool:
        """Build the image unless it is there; say whether there was anything to do."""
        if self.layout.is_dir():
            return False
        build_layout(self.layout, self.fill, self.command, self.platform)
        return True


IMAGES = {
    image.name: image
    for image in (
        Image("pause", "lab", pause, ("/pause",)),
        Image("busybox", "lab", busybox, ("sh",)),
        Image("base", "bookworm", base, ("bash",)),
    )
}
# What no lab runs, and only tests of `make test-all` build on.
BASE_ARM64 = Image("base-arm64", "bookworm", base_arm64, ("bash",), "linux/arm64")
