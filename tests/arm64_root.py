"""A root file system of arm64 with Python, of the image that set-up builds for `make test-all`."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

from divvy.lab.images import BASE_ARM64


def unpack_arm64_root(folder: Path) -> Path:
    """Unpack the image's layers into a folder and return it."""
    BASE_ARM64.build()  # set-up has done so
    manifest = _blob(BASE_ARM64.digest())
    for layer in json.loads(manifest.read_text())["layers"]:
        with tarfile.open(_blob(layer["digest"])) as archive:
            archive.extractall(folder, filter="tar")
    return folder


def _blob(digest: str) -> Path:
    return BASE_ARM64.layout / "blobs" / digest.replace(":", "/")
