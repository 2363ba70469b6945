"""The generated pages of docs/ are what the code says today."""

import pytest

from docs.generate import FOLDER, PAGES


@pytest.mark.parametrize("name", sorted(PAGES))
def test_page_is_current(name):
    text = (FOLDER / name).read_text(encoding="utf-8")
    assert text == PAGES[name](), f"docs/{name} is old; write it with: python -m docs.generate"
