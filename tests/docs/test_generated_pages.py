"""Files that are generated from the code are what the code says today."""

import pytest

from docs.conformance_page import unseen
from docs.generate import PAGES, ROOT


@pytest.mark.parametrize("name", sorted(PAGES))
def test_generates_the_current_page(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    assert text == PAGES[name](), f"{name} is old; write it with: python -m docs.generate"


def test_documents_a_fault_for_every_check():
    assert unseen() == [], (
        "add a fault for it in tests/conformance/faults; if no lab of these faults shows it, name "
        "the test that does in docs/conformance_page.py, _ELSEWHERE"
    )
