"""Files that are generated from the code are what the code says today."""

import re

import pytest

from divvy.verify_options import OPTIONS
from docs.conformance_page import unseen
from docs.generate import PAGES, ROOT


@pytest.mark.parametrize("name", sorted(PAGES))
def test_generates_the_current_page(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    assert text == PAGES[name](), f"{name} is old; write it with: python -m docs.generate"


def test_documents_a_fault_for_every_check():
    assert unseen() == [], "add a fault for it in tests/conformance/faults"


def test_lists_every_option_of_verify():
    page = (ROOT / "docs/conformance.md").read_text(encoding="utf-8")
    table = {row for row in page.splitlines() if row.startswith("| `--")} | {
        row for row in page.splitlines() if "`--seed`" in row
    }
    listed = {name for row in table for name in re.findall(r"--([a-z][a-z-]+)", row)}
    assert {option.name for option in OPTIONS} <= listed
