"""Root file systems of images: what a container of them would see."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path


def unpack(layout: Path, folder: Path) -> Path:
    """Unpack the one image of an OCI layout into a folder and return it."""

    def blob(digest: str) -> Path:
        return layout / "blobs" / digest.replace(":", "/")

    (image,) = json.loads((layout / "index.json").read_text())["manifests"]
    for layer in json.loads(blob(image["digest"]).read_text())["layers"]:
        with tarfile.open(blob(layer["digest"])) as archive:
            archive.extractall(folder, filter="tar")
    return folder
