"""What a registry says of an image, or does not."""

from __future__ import annotations

import json
import shutil
import socket
from time import monotonic
from typing import Any

import pytest

from divvy.image import build, published
from divvy.image.build import BuildFailed
from divvy.image.published import published_platforms

IMAGE = f"r.example/agent@sha256:{'0' * 64}"
AMD64 = {"os": "linux", "architecture": "amd64"}
STATEMENT = {"platform": {"os": "unknown", "architecture": "unknown"}}


def answer(patch: pytest.MonkeyPatch, manifest: str, config: str = "{}") -> None:
    patch.setattr(
        published, "inspect", lambda _, *options: config if "--config" in options else manifest
    )


def test_tells_the_platforms_of_an_index_and_of_an_image(monkeypatch: pytest.MonkeyPatch) -> None:
    variant = {"platform": {"os": "linux", "architecture": "arm64", "variant": "v8"}}
    listed = [{"platform": AMD64}, variant, STATEMENT]
    answer(monkeypatch, json.dumps({"manifests": listed}))
    assert published_platforms(IMAGE) == ("linux/amd64", "linux/arm64")
    answer(monkeypatch, json.dumps({"layers": []}), json.dumps(AMD64))
    assert published_platforms(IMAGE) == ("linux/amd64",)


@pytest.mark.parametrize(
    "listed",
    [[], [{}], [{"platform": AMD64}, {"platform": None}], [STATEMENT], 3, [3], [{"platform": "x"}]],
)
def test_takes_no_index_for_complete_that_leaves_platforms_out(
    monkeypatch: pytest.MonkeyPatch, listed: Any
) -> None:
    """What a node makes of such an image is the runtime's to find out, in the image itself."""
    answer(monkeypatch, json.dumps({"manifests": listed}))
    with pytest.raises(BuildFailed, match="does not say which platforms"):
        published_platforms(IMAGE)


@pytest.mark.parametrize(
    ("manifest", "config"),
    [
        ("not JSON", "{}"),
        ("[]", "{}"),
        ("{}", "<html>"),
        ("{}", "[]"),
        ("{}", "{}"),
        ("{}", json.dumps({"os": "linux", "architecture": ""})),
    ],
)
def test_takes_nothing_else_for_what_an_image_is_for(
    monkeypatch: pytest.MonkeyPatch, manifest: str, config: str
) -> None:
    answer(monkeypatch, manifest, config)
    with pytest.raises(BuildFailed, match="does not say which platforms"):
        published_platforms(IMAGE)


@pytest.mark.skipif(shutil.which("skopeo") is None, reason="skopeo is not installed")
def test_waits_no_longer_for_a_registry_that_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "ANSWER_SECONDS", 1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        began = monotonic()
        with pytest.raises(BuildFailed, match="skopeo inspect failed"):
            published_platforms(f"127.0.0.1:{silent.getsockname()[1]}/agent@sha256:{'0' * 64}")
        assert monotonic() - began < 10
