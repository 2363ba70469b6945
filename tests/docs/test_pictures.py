"""Pictures of pages show what the commands write today."""

from __future__ import annotations

import json
from pathlib import Path

from docs.photograph import DIGESTS, diff_page, digest


def test_shows_the_current_difference(tmp_path: Path) -> None:
    taken = json.loads(DIGESTS.read_text())["diff.png"]
    assert digest(diff_page(tmp_path)) == taken, "take it again: python -m docs.photograph"
