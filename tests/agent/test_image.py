"""The agent's image: what it is known by."""

from __future__ import annotations

from pathlib import Path

import pytest

from divvy.image import build


def test_notices_an_edit_between_digest_and_build(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "_lay_out", lambda *_: None)
    monkeypatch.setattr(build, "push_contexts", lambda *_, **__: "pushed")
    now = build.input_digest("base")
    assert build.build_and_push("localhost:5000", "base", now) == "pushed"
    with pytest.raises(build.BuildFailed, match="changed during the build"):
        build.build_and_push("localhost:5000", "base", "taken before an edit")


def test_compiles_the_same_hook_everywhere(tmp_path: Path) -> None:
    (first, other) = (build.compile_hook(tmp_path / name) for name in ("one", "other"))
    assert first.read_bytes() == other.read_bytes()


def test_compiles_for_every_node_whatever_its_user_compiles_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = build.compile_hook(tmp_path / "usual").read_bytes()
    # `-march=native` is what people have there; a flag that no compiler has shows as well.
    for name in ("CFLAGS", "SANITIZE", "MORE", "MAKEFLAGS", "GNUMAKEFLAGS"):
        monkeypatch.setenv(name, "--no-such-option")
    monkeypatch.setenv("CC", "no-such-compiler")
    assert build.compile_hook(tmp_path / "other").read_bytes() == usual


def test_includes_the_hooks_sources_in_the_image() -> None:
    names = {path.name for path in build._inputs().values()}
    assert {"ldcache.c", "require.h", "Makefile", "Containerfile"} <= names
