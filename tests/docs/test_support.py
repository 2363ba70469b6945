"""The page of what is tested names every GPU model that Divvy knows."""

import re

import pytest

from divvy.model.gpu_models import gpu_models
from docs.generate import ROOT


@pytest.mark.parametrize("name", sorted(gpu_models()))
def test_names_every_gpu_model(name: str) -> None:
    page = (ROOT / "docs/support.md").read_text(encoding="utf-8")
    words = set(re.findall(r"[A-Z0-9][A-Za-z0-9]*", page))
    number = next(part for part in name.split("-") if re.search(r"\d", part))
    assert number in words, f"add {name} to a row of docs/support.md, GPUs"
