"""Names and reasons around the registry, without one."""

from pathlib import Path

import pytest

from lab.cluster import registry
from lab.cluster.errors import RegistryFailed
from lab.cluster.section import parse_lab


@pytest.mark.parametrize(
    ("image", "name"),
    [
        ("thing", "thing"),
        ("thing:1", "thing:1"),
        ("localhost/thing:1", "thing:1"),
        ("example.org/a/thing", "a/thing"),
        ("host:5000/thing", "thing"),
        ("a/thing", "a/thing"),
    ],
)
def test_keeps_an_images_name_under_another_registry(
    image: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pushed: list[tuple[str, str]] = []

    def push(_lab: object, source: str, target: str) -> str:
        pushed.append((source, target))
        return "done"

    monkeypatch.setattr(registry, "push", push)
    lab = parse_lab({"nodes": [{"name": "n"}]})
    assert registry.load(lab, image) == "done"
    tagged = name if ":" in name else f"{name}:latest"
    assert pushed == [(f"containers-storage:{image}", tagged)]


def test_reports_only_the_reason_of_a_failed_push(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skopeo = tmp_path / "skopeo"
    log = 'time="now" level=info msg="trying"\ntime="now" level=fatal msg="no \\"such\\" image"'
    skopeo.write_text(f"#!/bin/sh\ncat >&2 <<'EOF'\n{log}\nEOF\nexit 1\n")
    skopeo.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    lab = parse_lab({"nodes": [{"name": "n"}]})
    with pytest.raises(RegistryFailed) as refused:
        registry.push(lab, "dir:/x", "thing:1")
    assert str(refused.value) == 'dir:/x cannot be pushed as thing:1: no "such" image'


def test_pushes_past_a_proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    skopeo = tmp_path / "skopeo"
    skopeo.write_text('#!/bin/sh\necho "msg=\\"$NO_PROXY\\"" >&2\nexit 1\n')
    skopeo.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("NO_PROXY", ".example")
    with pytest.raises(RegistryFailed, match=r"thing:1: \.example,10\.123\.0\.1$"):
        registry.push(parse_lab({"nodes": [{"name": "n"}]}), "dir:/x", "thing:1")
