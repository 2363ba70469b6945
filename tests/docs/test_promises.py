"""Every promise of the docs has tests that exist; every block of the pages has its promises."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.blocks import blocks
from tests.functions_of_file import functions_of

ROOT = Path(__file__).resolve().parents[2]
PAGES: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("promises.yaml").read_text())


def listed(page: str) -> list[str]:
    """Return the tests that a page's promises name."""
    kept = [*PAGES[page]["promises"].values(), *PAGES[page]["elsewhere"].values()]
    return [
        test for promise in kept for test in ([promise] if isinstance(promise, str) else promise)
    ]


@pytest.mark.parametrize("page", PAGES)
def test_names_only_existing_tests(page: str) -> None:
    missing = []
    for test in listed(page):
        file, _, name = test.partition("::")
        if not (ROOT / "tests" / file).exists() or name not in functions_of(file):
            missing.append(test)
    assert not missing


@pytest.mark.parametrize("page", PAGES)
def test_lists_promises_for_every_block_and_no_others(page: str) -> None:
    promises, elsewhere = PAGES[page]["promises"], PAGES[page]["elsewhere"]
    texts = [block for block in blocks((ROOT / page).read_text()) if block.title not in elsewhere]
    without = [text.text for text in texts if not any(words in text.text for words in promises)]
    assert not without, "blocks that promises.yaml does not know"
    gone = [words for words in promises if not any(words in text.text for text in texts)]
    assert not gone, "promises that the page does not make"


@pytest.mark.parametrize("page", PAGES)
def test_names_only_sections_of_the_page(page: str) -> None:
    titles = {block.title for block in blocks((ROOT / page).read_text())}
    assert PAGES[page]["elsewhere"].keys() <= titles


def test_is_described_with_every_page_for_contributors() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    assert [page for page in PAGES if Path(page).stem not in text] == []


@pytest.mark.parametrize("page", PAGES)
def test_finds_one_block_by_its_words(page: str) -> None:
    texts = [block for block in blocks((ROOT / page).read_text())]
    texts = [text for text in texts if text.title not in PAGES[page]["elsewhere"]]
    several = {
        words: [text.text[:60] for text in texts if words in text.text]
        for words in PAGES[page]["promises"]
        if sum(words in text.text for text in texts) > 1
    }
    assert not several
