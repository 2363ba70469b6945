"""The agent's image as an OCI archive whose bytes depend on its sources and its base alone."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

_SHA = "sha256:"


def image_archive(layout: Path) -> bytes:
    """Return an OCI image layout as the archive that skopeo and containerd read (``oci-archive``).

    Only what the image consists of: a layout may hold what earlier images left.
    """
    files = {"oci-layout": (layout / "oci-layout").read_bytes()}
    index = (layout / "index.json").read_bytes()
    files["index.json"] = index
    (manifest,) = json.loads(index)["manifests"]
    blobs = [manifest["digest"]]
    content = json.loads(_blob(layout, manifest["digest"]))
    blobs += [content["config"]["digest"], *(layer["digest"] for layer in content["layers"])]
    for digest in blobs:
        files[f"blobs/sha256/{digest.removeprefix(_SHA)}"] = _blob(layout, digest)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, data in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), 0o644
            tar.addfile(entry, io.BytesIO(data))
    return packed.getvalue()


def _blob(layout: Path, digest: str) -> bytes:
    return (layout / "blobs/sha256" / digest.removeprefix(_SHA)).read_bytes()
