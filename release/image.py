"""The agent's image as an OCI archive whose bytes depend on its sources and its base alone."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path

_SHA = "sha256:"


def image_archive(layout: Path) -> bytes:
    """Return an OCI image layout as the archive that skopeo and containerd read (``oci-archive``).

    Only what the image consists of: a layout may hold what earlier images left.
    """
    index = (layout / "index.json").read_bytes()
    files = {"oci-layout": (layout / "oci-layout").read_bytes(), "index.json": index}
    (named,) = json.loads(index)["manifests"]
    for digest in _blobs(layout, named["digest"]):
        files[f"blobs/sha256/{digest.removeprefix(_SHA)}"] = _blob(layout, digest)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, data in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), 0o644
            tar.addfile(entry, io.BytesIO(data))
    return packed.getvalue()


def _blobs(layout: Path, digest: str) -> Iterator[str]:
    """Yield a manifest and all that it consists of; an index consists of manifests."""
    yield digest
    content = json.loads(_blob(layout, digest))
    if "manifests" in content:
        for manifest in content["manifests"]:
            yield from _blobs(layout, manifest["digest"])
        return
    yield content["config"]["digest"]
    yield from (layer["digest"] for layer in content["layers"])


def _blob(layout: Path, digest: str) -> bytes:
    return (layout / "blobs/sha256" / digest.removeprefix(_SHA)).read_bytes()
