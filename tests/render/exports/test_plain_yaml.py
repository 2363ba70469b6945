"""YAML of objects: what Go's readers would take for more than text is in quotes."""

from __future__ import annotations

import pytest

from divvy.render.exports.plain_yaml import plain_yaml


@pytest.mark.parametrize(
    "text", ["5e12", "0o7", "1e3", "+.5e3", "yes", "y", "N", "1:30", "~", "2026-11-22"]
)
def test_quotes_text_that_looks_like_more(text: str) -> None:
    assert plain_yaml({"select": text}) == f"select: '{text}'\n"


@pytest.mark.parametrize("text", ["gpu-a100", "v1", "1.5.0", "nvidia.com/gpu", "3Gi", "1e", "yy"])
def test_leaves_plain_text_unquoted(text: str) -> None:
    assert plain_yaml({"select": text}) == f"select: {text}\n"
